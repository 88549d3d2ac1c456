package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/tools/shell"
	"github.com/farhand/farhand/registry"
)

func TestTimeouts(t *testing.T) {
	for name, tt := range map[string]struct {
		argument int
		policy   time.Duration
		call     time.Duration
	}{ // in which a command begins, however slow the machine is
		"argument": {6, 0, 0}, "policy": {60, 6 * time.Second, 0}, "call": {60, 0, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.decision.Resources.MaxRuntime = tt.policy
			ctx := t.Context()
			if tt.call > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.call)
				defer cancel()
			}
			res, err := b.try(ctx, "exec", object{"command": "echo begun; trap '' TERM; sleep 60",
				"timeout": tt.argument})
			if err != nil {
				t.Fatal(err)
			}
			o := said(t, res)
			if res.Success || !o.TimedOut || o.Stdout != "begun\n" || o.ExitCode != 137 || o.DurationMS < 3_000 ||
				o.DurationMS > 50_000 || !strings.HasPrefix(res.Output,
				"begun\n[killed: the command took longer than ") {
				t.Errorf("%+v, %+v", res, o)
			}
		})
	}
}

// A call that is cancelled takes everything with it that its command began.
func TestCancelled(t *testing.T) {
	b := newBench(t)
	fifo := filepath.Join(b.dir, "fifo")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o666), os.Chmod(fifo, 0o666)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("hung up")
	ended := make(chan error, 1)
	go func() {
		_, err := b.try(ctx, "exec", object{"command": "setsid sh -c 'echo $$ > fifo; sleep 60' & sleep 60"})
		ended <- err
	}()
	text, err := os.ReadFile(fifo) // until the program has written, and closed it
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if err := <-ended; !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	pid := strings.TrimSpace(string(text))
	if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the process %s is there: %v", pid, err)
	}
}

// TestFloodsAreBounded: of 200 MB of output the head and the tail are kept, in little memory.
func TestFloodsAreBounded(t *testing.T) {
	b := newBench(t)
	b.cfg.MaxOutput = 2000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	res := b.run("exec", object{"command": "echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last",
		"timeout": 120})
	runtime.ReadMemStats(&after)
	o := said(t, res)
	if !res.Success || !strings.HasPrefix(o.Stdout, "first\n") || !strings.HasSuffix(o.Stdout, "\nlast\n") ||
		len(o.Stdout) > 2100 || o.Stderr != "" || !o.Truncated || o.StdoutCut != 200_000_012-2000 ||
		!strings.Contains(o.Stdout, "\n[cut: ") || !utf8.ValidString(o.Stdout) {
		t.Errorf("%d bytes, cut %d: %.100q %q", len(o.Stdout), o.StdoutCut, o.Stdout, o.Stderr)
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("it took %d MiB", grown>>20)
	}
}

// router is the part of a Router that calls of local tools need.
type router struct {
	agent.Router
	chunks []string
}

func (r *router) RunLocal(
	ctx context.Context, _ registry.Call,
	run func(ctx context.Context, report func(registry.Report)) (registry.Result, error),
) (registry.Result, error) {
	return run(ctx, func(p registry.Report) { r.chunks = append(r.chunks, p.Chunk) })
}

// callLog keeps nothing.
type callLog struct{ agent.CallLog }

func (callLog) AmendWith(registry.Amend, func(string) bool)     {}
func (callLog) Finish(*registry.Record, registry.Result, error) {}

// TestThroughTheInvoker calls exec by the way that all calls go, with the policy that holds by default.
func TestThroughTheInvoker(t *testing.T) {
	b := newBench(t)
	rules, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	r := &router{}
	invoker := agent.NewInvoker(agent.Config{Router: r, CallLog: callLog{}, Policy: rules})
	call := func(args string) (registry.Result, error) {
		out, err := invoker.Invoke(t.Context(), agent.Request{
			Caller: auth.Identity{Tenant: "default", Admin: true}, Tool: "exec", Local: b.tool("exec"),
			Args: registry.MustJSON(args),
		})
		return out.Result, err
	}
	res, err := call(`{"command":"echo hello world | cat","timeout":20.0}`)
	if err != nil || !res.Success || res.Output != "hello world\n" || strings.Join(r.chunks, "") != "hello world\n" {
		t.Errorf("%+v, %v, %q", res, err, r.chunks)
	}
	for args, code := range map[string]registry.Code{
		`{"command":"id"}`:                         registry.CodePolicyDenied,
		`{"command":"echo $(id)"}`:                 registry.CodePolicyDenied,
		`{"command":"id","security":"full"}`:       registry.CodePolicyDenied,
		`{"command":"echo","security":"deny"}`:     registry.CodePolicyDenied,
		`{"command":"echo","elevated":true}`:       registry.CodePolicyDenied,
		`{"command":"echo","timeout":0}`:           registry.CodeInvalidArguments,
		`{"command":"echo","workdir":"../.."}`:     registry.CodeInvalidArguments,
		`{"command":"echo","env":{"PATH":"/tmp"}}`: registry.CodePolicyDenied,
	} {
		if res, err := call(args); registry.AsError(err).Code != code {
			t.Errorf("%s: %+v, %v", args, res, err)
		}
	}
}

// Commands of one session wait for each other; those of another one do not.
func TestCommandsAtOnce(t *testing.T) {
	b := newBench(t)
	engine := &slowEngine{started: make(chan struct{}, 10), end: make(chan struct{})}
	b.cfg = shell.Config{Host: engine}
	b.decision.Resources.MaxProcesses = 1
	r, err := shell.Registration(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	args := json.RawMessage(`{"command":"true"}`)
	call := func(ctx context.Context, session string) chan error {
		done := make(chan error, 1)
		sc := b.sc
		sc.Key.Session = session
		tool := r.Make(sc)[0]
		go func() {
			_, err := tool.Execute(called{ctx, b}, args)
			done <- err
		}()
		return done
	}
	first := call(t.Context(), "a")
	<-engine.started
	other := call(t.Context(), "b")
	<-engine.started

	gone, cancel := context.WithCancelCause(t.Context())
	hungUp := errors.New("hung up")
	cancel(hungUp)
	if err := <-call(gone, "a"); !errors.Is(err, hungUp) {
		t.Errorf("who hung up: %v", err)
	}
	late, cancelLate := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelLate()
	if err := <-call(late, "a"); !errors.Is(err, registry.CodeBusy) {
		t.Errorf("who waited too long: %v", err)
	}
	second := call(t.Context(), "a")
	engine.end <- struct{}{}
	engine.end <- struct{}{}
	if err := errors.Join(<-first, <-other); err != nil {
		t.Error(err)
	}
	<-engine.started
	engine.end <- struct{}{}
	if err := <-second; err != nil {
		t.Error(err)
	}
}

// slowEngine runs commands that end when the test says so.
type slowEngine struct {
	fakeEngine
	started, end chan struct{}
}

func (e *slowEngine) Run(context.Context, sandbox.Workspace, sandbox.Command) (sandbox.Exit, error) {
	e.started <- struct{}{}
	<-e.end
	return sandbox.Exit{}, nil
}
