package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/localtool"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// grace is the part of a call's timeout that is reserved to report how its command ended.
const grace = time.Second

// errTimeout is the cause when a command exceeds its timeout.
var errTimeout = errors.New("shell: the command took too long")

// outcome is the structured result of a command.
type outcome struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exit_code"`
	Signal    string `json:"signal,omitempty"`
	Duration  int64  `json:"duration_ms"`
	TimedOut  bool   `json:"timed_out"`
	Truncated bool   `json:"truncated"`
	StdoutCut int64  `json:"stdout_cut"` // bytes of output that are missing in stdout
	StderrCut int64  `json:"stderr_cut"`
}

// Execute implements agent.Tool.
func (r runner) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	p, err := r.plan(ctx, args) // again: policy may have changed since Validate
	if err != nil {
		return refused(err)
	}
	if r.workspace == nil {
		return localtool.Failed("There is no workspace here: the tool needs a gateway with workspaces."), nil
	}
	ctx, cancel := r.inTime(ctx)
	defer cancel()
	resources := policy.ResourcesOf(ctx)
	release, err := r.place(ctx, agent.CallerOf(ctx).User, r.perSession(p, resources))
	if err != nil {
		return busy(err)
	}
	defer release()
	w, err := r.workspace.Open(ctx)
	if err != nil {
		return registry.Result{}, err
	}
	if err := folderIsThere(w, p.command.Dir); err != nil {
		return localtool.Failed(err.Error()), nil
	}
	if resources.MaxRuntime > 0 {
		p.timeout = min(p.timeout, resources.MaxRuntime)
	}
	return r.run(ctx, w, p)
}

// place waits for a slot for a command: first of its session, which has most of them, then of its tenant and user. All
// sessions of a user share a quarter of the pod's slots, or what one session may have if that is more. Callers without
// a user may call for many: they have the tenant's share. release returns the slot.
func (s session) place(ctx context.Context, user string, most int) (release func(), err error) {
	id := s.id
	id.Tenant = ""
	own := share.Owner{Tenant: s.id.Tenant, Identity: fmt.Sprintf("%+v", id), Most: int64(most)}
	turn, err := s.cfg.Slots.sessions.Acquire(ctx, own, 1)
	if err != nil {
		return nil, err
	}
	all := share.Owner{
		Tenant: s.id.Tenant, Identity: user, Most: int64(max(most, s.cfg.MaxCommands/userPart)),
	}
	slot, err := s.cfg.Slots.running.Acquire(ctx, all, 1)
	if err != nil {
		turn.Release()
		return nil, err
	}
	return func() { slot.Release(); turn.Release() }, nil
}

// userPart is the divisor that gives the slots of a user.
const userPart = 4

// perSession returns the maximum number of concurrent commands of the session. A sandbox runs one command of a session
// at a time. Further commands would only wait in it, and hold slots that other sessions need.
func (r runner) perSession(p *plan, most policy.Resources) int {
	if p.engine == r.cfg.Sandbox {
		return 1
	}
	return min(cmp.Or(most.MaxProcesses, defaultPerSession), r.cfg.MaxCommands)
}

// refused converts the error of plan for the caller.
func refused(err error) (registry.Result, error) {
	if e, ok := errors.AsType[*registry.Error](err); ok {
		return registry.Result{}, e
	}
	return localtool.Failed(err.Error()), nil
}

// inTime shortens the deadline of a call by grace, or a quarter of the rest if that is less. The output until then can
// thus still be returned.
func (r runner) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	limit, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	left := time.Until(limit)
	return context.WithDeadlineCause(ctx, limit.Add(-min(grace, left/4)), errTimeout)
}

func busy(err error) (registry.Result, error) {
	_, full := errors.AsType[*share.FullError](err)
	if !full && !errors.Is(err, errTimeout) && !errors.Is(err, context.DeadlineExceeded) {
		return registry.Result{}, err
	}
	e := registry.Errorf(registry.CodeBusy, "This session, its user, its tenant or the pod is at its limit of running "+
		"commands. Wait until some end.")
	e.RetryAfter = time.Second
	return registry.Result{}, e.With(registry.DispatchedNo)
}

