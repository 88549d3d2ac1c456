package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/internal/answer"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// grace is the time of a call that is left for telling how its command ended.
const grace = time.Second

// errTimeout is why a command is killed that takes too long.
var errTimeout = errors.New("shell: the command took too long")

// outcome is the answer as programs read it.
type outcome struct {
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	ExitCode  int    `json:"exit_code"`
	Signal    string `json:"signal,omitempty"`
	Duration  int64  `json:"duration_ms"`
	TimedOut  bool   `json:"timed_out"`
	Truncated bool   `json:"truncated"`
	StdoutCut int64  `json:"stdout_cut"` // bytes that were written and are not in stdout
	StderrCut int64  `json:"stderr_cut"`
}

// Execute implements agent.Tool.
func (r runner) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	p, err := r.plan(ctx, args) // again: policy may have changed since
	if err != nil {
		return refused(err)
	}
	if r.workspace == nil {
		return answer.Failed("There is no workspace here: the tool works where the gateway keeps workspaces."), nil
	}
	ctx, cancel := r.inTime(ctx)
	defer cancel()
	resources := policy.ResourcesOf(ctx)
	place, err := r.running.Acquire(ctx, r.owner(r.perSession(p, resources)), 1)
	if err != nil {
		return busy(err)
	}
	defer place.Release()
	w, err := r.workspace.Open(ctx)
	if err != nil {
		return registry.Result{}, err
	}
	if err := folderIsThere(w, p.command.Dir); err != nil {
		return answer.Failed(err.Error()), nil
	}
	if resources.MaxRuntime > 0 {
		p.timeout = min(p.timeout, resources.MaxRuntime)
	}
	return r.run(ctx, w, p)
}

// owner returns whom a command counts for: the session, which may run so many at once, and its tenant.
func (s session) owner(most int) share.Owner {
	id := s.id
	id.Tenant = ""
	return share.Owner{Tenant: s.id.Tenant, Identity: fmt.Sprintf("%+v", id), Most: int64(most)}
}

// perSession returns how many commands of the session may run at once. A sandbox runs one at a time; others would wait
// in it, and keep other sessions waiting.
func (r runner) perSession(p *plan, most policy.Resources) int {
	if p.engine == r.cfg.Sandbox {
		return 1
	}
	return min(cmp.Or(most.MaxProcesses, defaultPerSession), r.cfg.MaxCommands)
}

// refused is the answer for a call that may not run. Its caller reads why.
func refused(err error) (registry.Result, error) {
	if e, ok := errors.AsType[*registry.Error](err); ok {
		return registry.Result{}, e
	}
	return answer.Failed(err.Error()), nil
}

// inTime ends the context of a call a moment before its time is up, so that what was printed until then is told.
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
	e := registry.Errorf(registry.CodeBusy, "As many commands of this session, of its tenant or of the pod run "+
		"already as may run at once. Wait for them to end.")
	e.RetryAfter = time.Second
	return registry.Result{}, e.With(registry.DispatchedNo)
}

// folderIsThere checks the folder that a command runs in: one of the workspace, with no link that leads out of it.
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

