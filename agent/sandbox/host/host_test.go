//go:build linux

package host_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nobody is who runs the programs of tests if these run as root.
const nobody = 65534

var path = []string{"PATH=/usr/local/bin:/usr/bin:/bin"}

func newEngine(t testing.TB, c host.Config) *host.Engine {
	t.Helper()
	e, err := host.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return e
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

// result is what a command did.
type result struct {
	sandbox.Exit
	out, err string
}

func run(t testing.TB, e *host.Engine, w sandbox.Workspace, c sandbox.Command) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if c.Env == nil {
		c.Env = path
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	exit, err := e.Run(ctx, w, c)
	if err != nil {
		t.Fatalf("%q: %v", c.Args, err)
	}
	return result{exit, stdout.String(), stderr.String()}
}

func shell(script string) sandbox.Command { return sandbox.Command{Args: []string{"sh", "-c", script}} }

func TestExits(t *testing.T) {
	e, w := newEngine(t, host.Config{}), newWorkspace(t)
	for script, want := range map[string]result{
		"echo out; echo err >&2":       {out: "out\n", err: "err\n"},
		"echo again >/dev/stderr":      {err: "again\n"},
		"exit 7":                       {Exit: sandbox.Exit{Code: 7}},
		"kill -TERM $$":                {Exit: sandbox.Exit{Code: 143, Signal: "terminated"}},
		"kill -9 $$":                   {Exit: sandbox.Exit{Code: 137, Signal: "killed"}},
		"cat":                          {}, // there is no input
		"umask 0; echo x > a; cat ./a": {out: "x\n"},
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
}

func TestKillsWhatIsLeft(t *testing.T) {
	e, w := newEngine(t, host.Config{}), newWorkspace(t)
	got := run(t, e, w, shell("setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo $$"))
	if got.Code != 0 {
		t.Fatal(got)
	}
	out, _ := exec.Command("pgrep", "-x", "sleep", "-a").Output()
	if strings.Contains(string(out), "1000") {
		t.Fatal(string(out))
	}
}

func BenchmarkTrue(b *testing.B) {
	e, w := newEngine(b, host.Config{}), newWorkspace(b)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			cmd := exec.Command("/usr/bin/true")
			var out, err bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &err
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("engine", func(b *testing.B) {
		for b.Loop() {
			run(b, e, w, sandbox.Command{Args: []string{"/usr/bin/true"}, Limits: sandbox.Limits{Memory: 1 << 30, Processes: 64, CPU: time.Minute, FileSize: 1 << 30}})
		}
	})
}
