package commands

import (
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// Commands of the tool run.
const (
	runCommand     = "system.run"
	prepareCommand = "system.run.prepare"
)

const (
	prepareTime = 15 * time.Second // for system.run.prepare, as at OpenClaw's gateway
	killMargin  = 2 * time.Second  // a command is killed that much before its caller stops waiting, to send its output
	minRun      = time.Second
)

// run runs a shell command. A node has rules of its own about commands: its exec approvals (security deny, allowlist or
// full; ask off, on-miss or always). It never asks its person. It refuses, and expects the gateway to ask and to call
// again. Farhand asks each question once:
//
//	                    the node's rules allow it ──▶ system.run ─────────────────────────────▶ ran
//	system.run.prepare ─┤
//	                    they ask ─┬─ a person has decided the call ──▶ system.run, allow-once ─▶ ran
//	                              └─ no person has ─▶ system.run ┬─ on the allowlist ───────────▶ ran
//	                                                            └─ refused ─▶ Step.Ask
//
// The node takes allow-once only with the plan that system.run.prepare made: the exact program, folder, script and
// rules, so that none of them can change between the question and the command. Nodes without system.run.prepare are
// older, and take allow-once without a plan.
func run(c *catalog, r request) (Invocation, error) {
	argv := shell(c.platform, r.args.text("command"))
	base := []member{{Name: []byte("command"), Value: argv}}
	if cwd := r.args.text("cwd"); cwd != "" {
		base = with(base, "cwd", quoted(cwd))
	}
	left := r.call.Left
	wanted := time.Duration(r.args.number("timeout_ms")) * time.Millisecond
	if wanted > 0 && (left <= 0 || wanted < left) {
		left = wanted + killMargin
	}
	one := runOnce{
		catalog: c, tool: r.tool, approved: r.call.Approved, base: base, kill: max(left-killMargin, minRun),
	}
	if left <= 0 {
		one.kill = 0
	}
	if !c.prepares {
		return one.invocation(nil, false), nil
	}
	// With the gateway's own rules full and off, the node binds the plan only if its own rules ask.
	ask := with(with(base[:len(base):len(base)], "security", quoted("full")), "ask", quoted("off"))
	return Invocation{
		Command: prepareCommand, Params: encodeObject(ask), Timeout: prepareTime, next: one.prepared,
	}, nil
}

// shell returns the arguments of a shell that runs a command, as the node host expects them.
func shell(p platform, command string) []byte {
	argv := []string{"/bin/sh", "-lc", command}
	switch p {
	case windows:
		argv = []string{"cmd.exe", "/d", "/s", "/c", command}
	case macos: // login shells of macOS change PATH
		argv[1] = "-c"
	}
	b := []byte{'['}
	for i, arg := range argv {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quoted(arg)...)
	}
	return append(b, ']')
}

// runOnce is one call of the tool run.
type runOnce struct {
	catalog  *catalog
	tool     string
	approved bool
	base     []member      // command and cwd
	kill     time.Duration // when the node kills the command; zero: not at all
	plan     []byte        // of system.run.prepare; nil: none
}

// prepared continues after system.run.prepare.
func (o runOnce) prepared(a Answer) Step {
	if a.Failure != nil {
		if isUnsupported(*a.Failure) { // declared, but not there
			return o.invoke(false)
		}
		return Step{Result: o.catalog.Fail(o.tool, *a.Failure)}
	}
	fields, err := payload{o.tool, a.Payload}.object()
	if err == nil {
		err = o.readPlan(fields["plan"])
	}
	if err != nil {
		return Step{Result: registry.NewResult(false, registry.JSON{}, registry.AsError(err).Message)}
	}
	asks := true
	if policy, err := (payload{o.tool, registry.JSON{}}).inner(fields["execPolicy"]); err == nil {
		asks = policy.text("security") != "full" || policy.text("ask") != "off"
	}
	return o.invoke(asks && o.approved)
}

