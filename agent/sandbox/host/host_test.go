//go:build linux

package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/internal/testkit"
)

// self is what Main returned to TestMain.
var self host.Program

// TestMain runs the tests, or in their place a gateway or an attacker that one of them started.
func TestMain(m *testing.M) {
	if os.Getenv(mainMark) != "" {
		os.Exit(ownMain())
	}
	self = host.Main()
	switch {
	case os.Getenv(gatewayMark) != "":
		syscall.Exit(gatewayMain())
	case len(os.Args) > 2 && os.Args[1] == attackMark:
		syscall.Exit(attackMain(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

// nobody is who runs the programs of tests if these run as root.
const nobody = 65534

// path is the environment of programs in tests that need no other.
var path = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}

func newEngine(t testing.TB, c host.Config) *host.Engine {
	t.Helper()
	c.Program = self
	e, err := host.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// engines calls f for each form of the engine that this machine has.
func engines(t *testing.T, f func(t *testing.T, e *host.Engine)) {
	for _, c := range []host.Config{{}, {Landlock: true}} {
		name := host.Name
		if c.Landlock {
			name = host.NameLandlock
		}
		t.Run(name, func(t *testing.T) {
			if c.Landlock {
				needLandlock(t)
			}
			f(t, newEngine(t, c))
		})
	}
}

func needLandlock(t testing.TB) {
	t.Helper()
	if err := host.Probe(); err != nil {
		t.Skipf("programs cannot be confined here: %v", err)
	}
}

// newWorkspace returns a workspace whose user may reach it.
func newWorkspace(t testing.TB) sandbox.Workspace {
	t.Helper()
	dir := t.TempDir()
	w := sandbox.Workspace{ID: "test", Dir: dir, UID: os.Geteuid(), GID: os.Getegid()}
	if w.UID == 0 {
		w.UID, w.GID = nobody, nobody
		if err := os.Chown(dir, w.UID, w.GID); err != nil {
			t.Fatal(err)
		}
		for d := filepath.Dir(dir); len(d) > len(os.TempDir()); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

// put writes a file that programs in the workspace may execute.
func put(t testing.TB, w sandbox.Workspace, name, content string) {
	t.Helper()
	file := filepath.Join(w.Dir, name)
	if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Lchown(file, w.UID, w.GID); err != nil {
		t.Fatal(err)
	}
}

// result is what a command did.
type result struct {
	sandbox.Exit
	out, err string
}

func run(t testing.TB, e *host.Engine, w sandbox.Workspace, c sandbox.Command) result {
	t.Helper()
	r, err := try(t, e, w, c)
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	return r
}

func try(t testing.TB, e *host.Engine, w sandbox.Workspace, c sandbox.Command) (result, error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if c.Env == nil {
		c.Env = path
	}
	exit, err := e.Run(deadline(t), w, c)
	return result{exit, stdout.String(), stderr.String()}, err
}

// deadline returns a context that ends with the test, or before the test hangs.
func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func shell(script string, args ...string) sandbox.Command {
	return sandbox.Command{Args: append([]string{"sh", "-c", script}, args...)}
}

func TestExits(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		for script, want := range map[string]result{
			"echo out; echo err >&2":       {out: "out\n", err: "err\n"},
			"echo again >/dev/stderr":      {err: "again\n"},
			"exit 7":                       {Exit: sandbox.Exit{Code: 7}},
			"kill -TERM $$":                {Exit: sandbox.Exit{Code: 143, Signal: "terminated"}},
			"kill -9 $$":                   {Exit: sandbox.Exit{Code: 137, Signal: "killed"}},
			"cat":                          {}, // there is no input
			"umask 0; echo x > a; cat ./a": {out: "x\n"},
			"echo y > $TMPDIR/b && cat $TMPDIR/b && pwd | grep -c tmp-": {Exit: sandbox.Exit{Code: 1}, out: "y\n0\n"},
		} {
			got := run(t, e, w, shell(script))
			if got.Duration <= 0 || got.Duration > 10*time.Second {
				t.Errorf("%s: took %v", script, got.Duration)
			}
			got.Duration = 0
			if got != want {
				t.Errorf("%s: %+v, not %+v", script, got, want)
			}
		}
	})
}

func TestPrograms(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		put(t, w, "own", "#!/bin/sh\necho own $1\n")
		put(t, w, "text", "no program\n")
		for _, c := range []sandbox.Command{
			{Args: []string{"own", "a"}, Env: []string{"PATH=/nowhere", "PATH=/usr/bin::" + w.Dir}},
			{Args: []string{"./own", "a"}, Env: []string{}},
			{Args: []string{filepath.Join(w.Dir, "own"), "a"}},
		} {
			if got := run(t, e, w, c); got.out != "own a\n" {
				t.Errorf("%q: %+v", c.Args, got)
			}
		}
		for _, c := range []sandbox.Command{
			{}, {Args: []string{""}}, {Args: []string{"no-such-program"}}, {Args: []string{"./no-such-program"}},
			{Args: []string{"true"}, Env: []string{"A=b"}}, {Args: []string{"own"}, Env: []string{"PATH=.:"}},
			{Args: []string{"/usr"}}, {Args: []string{"./text"}}, {Args: []string{"/etc/hostname"}},
			{Args: []string{"./" + strings.Repeat("x", 5000)}}, {Args: []string{"/etc/hostname/x"}},
		} {
			if _, err := try(t, e, w, c); !errors.Is(err, sandbox.ErrNoProgram) {
				t.Errorf("%.50q: %v", c.Args, err)
			}
		}
		if _, err := try(t, e, w, sandbox.Command{Args: []string{"true", strings.Repeat("x", 1<<20)}}); err == nil {
			t.Error("an argument of 1 MiB was taken")
		}
	})
}

func TestEnvironment(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		got := run(t, e, w, sandbox.Command{Args: []string{"/usr/bin/env"}, Env: []string{"A=b", "TMPDIR=/tmp"}})
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		if len(lines) != 2 || lines[0] != "A=b" || !strings.HasPrefix(lines[1], "TMPDIR="+w.Dir+"/.tmp-") {
			t.Errorf("the environment is %q", lines)
		}
		// The shell itself opens nothing; what else there is was inherited.
		got = run(t, e, w, shell(`for fd in 0 1 2 3 4 5 6 7 8 9; do (eval "true <&$fd") 2>/dev/null && echo $fd; done`))
		if got.out != "0\n1\n2\n" {
			t.Errorf("open files: %q", got.out)
		}
	})
}

