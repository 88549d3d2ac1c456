package shell_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/agent/tools/shell"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// self is what Main of package host returned to TestMain.
var self host.Program

func TestMain(m *testing.M) {
	self = host.Main()
	goleak.VerifyTestMain(m)
}

// nobody is who runs the programs of tests if these run as root.
const nobody = 65534

// bench is a workspace with the real engine of the host, and the tools of its agent session.
type bench struct {
	testing.TB
	dir      string
	w        sandbox.Workspace
	cfg      shell.Config
	sc       agent.SessionContext
	decision policy.Decision
	check    *schema.Validator
}

// Open implements agent.Workspace.
func (b *bench) Open(context.Context) (sandbox.Workspace, error) { return b.w, nil }

func newBench(t testing.TB) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "farhand-shell-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bench{TB: t, dir: dir, check: schema.NewValidator()}
	b.w = sandbox.Workspace{ID: "w1", Dir: dir, UID: os.Getuid(), GID: os.Getgid()}
	if os.Getuid() == 0 {
		b.w.UID, b.w.GID = nobody, nobody
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	engine, err := host.New(host.Config{Program: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := engine.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	b.cfg = shell.Config{Host: engine}
	b.decision.Programs.Security = policy.Full
	b.sc.Workspace = b
	return b
}

// tool returns a tool of the session, with the present configuration.
func (b *bench) tool(name string) agent.Tool {
	b.Helper()
	r, err := shell.Registration(b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	tools := r.Make(b.sc)
	return tools[slices.IndexFunc(tools, func(t agent.Tool) bool { return t.Spec().Name == name })]
}

// called is the context of a call: what policy says of it, and who hears of its progress.
type called struct {
	context.Context
	b *bench
}

func (c called) Value(key any) any {
	if v := c.b.decision.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

type object = map[string]any

// try calls a tool as the invoker does: by its schema, its own check, and then for good.
func (b *bench) try(ctx context.Context, name string, args object) (registry.Result, error) {
	b.Helper()
	tool := b.tool(name)
	text, err := json.Marshal(args)
	if err != nil {
		return registry.Result{}, err
	}
	if err := b.check.Validate(ctx, share.Owner{}, tool.Spec(), text, time.Time{}); err != nil {
		return registry.Result{}, err
	}
	ctx = called{ctx, b}
	if err := tool.(agent.ArgsValidator).Validate(ctx, text); err != nil {
		return registry.Result{}, err
	}
	return tool.Execute(ctx, text)
}

func (b *bench) run(name string, args object) registry.Result {
	b.Helper()
	res, err := b.try(b.Context(), name, args)
	if err != nil {
		b.Fatalf("%s %.200v: %v", name, args, err)
	}
	return res
}

type outcome struct {
	Stdout, Stderr string
	ExitCode       int    `json:"exit_code"`
	Signal         string `json:"signal"`
	DurationMS     int64  `json:"duration_ms"`
	TimedOut       bool   `json:"timed_out"`
	Truncated      bool
	StdoutCut      int64 `json:"stdout_cut"`
}

func said(t testing.TB, res registry.Result) (o outcome) {
	t.Helper()
	if err := json.Unmarshal(res.Structured.Raw(), &o); err != nil {
		t.Fatalf("%+v: %v", res, err)
	}
	return o
}

func TestExec(t *testing.T) {
	b := newBench(t)
	if err := os.Mkdir(filepath.Join(b.dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args           object
		output, failed string
		code           int
	}{
		"output":    {object{"command": "echo one; echo two"}, "one\ntwo\n", "", 0},
		"nothing":   {object{"command": "true"}, "[no output]", "", 0},
		"both":      {object{"command": "printf out; echo err >&2"}, "out\n[stderr]\nerr\n", "", 0},
		"code":      {object{"command": "echo bad >&2; exit 3"}, "[stderr]\nbad\n[exit code 3]", "exit code 3", 3},
		"only code": {object{"command": "false"}, "[exit code 1]", "exit code 1", 1},
		"not there": {object{"command": "no-such-program 2>/dev/null"}, "[exit code 127]", "exit code 127", 127},
		"signal": {object{"command": "kill -9 $$"}, `[stopped by the signal "killed", exit code 137]`,
			"stopped by the signal \"killed\", exit code 137", 137},
		"workdir":  {object{"command": "basename \"$PWD\"", "workdir": "./sub"}, "sub\n", "", 0},
		"here":     {object{"command": "test \"$PWD\" = \"$HOME\" && echo home", "workdir": "."}, "home\n", "", 0},
		"env":      {object{"command": "echo $A-$B", "env": object{"A": "1", "B": "x y"}}, "1-x y\n", "", 0},
		"full":     {object{"command": "echo $((1+1)) > f; cat f", "security": "full"}, "2\n", "", 0},
		"no UTF-8": {object{"command": `printf 'a\377b'`}, "a\ufffdb", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			res := b.run("exec", tt.args)
			o := said(t, res)
			if res.Output != tt.output || res.Error != tt.failed || res.Success != (tt.failed == "") ||
				o.ExitCode != tt.code || o.TimedOut || o.Truncated || o.DurationMS > 10_000 {
				t.Errorf("%+v, %+v", res, o)
			}
		})
	}
}

func TestBash(t *testing.T) {
	b := newBench(t)
	res := b.run("bash", object{"command": "a=(x y z)\nfor i in ${!a[@]}; do echo $i=${a[i]}; done"})
	if !res.Success || res.Output != "0=x\n1=y\n2=z\n" {
		t.Errorf("%+v", res)
	}
	// What stands in start files and variables of the gateway has no effect.
	if err := os.WriteFile(filepath.Join(b.dir, ".bashrc"), []byte("echo started\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BASH_ENV", filepath.Join(b.dir, ".bashrc"))
	for _, tool := range []string{"exec", "bash"} {
		if res := b.run(tool, object{"command": "echo ran"}); res.Output != "ran\n" {
			t.Errorf("%s: %+v", tool, res)
		}
	}
	b.cfg.Env = []string{"PATH=" + b.dir}
	if res := b.run("bash", object{"command": "true"}); res.Success || !strings.Contains(res.Error, "no bash") {
		t.Errorf("%+v", res)
	}
}

// A program knows what it must of its environment, and nothing of the gateway's.
func TestEnvironmentIsEmpty(t *testing.T) {
	t.Setenv("FARHAND_TOKEN", "secret")
	b := newBench(t)
	b.cfg.Env = []string{"TZ=Europe/Vienna"}
	lines := strings.Split(strings.TrimSpace(b.run("exec", object{"command": "env"}).Output), "\n")
	var names []string
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"HOME", "LANG", "PATH", "PWD", "TMPDIR", "TZ"}; !slices.Equal(slices.DeleteFunc(names,
		func(n string) bool { return n == "_" || n == "SHLVL" || n == "OLDPWD" }), want) {
		t.Errorf("%q", lines)
	}
}

func TestBadArguments(t *testing.T) {
	b := newBench(t)
	if err := os.Symlink("/etc", filepath.Join(b.dir, "etc")); err != nil {
		t.Fatal(err)
	}
	for _, args := range []object{
		{}, {"command": ""}, {"command": " \n"}, {"command": 1}, {"command": "ls\x00"}, {"command": "true", "x": 1},
		{"command": strings.Repeat("x", 64<<10+1)}, {"command": "true", "timeout": 0}, {"command": "true",
			"timeout": 1.5},
		{"command": "true", "timeout": 1e9}, {"command": "true", "security": "none"},
		{"command": "true", "workdir": ".."}, {"command": "true", "workdir": "/"}, {"command": "true",
			"workdir": "a/../.."},
		{"command": "true", "workdir": "~"}, {"command": "true", "workdir": "a\nb"},
		{"command": "true", "env": object{"A=B": "x"}}, {"command": "true", "env": object{"": "x"}},
		{"command": "true", "env": object{"A": "x\x00"}}, {"command": "true", "env": object{"A": 1}},
	} {
		if res, err := b.try(t.Context(), "exec", args); err == nil || errors.Is(err, registry.CodePolicyDenied) {
			t.Errorf("%.100v: %+v, %v", args, res, err)
		}
	}
	for _, dir := range []string{"nothing", "etc"} {
		if res := b.run("exec", object{"command": "pwd", "workdir": dir}); res.Success ||
			!strings.Contains(res.Error, "no folder") {
			t.Errorf("%s: %+v", dir, res)
		}
	}
}

func TestModes(t *testing.T) {
	b := newBench(t)
	b.decision.Programs.Allow = []string{"echo"}
	for name, tt := range map[string]struct {
		policy   policy.Security
		argument string
		command  string
		runs     bool
	}{
		"full":             {policy.Full, "", "echo $HOME", true},
		"full, asked":      {policy.Full, "full", "echo $HOME", true},
		"asked stricter":   {policy.Full, "allowlist", "echo $HOME", false},
		"listed":           {policy.Full, "allowlist", "echo ok", true},
		"asked to deny":    {policy.Full, "deny", "echo ok", false},
		"allowlist":        {policy.Allowlist, "", "echo ok", true},
		"not listed":       {policy.Allowlist, "", "ls", false},
		"asked for more":   {policy.Allowlist, "full", "ls", false},
		"deny":             {policy.Deny, "", "echo ok", false},
		"deny, asked":      {policy.Deny, "full", "echo ok", false},
		"nothing is said":  {"", "", "ls", false},
		"nothing but list": {"", "full", "echo ok", true},
		"not a mode":       {"all", "full", "echo ok", false},
	} {
		b.decision.Programs.Security = tt.policy
		args := object{"command": tt.command}
		if tt.argument != "" {
			args["security"] = tt.argument
		}
		res, err := b.try(t.Context(), "exec", args)
		if tt.runs != (err == nil && res.Success) || !tt.runs && !errors.Is(err, registry.CodePolicyDenied) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		text, _ := json.Marshal(args)
		if res, err := b.tool("exec").Execute(called{t.Context(), b}, text); tt.runs != (err == nil && res.Success) {
			t.Errorf("%s, not validated: %+v, %v", name, res, err)
		}
	}
}

// fakeEngine answers for an engine that is far away.
type fakeEngine struct {
	name string
	err  error
	mu   sync.Mutex
	got  []sandbox.Command
}

func (e *fakeEngine) Name() string { return e.name }
func (e *fakeEngine) Run(_ context.Context, _ sandbox.Workspace, c sandbox.Command) (sandbox.Exit, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, c)
	_, _ = c.Stdout.Write([]byte(e.name))
	return sandbox.Exit{}, e.err
}
func (*fakeEngine) Release(context.Context, sandbox.Workspace) error { return nil }
func (*fakeEngine) Close(context.Context) error                      { return nil }

func TestWhichEngineRuns(t *testing.T) {
	b := newBench(t)
	onHost, inside := &fakeEngine{name: "host"}, &fakeEngine{name: "docker"}
	for name, tt := range map[string]struct {
		host, sandbox      sandbox.Engine
		context, byPolicy  bool
		want               string
		offered, available bool
	}{
		"main":               {onHost, inside, false, false, "host", true, true},
		"sandboxed":          {onHost, inside, true, false, "docker", true, true},
		"by policy":          {onHost, inside, false, true, "docker", true, true},
		"no sandbox":         {onHost, nil, true, false, "", false, false},
		"no sandbox, main":   {onHost, nil, false, false, "host", true, true},
		"no sandbox, policy": {onHost, nil, false, true, "", true, false},
		"no host":            {nil, inside, false, false, "", false, false},
		"no host, sandboxed": {nil, inside, true, false, "docker", true, true},
		"nothing":            {nil, nil, false, false, "", false, false},
	} {
		b.cfg = shell.Config{Host: tt.host, Sandbox: tt.sandbox, NoHost: "No host here.", NoSandbox: "No Docker here."}
		b.sc.Sandboxed, b.decision.Programs.Sandboxed = tt.context, tt.byPolicy
		if why := b.tool("exec").(agent.UnavailableTool).Unavailable(); (why == "") != tt.offered ||
			why != "" && !strings.HasSuffix(why, " here.") {
			t.Errorf("%s: offered: %q", name, why)
		}
		res, err := b.try(t.Context(), "exec", object{"command": "true"})
		missing := map[bool]string{true: "No Docker", false: "No host"}[tt.context || tt.byPolicy]
		if res.Output != tt.want || (err == nil) != tt.available ||
			err != nil && !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	if env := strings.Join(inside.got[0].Env, " "); strings.Contains(env, b.dir) {
		t.Errorf("a container is told of a folder of the host: %s", env)
	}
}

func TestFailingEngines(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		err       error
		says      string
		code      registry.Code
		asElevate bool
	}{
		{fmt.Errorf("%w: gone", sandbox.ErrUnavailable), "Retry", registry.CodeBusy, false},
		{sandbox.ErrNotElevated, "elevated", "", true},
		{errors.New("broken"), "", registry.CodeInternal, false},
	} {
		b.cfg = shell.Config{Host: &fakeEngine{name: "host", err: tt.err}}
		b.decision.Programs.Elevated = true
		res, err := b.try(t.Context(), "exec", object{"command": "true", "elevated": tt.asElevate})
		if tt.code != "" && registry.AsError(err).Code != tt.code || tt.code == "" && (err != nil || res.Success) ||
			!strings.Contains(res.Error+registry.AsError(errors.Join(err, errors.New(""))).Message, tt.says) {
			t.Errorf("%v: %+v, %v", tt.err, res, err)
		}
	}
}

func TestElevated(t *testing.T) {
	b := newBench(t)
	engine := &fakeEngine{name: "host"}
	b.cfg = shell.Config{Host: engine, Sandbox: engine}
	elevated := object{"command": "true", "elevated": true}
	if _, err := b.try(t.Context(), "exec", elevated); !errors.Is(err, registry.CodePolicyDenied) {
		t.Errorf("without policy: %v", err)
	}
	b.decision.Programs.Elevated = true
	if res := b.run("exec", elevated); !res.Success || !engine.got[0].Elevated {
		t.Errorf("%+v", res)
	}
	for _, set := range []func(){
		func() { b.decision.Programs.Sandboxed = true },
		func() { b.decision.Programs.Sandboxed, b.sc.Sandboxed = false, true },
	} {
		set()
		if _, err := b.try(t.Context(), "exec", elevated); !errors.Is(err, registry.CodePolicyDenied) {
			t.Errorf("in the sandbox: %v", err)
		}
	}
	for args, want := range map[string]bool{
		`{"command":"true","elevated":true}`: true, `{"command":"true","elevated":false}`: false,
		`{"command":"x"}`: false,
	} {
		if why, demanded := b.tool("bash").(agent.ApprovalChecker).NeedsApproval([]byte(args)); demanded != want ||
			demanded != (why != "") {
			t.Errorf("%s: %q, %v", args, why, demanded)
		}
	}
}

func TestVariablesOfCalls(t *testing.T) {
	b := newBench(t)
	b.cfg.EnvNames = []string{"TZ", "DEBUG"}
	b.decision.Programs = policy.Programs{Security: policy.Allowlist, Allow: []string{"date", "printenv"}}
	if res := b.run("exec", object{"command": "printenv TZ",
		"env": object{"TZ": "Asia/Tokyo"}}); res.Output != "Asia/Tokyo\n" {
		t.Errorf("%+v", res)
	}
	for _, name := range []string{
		"PATH", "path", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "IFS", "PS4", "SHELLOPTS", "BASH_FUNC_ls%%",
		"PYTHONPATH", "GIT_SSH_COMMAND", "PAGER", "GIT_PAGER", "EDITOR", "NODE_OPTIONS", "TAR_OPTIONS", "LESSOPEN",
		"PERL5OPT", "HOME", "PROMPT_COMMAND", "OTHER",
	} {
		_, err := b.try(t.Context(), "exec", object{"command": "date", "env": object{name: "x"}})
		if err == nil {
			t.Errorf("%s may be set", name)
		}
	}
	for _, bad := range []shell.Config{
		{EnvNames: []string{"LD_PRELOAD"}}, {EnvNames: []string{"bash_env"}}, {EnvNames: []string{"A B"}},
		{Env: []string{"A"}}, {Env: []string{"=x"}}, {Env: []string{"A=x\x00"}},
	} {
		if _, err := shell.Registration(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	b.decision.Programs.Security = policy.Full
	if res := b.run("exec", object{"command": "echo $PAGER", "env": object{"PAGER": "x"}}); res.Output != "x\n" {
		t.Errorf("full: %+v", res)
	}
}