// run runs a command to its end, or to that of its time.
func (r runner) run(ctx context.Context, w sandbox.Workspace, p *plan) (registry.Result, error) {
	limited, cancel := context.WithTimeoutCause(ctx, p.timeout, errTimeout)
	defer cancel()
	reports := &progress{report: func(chunk string) { agent.ReportProgress(ctx, "", chunk) }}
	stdout, stderr := newCapture(r.cfg.MaxOutput), newCapture(r.cfg.MaxOutput)
	p.command.Stdout, p.command.Stderr = tee{stdout, reports}, tee{stderr, reports}
	p.command.Env = append(home(p.engine, w), p.command.Env...)
	start := time.Now()
	exit, err := p.engine.Run(limited, w, p.command)
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

// notRun says why a command did not run to its end.
func (r runner) notRun(ctx context.Context, p *plan, err error) (registry.Result, error) {
	switch {
	case ctx.Err() != nil:
		return registry.Result{}, context.Cause(ctx)
	case errors.Is(err, sandbox.ErrNoProgram) && p.viaBash:
		return answer.Failed(r.shell.missing), nil
	case errors.Is(err, sandbox.ErrNoProgram):
		return answer.Failed(fmt.Sprintf("There is no program %q where programs run.", p.program)), nil
	case errors.Is(err, sandbox.ErrFull):
		return answer.Failed("The command did not run to its end: " + err.Error() + "."), nil
	case errors.Is(err, sandbox.ErrNotElevated):
		return answer.Failed("There are no elevated permissions where programs run. Leave elevated out."), nil
	case errors.Is(err, sandbox.ErrUnavailable):
		e := registry.Errorf(registry.CodeBusy, "What runs programs is not available now. Retry in a moment.")
		e.Cause = err
		return registry.Result{}, e
	}
	return registry.Result{}, err
}

// result is the outcome as a model reads it: what was printed, and what else there is to know in brackets.
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
		why = fmt.Sprintf("ended by the signal %q, exit code %d", o.Signal, o.ExitCode)
	case o.ExitCode != 0:
		why = fmt.Sprintf("exit code %d", o.ExitCode)
	}
	if why != "" {
		end()
		b.WriteString("[" + why + "]")
	} else if b.Len() == 0 {
		b.WriteString("[no output]")
	}
	res, err := answer.With(b.String(), o)
	res.Success, res.Error = why == "", why
	return res, err
}

// basics is what every program knows of its environment, which has nothing of the gateway's own.
var basics = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8",
}

// home is the variable of a program's own folder, in an engine that shows the workspace where it is. A container has it
// somewhere else, and says so itself; folders for temporary files are every engine's own.
func home(e sandbox.Engine, w sandbox.Workspace) []string {
	if e.Name() == "docker" {
		return nil
	}
	return []string{"HOME=" + w.Dir}
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

	// steering matches the names of variables that say which programs run, or what they read first.
	steering = regexp.MustCompile(`(?i)^(` +
		`PATH|IFS|ENV|HOME|TMPDIR|SHELL|PWD|OLDPWD|CDPATH|PS[0-9]|SHELLOPTS|BASHOPTS|GLOBIGNORE|PROMPT_COMMAND|` +
		`BASH.*|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|MALLOC_.*|GLIBC_TUNABLES|` +
		`.*PAGER|.*EDITOR|VISUAL|BROWSER|LESS.*|MANOPT|MANROFFOPT|` +
		`GIT_.*|SSH_.*|RSYNC_.*|TAR_OPTIONS|TAPE|GZIP|BZIP2?|XZ_.*|ZIPOPT|UNZIP.*|GREP_.*|.*FLAGS|.*_OPTS|.*_OPTIONS|` +
		`PYTHON.*|PERL.*|RUBY.*|NODE_.*|NPM_.*|LUA_.*|PHP.*|JAVA_.*|JDK_.*|CLASSPATH|AWK.*|GAWK.*|` +
		`GO.*|CARGO.*|RUST.*|CC|CXX|LD|AR|MAKE.*|POSIXLY_CORRECT|FTP.*|.*_PROXY|CURL_.*|WGETRC|XDG_.*` +
		`)$`)
)

// steers reports whether a variable says which programs run, or what they read first.
func steers(name string) bool { return steering.MatchString(name) }

func validName(name string) bool { return variableName.MatchString(name) }

func validVariable(v string) bool {
	name, _, ok := strings.Cut(v, "=")
	return ok && validName(name) && !strings.ContainsRune(v, 0)
}

// variables returns the environment of a call. In mode full a call may set what it likes, else what the operator named.
func (r runner) variables(set map[string]string, full bool) ([]string, error) {
	env := slices.Concat(basics, r.cfg.Env)
	for _, name := range slices.Sorted(maps.Keys(set)) {
		switch {
		case !validName(name) || !validVariable(name+"="+set[name]):
			return nil, fmt.Errorf("env: %.80q is no name of an environment variable, or its value has a NUL character",
				name)
		case !full && (steers(name) || !slices.Contains(r.cfg.EnvNames, name)):
			return nil, forbidden("The environment variable %q may not be set here. %s", name, r.settable())
		}
		env = append(env, name+"="+set[name])
	}
	return env, nil
}

func (r runner) settable() string {
	if len(r.cfg.EnvNames) == 0 {
		return "None may; leave env out."
	}
	return "These may: " + strings.Join(r.cfg.EnvNames, ", ") + "."
}