// folderIsThere checks that the working directory exists, and that no link leads out of the workspace.
func folderIsThere(w sandbox.Workspace, dir string) error {
	if dir == "" {
		return nil
	}
	root, err := os.OpenRoot(w.Dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing was written through it
	if info, err := root.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("workdir: there is no folder %q in the workspace", dir)
	}
	return nil
}

// failureOf returns what the span of a command says of an error of its engine; empty: no error.
func failureOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errTimeout):
		return string(registry.CodeTimeout)
	default:
		return "sandbox_failed"
	}
}

// run runs a command until it ends or its timeout is reached.
func (r runner) run(ctx context.Context, w sandbox.Workspace, p *plan) (registry.Result, error) {
	limited, cancel := context.WithTimeoutCause(ctx, p.timeout, errTimeout)
	defer cancel()
	reports := &progress{report: func(chunk string) { agent.ReportProgress(ctx, "", chunk) }}
	stdout, stderr := newCapture(r.cfg.MaxOutput), newCapture(r.cfg.MaxOutput)
	p.command.Stdout, p.command.Stderr = tee{stdout, reports}, tee{stderr, reports}
	p.command.Env = append(home(p.engine, w), p.command.Env...)
	start := time.Now()
	traced, span := trace.Start(limited, trace.Internal, "sandbox", p.engine.Name())
	exit, err := p.engine.Run(traced, w, p.command)
	span.Text(trace.Engine, p.engine.Name()).End(failureOf(err))
	reports.end()
	o := outcome{
		Stdout: stdout.text(), Stderr: stderr.text(), ExitCode: exit.Code, Signal: exit.Signal,
		Duration: exit.Duration.Milliseconds(), StdoutCut: stdout.cut(), StderrCut: stderr.cut(),
	}
	o.Truncated = o.StdoutCut+o.StderrCut > 0
	switch {
	case err == nil:
		return o.result(p.timeout)
	case errors.Is(err, errTimeout):
		took := time.Since(start)
		o.TimedOut, o.ExitCode, o.Signal, o.Duration = true, 128+9, "killed", took.Milliseconds()
		return o.result(took.Round(100 * time.Millisecond))
	}
	return r.notRun(ctx, p, err)
}

// notRun converts the error of a command that did not complete.
func (r runner) notRun(ctx context.Context, p *plan, err error) (registry.Result, error) {
	switch {
	case ctx.Err() != nil:
		return registry.Result{}, context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNoProgram) && p.viaBash:
		return localtool.Failed(r.shell.missing), nil
	case errors.Is(err, sandbox.ErrNoProgram):
		return localtool.Failed(fmt.Sprintf("There is no program %q.", p.program)), nil
	case errors.Is(err, sandbox.ErrFull):
		return localtool.Failed("The command did not finish: " + err.Error() + "."), nil
	case errors.Is(err, sandbox.ErrNotElevated):
		return localtool.Failed("Programs cannot run elevated here. Omit elevated."), nil
	case errors.Is(err, sandbox.ErrUnavailable):
		e := registry.Errorf(registry.CodeBusy, "Programs cannot run at the moment. Retry in a moment.")
		e.Cause = err
		return registry.Result{}, e
	}
	return registry.Result{}, err
}

// result returns the outcome as a result: the output, followed by notes in brackets.
func (o outcome) result(took time.Duration) (registry.Result, error) {
	var b strings.Builder
	b.WriteString(o.Stdout)
	end := func() {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
	}
	if o.Stderr != "" {
		end()
		b.WriteString("[stderr]\n" + o.Stderr)
	}
	why := ""
	switch {
	case o.TimedOut:
		why = fmt.Sprintf("killed: the command took longer than %v", took)
	case o.Signal != "":
		why = fmt.Sprintf("stopped by the signal %q, exit code %d", o.Signal, o.ExitCode)
	case o.ExitCode != 0:
		why = fmt.Sprintf("exit code %d", o.ExitCode)
	}
	if why != "" {
		end()
		b.WriteString("[" + why + "]")
	} else if b.Len() == 0 {
		b.WriteString("[no output]")
	}
	res, err := localtool.Result(b.String(), o)
	res.Success, res.Error = why == "", why
	return res, err
}