// What a command leaves in its folder for temporary files is gone before the next one.
func TestTemporaryFiles(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		put(t, w, "kept", "")
		for _, script := range []string{
			"mkdir -p $TMPDIR/a/b; echo x > $TMPDIR/a/b/c; chmod 0 $TMPDIR/a/b $TMPDIR/a",
			"rmdir $TMPDIR && ln -s $PWD $TMPDIR", "rmdir $TMPDIR && echo x > $TMPDIR",
			"rmdir $TMPDIR", "chmod 0 $TMPDIR",
		} {
			if got := run(t, e, w, shell(script)); got.Code != 0 {
				t.Errorf("%s: %+v", script, got)
			}
			if got := run(t, e, w, shell("ls -A $TMPDIR; echo x > $TMPDIR/x")); got.Code != 0 || got.out != "" {
				t.Errorf("after %s: %+v", script, got)
			}
		}
		if err := e.Release(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if got := names(t, w.Dir); len(got) != 1 || got[0] != "kept" {
			t.Errorf("the workspace has %q", got)
		}
	})
}

// names returns what is in a folder.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.Name()
	}
	return list
}

func TestFolders(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		put(t, w, "file", "")
		for _, err := range []error{
			os.MkdirAll(filepath.Join(w.Dir, "a", "b"), 0o755), os.Symlink("a/b", filepath.Join(w.Dir, "in")),
			os.Symlink("/usr", filepath.Join(w.Dir, "out")), os.Symlink("../..", filepath.Join(w.Dir, "up")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for dir, want := range map[string]string{
			"": "", ".": "", "a": "/a", "a/b/": "/a/b", "in": "/a/b", "a/../a": "/a",
		} {
			c := shell("pwd -P")
			c.Dir = dir
			if got := run(t, e, w, c); got.out != w.Dir+want+"\n" {
				t.Errorf("%q: %+v", dir, got)
			}
		}
		for _, dir := range []string{
			"..", "a/../..", "/usr", w.Dir, "out", "up", "out/bin", "in/../../..", "file", "none", "\x00",
		} {
			c := shell("pwd -P")
			c.Dir = dir
			if got, err := try(t, e, w, c); err == nil || got.out != "" {
				t.Errorf("%q: %+v", dir, got)
			}
		}
	})
}

func TestWorkspaces(t *testing.T) {
	e, w := newEngine(t, host.Config{}), newWorkspace(t)
	for _, change := range []func(*sandbox.Workspace){
		func(w *sandbox.Workspace) { w.Dir += "-none" },
		func(w *sandbox.Workspace) { // root's, or somebody else's whom this process cannot become
			w.UID = 0
			if os.Geteuid() != 0 {
				w.UID = os.Geteuid() + 1
			}
		},
	} {
		other := w
		change(&other)
		if _, err := try(t, e, other, shell("true")); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}