// readPlan takes over what the node is going to run. It differs from what was asked in the full paths of the program
// and of the folder.
func (o *runOnce) readPlan(plan []byte) error {
	fields, err := payload{o.tool, registry.JSON{}}.inner(plan)
	if err != nil || len(fields["argv"]) == 0 || fields["argv"][0] != '[' {
		return invalidPayload(prepareCommand)
	}
	o.plan = plan
	o.base = []member{{Name: []byte("command"), Value: fields["argv"]}}
	if shown := fields.text("commandText"); shown != "" {
		o.base = with(o.base, "rawCommand", quoted(shown))
	}
	if cwd := fields.text("cwd"); cwd != "" {
		o.base = with(o.base, "cwd", quoted(cwd))
	}
	return nil
}

func (o runOnce) invoke(allowed bool) Step {
	inv := o.invocation(o.plan, allowed)
	return Step{Invoke: &inv}
}

// invocation returns the invocation of system.run, with a person's decision if allowed.
func (o runOnce) invocation(plan []byte, allowed bool) Invocation {
	params := o.base[:len(o.base):len(o.base)]
	if o.kill > 0 {
		params = with(params, "timeoutMs", strconv.AppendInt(nil, o.kill.Milliseconds(), 10))
	}
	if plan != nil {
		params = with(params, "systemRunPlan", plan)
	}
	if allowed {
		params = with(with(params, "approved", []byte("true")), "approvalDecision", quoted("allow-once"))
	}
	params = with(params, "suppressNotifyOnExit", []byte("true")) // the caller waits for the result
	return Invocation{Command: runCommand, Params: encodeObject(params), next: func(a Answer) Step {
		return o.ran(a, allowed)
	}}
}

// ran continues after system.run.
func (o runOnce) ran(a Answer, allowed bool) Step {
	switch {
	case a.Failure == nil || !asksFirst(*a.Failure) || allowed:
		return After(o.catalog, o.tool, Invocation{}, a)
	case o.approved: // a node that did not say before that it asks
		return o.invoke(true)
	default:
		return Step{Ask: "The exec approvals of the node require a person's decision about this command."}
	}
}

// asksFirst reports whether a node ran nothing, because its rules require a person's decision.
func asksFirst(f Failure) bool {
	if f.Code != codeDenied && !strings.HasPrefix(f.Message, codeDenied) {
		return false
	}
	reason := strings.TrimSpace(strings.TrimPrefix(f.Message, codeDenied+":"))
	return strings.HasPrefix(reason, "approval required") || strings.HasPrefix(reason, "allowlist miss") ||
		strings.HasPrefix(reason, "explicit approval required")
}

// isUnsupported reports whether a node does not know a command that it declared.
func isUnsupported(f Failure) bool {
	return f.Code == "UNAVAILABLE" && strings.Contains(f.Message, "not supported")
}

// cutMark ends an output that the node has cut. It keeps the first 200,000 bytes of all streams together.
const cutMark = "\n... (truncated)"

// ran returns the result of a command as other devices report it. A command that ran and failed is a success of the
// tool, with its exit code.
func ran(p payload) (registry.Result, error) {
	fields, err := p.object()
	if err != nil {
		return registry.Result{}, err
	}
	stdout, stderr := fields.text("stdout"), fields.text("stderr")
	exit, exited := fields["exitCode"]
	exited = exited && string(exit) != "null"
	if why := fields.text("error"); why != "" || !exited || string(fields["timedOut"]) == "true" {
		return notRun(fields, why, stdout, stderr), nil
	}
	cut := strings.HasSuffix(stdout, cutMark) || strings.HasSuffix(stderr, cutMark)
	return structured(p.tool, encodeObject([]member{
		{Name: []byte("exit_code"), Value: exit}, {Name: []byte("stdout"), Value: quoted(stdout)},
		{Name: []byte("stderr"), Value: quoted(stderr)}, {Name: []byte("cut"), Value: strconv.AppendBool(nil, cut)},
	}))
}

// notRun returns the result of a command that did not start, or did not end by itself.
func notRun(fields arguments, why, stdout, stderr string) registry.Result {
	switch {
	case why != "":
		why = "The command did not run: " + why
	case string(fields["timedOut"]) == "true":
		why = "The command was killed because its time was over."
	default:
		why = "The command was killed."
	}
	res := registry.NewResult(false, registry.JSON{}, why)
	if stdout+stderr != "" {
		res.Output = strings.Join([]string{why, stdout, stderr}, "\n")
	}
	return res
}
