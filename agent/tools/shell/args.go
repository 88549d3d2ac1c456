package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/registry"
)

// arguments are the arguments of a call.
type arguments struct {
	Command  string            `json:"command"`
	Timeout  float64           `json:"timeout"` // seconds; the schema requires an integer
	Workdir  string            `json:"workdir"`
	Env      map[string]string `json:"env"`
	Elevated bool              `json:"elevated"`
	Security policy.Security   `json:"security"`
}

// timeout returns the timeout of the command: defaultTimeout if unset, at most maxTimeout.
func (a *arguments) timeout() time.Duration {
	if a.Timeout <= 0 || math.IsNaN(a.Timeout) {
		return defaultTimeout
	}
	return time.Duration(min(a.Timeout, maxTimeout.Seconds()) * float64(time.Second))
}

// plan is a call that passed all checks.
type plan struct {
	engine  sandbox.Engine
	command sandbox.Command
	timeout time.Duration
	program string // looked up by the engine
	viaBash bool   // program is the tool's shell
}

// Validate implements agent.ArgsValidator. Forbidden calls are rejected before anyone is asked for approval.
func (r runner) Validate(ctx context.Context, args json.RawMessage) error {
	_, err := r.plan(ctx, args)
	return err
}

// NeedsApproval implements agent.ApprovalChecker.
func (r runner) NeedsApproval(args json.RawMessage) (reason string, needed bool) {
	var in arguments
	if err := json.Unmarshal(args, &in); err != nil || !in.Elevated {
		return "", false
	}
	return "the command is to run with the rights of the gateway's own user", true
}

// forbidden returns the error for a call that policy denies.
func forbidden(format string, args ...any) error {
	return registry.Errorf(registry.CodePolicyDenied, format, args...).With(registry.DispatchedNo)
}

// plan checks a call against policy and validates its arguments.
func (r runner) plan(ctx context.Context, args json.RawMessage) (*plan, error) {
	var in arguments
	if err := json.Unmarshal(args, &in); err != nil {
		return nil, err
	}
	programs := policy.DecisionOf(ctx).Programs
	mode := policy.Stricter(cmp.Or(programs.Security, policy.Allowlist), in.Security)
	engine, sandboxed := r.engine(programs)
	workdir, err := checkWorkdir(in.Workdir)
	switch {
	case mode == policy.Deny:
		return nil, forbidden("No command may run: the security mode of this call is deny.")
	case engine == nil:
		return nil, registry.Errorf(registry.CodeToolNotFound, "Programs cannot run here: %s", r.missing(sandboxed)).
			With(registry.DispatchedNo)
	case strings.TrimSpace(in.Command) == "":
		return nil, errors.New("the command is empty")
	case len(in.Command) > maxCommand || strings.ContainsRune(in.Command, 0):
		return nil, errors.New("the command is too long, or has a NUL character; write it to a file, and run that")
	case err != nil:
		return nil, err
	case in.Elevated && sandboxed:
		return nil, forbidden("There are no elevated permissions in the sandbox. Leave elevated out.")
	case in.Elevated && !programs.Elevated:
		return nil, forbidden("Policy allows no elevated permissions for this call. Leave elevated out.")
	}
	p := &plan{engine: engine, timeout: in.timeout()}
	p.command = sandbox.Command{Dir: workdir, Elevated: in.Elevated, Limits: r.cfg.Limits}
	full := mode == policy.Full
	if p.command.Env, err = r.variables(in.Env, full); err != nil {
		return nil, err
	}
	p.command.Args, p.viaBash = append(slices.Clone(r.shell.args), in.Command), true
	if !full {
		a := allowlist{allow: programs.Allow, inside: !sandboxed}
		pipeline, err := a.check(in.Command)
		if err != nil {
			return nil, err
		}
		p.command.Args, p.viaBash = pipeline.args(r.shell.args)
	}
	p.program = p.command.Args[0]
	return p, nil
}

// checkWorkdir returns the working directory of a command, relative to the workspace. Whether it exists and stays
// inside the workspace is only checked when the command runs.
func checkWorkdir(dir string) (string, error) {
	switch {
	case dir == "":
		return "", nil
	case strings.ContainsFunc(dir, unicode.IsControl), strings.Contains(dir, `\`):
		return "", errors.New("workdir: give a plain path, relative to the workspace, as src")
	case dir[0] == '/', dir[0] == '~', slices.Contains(strings.Split(dir, "/"), ".."):
		return "", errors.New("workdir: give a folder inside the workspace, relative to it, as src")
	}
	if dir = path.Clean(dir); dir == "." {
		return "", nil
	}
	return dir, nil
}
