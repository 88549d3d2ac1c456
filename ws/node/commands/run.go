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
// full; ask off, on-miss or always). If they ask, the node host refuses, and expects its gateway to ask a person and to
// call again. Farhand asks each question once:
//
//	system.run ─┬─ the rules allow it ──▶ ran
//	            └─ refused ─┬─ no person has decided the call ──▶ Step.Ask
//	                        └─ a person has ──▶ system.run.prepare ──▶ system.run, allow-once ──▶ ran
//
// The node takes allow-once only with the plan that system.run.prepare made: the exact program, folder, script and
// rules, so that none of them can change in between. It makes no plan for login shells and for most lines of a shell,
// so the command is tried without one first, and a line that is one program with its arguments becomes that. The app
// of macOS asks its own person instead of refusing. A decided call goes there with a plan first. Nodes before 2026.5
// take allow-once without a plan.
func run(c *Catalog, r request) (Invocation, error) {
	line := r.args.text("command")
	base := []member{{Name: []byte("command"), Value: shell(c.platform, line)}}
	planned := []member{{Name: []byte("command"), Value: bindable(c.platform, line)}}
	if cwd := r.args.text("cwd"); cwd != "" {
		base, planned = with(base, "cwd", quoted(cwd)), with(planned, "cwd", quoted(cwd))
	}
	left := r.call.Left
	wanted := time.Duration(r.args.number("timeout_ms")) * time.Millisecond
	if wanted > 0 && (left <= 0 || wanted < left) {
		left = wanted + killMargin
	}
	one := runOnce{catalog: c, tool: r.tool, approved: r.call.Approved, base: base, planned: planned}
	if left > 0 {
		one.kill = max(left-killMargin, minRun)
	}
	if one.approved && c.prepares && c.platform == macos {
		return one.prepare(func(Failure) Step { return one.invoke(one.first) }), nil
	}
	return one.invocation(nil, one.first), nil
}

// shell returns the arguments of a shell that runs a command, as the node host expects them.
func shell(p platform, command string) []byte {
	switch p {
	case windows:
		return encodeTexts("cmd.exe", "/d", "/s", "/c", command)
	case macos: // login shells of macOS change PATH
		return encodeTexts("/bin/sh", "-c", command)
	default:
		return encodeTexts("/bin/sh", "-lc", command)
	}
}

// bindable returns the arguments of a command as a node is most likely to make a plan for it: the words of a line that
// is one program with plain arguments, else a shell that is no login shell.
func bindable(p platform, command string) []byte {
	if p == windows {
		return shell(p, command)
	}
	if words := plainWords(command); words != nil {
		return encodeTexts(words...)
	}
	return encodeTexts("/bin/sh", "-c", command)
}

// plainWords returns the words of a line in which a shell does nothing but split and unquote. Nil: it would do more.
func plainWords(line string) (words []string) {
	var word strings.Builder
	open, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case strings.ContainsRune("$`\\!\n\r", r), quote == 0 && strings.ContainsRune("|&;<>(){}[]*?#~", r):
			return nil
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t':
			if open {
				words = append(words, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		words = append(words, word.String())
	}
	if quote != 0 || len(words) == 0 || words[0] == "" || strings.Contains(words[0], "=") { // or an assignment
		return nil
	}
	return words
}

// encodeTexts returns an array of strings as JSON.
func encodeTexts(argv ...string) []byte {
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
	catalog  *Catalog
	tool     string
	approved bool
	base     []member      // command and cwd
	planned  []member      // the same, as the node may make a plan for it
	kill     time.Duration // when the node kills the command; zero: not at all
}

// prepare asks the node for a plan. refused continues if it makes none.
func (o runOnce) prepare(refused func(Failure) Step) Invocation {
	// With the gateway's own rules full and off, the node checks the plan only by its own rules.
	params := with(with(o.planned[:len(o.planned):len(o.planned)], "security", quoted("full")), "ask", quoted("off"))
	return Invocation{
		Command: prepareCommand, Params: encodeObject(params), Timeout: prepareTime,
		next: func(a Answer) Step {
			if a.Failure != nil {
				return refused(*a.Failure)
			}
			return o.prepared(a.Payload)
		},
	}
}

// prepared runs the command by the plan that the node made. It differs from what was asked in the full paths of the
// program and of the folder.
func (o runOnce) prepared(made registry.JSON) Step {
	fields, err := payload{o.tool, made}.object()
	var plan arguments
	if err == nil {
		plan, err = payload{o.tool, made}.inner(fields["plan"])
	}
	if err != nil || len(plan["argv"]) == 0 || plan["argv"][0] != '[' {
		invalid := registry.AsError(invalidPayload(prepareCommand))
		return Step{Result: registry.NewResult(false, registry.JSON{}, invalid.Message)}
	}
	o.base = []member{{Name: []byte("command"), Value: plan["argv"]}}
	if shown := plan.text("commandText"); shown != "" {
		o.base = with(o.base, "rawCommand", quoted(shown))
	}
	if cwd := plan.text("cwd"); cwd != "" {
		o.base = with(o.base, "cwd", quoted(cwd))
	}
	policy, err := payload{o.tool, made}.inner(fields["execPolicy"])
	if err == nil && policy.text("ask") == "off" { // it does not ask, also if its allowlist refuses the command
		return o.invoke(o.last)
	}
	return o.allow(fields["plan"], o.last)
}

// allow runs the command with a person's decision. plan may be nil.
func (o runOnce) allow(plan []byte, next func(Answer) Step) Step {
	params := with(with([]member(nil), "approved", []byte("true")), "approvalDecision", quoted("allow-once"))
	if plan != nil {
		params = with(params, "systemRunPlan", plan)
	}
	inv := o.invocation(params, next)
	return Step{Invoke: &inv}
}

func (o runOnce) invoke(next func(Answer) Step) Step {
	inv := o.invocation(nil, next)
	return Step{Invoke: &inv}
}

// invocation returns the invocation of system.run with more members.
func (o runOnce) invocation(more []member, next func(Answer) Step) Invocation {
	params := o.base[:len(o.base):len(o.base)]
	if o.kill > 0 {
		params = with(params, "timeoutMs", strconv.AppendInt(nil, o.kill.Milliseconds(), 10))
	}
	params = append(params, more...)
	params = with(params, "suppressNotifyOnExit", []byte("true")) // the caller waits for the result
	return Invocation{Command: runCommand, Params: encodeObject(params), next: next}
}

// first continues after system.run without a decision.
func (o runOnce) first(a Answer) Step {
	switch {
	case a.Failure == nil || !asksFirst(*a.Failure):
		return o.last(a)
	case !o.approved:
		return Step{Ask: "The exec approvals of the node require a person's decision about this command."}
	case !o.catalog.prepares:
		return o.allow(nil, o.last)
	}
	inv := o.prepare(func(f Failure) Step {
		return o.allow(nil, func(a Answer) Step {
			if a.Failure != nil { // a node that needs a plan: why it made none says more
				a.Failure = &f
			}
			return o.last(a)
		})
	})
	return Step{Invoke: &inv}
}

// last ends the call.
func (o runOnce) last(a Answer) Step { return After(o.catalog, o.tool, Invocation{}, a) }

// asksFirst reports whether a node ran nothing, because its rules require a person's decision. "allowlist miss" is no
// such case: with ask off, these rules refuse what is not on the list, and no decision here overrides them.
func asksFirst(f Failure) bool {
	if f.Code != codeDenied && !strings.HasPrefix(f.Message, codeDenied) {
		return false
	}
	reason := strings.TrimSpace(strings.TrimPrefix(f.Message, codeDenied+":"))
	return strings.HasPrefix(reason, "approval required") || strings.HasPrefix(reason, "explicit approval required")
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
