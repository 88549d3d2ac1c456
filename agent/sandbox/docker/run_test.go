package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

const owner = 12345 // of the workspaces

// plainEnv is the environment of most commands.
var plainEnv = []string{"PATH=/bin"}

// fixture is an engine and a workspace.
type fixture struct {
	t      *testing.T
	engine *Engine
	space  sandbox.Workspace
	nap    string // a sleep too long to end by itself, unlike those of other tests
}

// naps begin with the id of this process.
func naps() string { return fmt.Sprintf("sleep %d", 1000000+os.Getpid()) }

func setUp(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	needEngine(t)
	cfg := Config{Host: shared.Host(), Image: dockertest.Image, Pod: "test", Memory: 64 << 20, Processes: 30}
	for _, f := range change {
		f(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	nap := fmt.Sprintf("%s%04d", naps(), shared.setUps.Add(1))
	return &fixture{t: t, engine: e, space: workspace(t, t.Name()), nap: nap}
}

func workspace(t *testing.T, id string) sandbox.Workspace {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ws")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, owner, owner); err != nil {
		t.Fatal(err)
	}
	return sandbox.Workspace{ID: strings.ReplaceAll(id, "/", ""), Dir: dir, UID: owner, GID: owner}
}

// script is the command of a shell script.
func script(text string) sandbox.Command {
	return sandbox.Command{Args: []string{"sh", "-c", text}, Env: plainEnv}
}

// run runs a command and returns what it wrote to both.
func (f *fixture) run(ctx context.Context, c sandbox.Command) (stdout, stderr string, exit sandbox.Exit, err error) {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	exit, err = f.engine.Run(ctx, f.space, c)
	return out.String(), errs.String(), exit, err
}

// sh runs a script that succeeds and returns its output.
func (f *fixture) sh(text string) string {
	f.t.Helper()
	out, errs, exit, err := f.run(f.t.Context(), script(text))
	if err != nil || exit.Code != 0 {
		f.t.Fatalf("%s: %+v, %v\n%s%s", text, exit, err, out, errs)
	}
	return strings.TrimSpace(out)
}

func TestRunTellsOutputAndExit(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	out, errs, exit, err := f.run(t.Context(), sandbox.Command{
		Args: []string{"sh", "-c", "echo out; echo err >&2; id -u; pwd; exit 7"}, Env: plainEnv,
	})
	if err != nil || exit.Code != 7 || exit.Signal != "" || exit.Duration <= 0 {
		t.Errorf("exit: %+v, %v", exit, err)
	}
	if out != "out\n12345\n/workspace\n" || errs != "err\n" {
		t.Errorf("stdout %q, stderr %q", out, errs)
	}
	_, _, exit, err = f.run(t.Context(), script("kill -TERM $$"))
	if err != nil || exit.Code != 143 || exit.Signal != "terminated" {
		t.Errorf("by a signal: %+v, %v", exit, err)
	}
}

// A program may close its output and go on.
func TestRunWaitsForThoseThatSayNoMore(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, _, exit, err := f.run(t.Context(), script("exec >&- 2>&-; sleep 1.5; touch /workspace/done; exit 3"))
	if err != nil || exit.Code != 3 {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := os.Stat(filepath.Join(f.space.Dir, "done")); err != nil {
		t.Error(err)
	}
}

func TestRunTellsMissingPrograms(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	if err := os.WriteFile(filepath.Join(f.space.Dir, "plain"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"no-such"}, {"/bin/no-such"}, {"./plain"}, {"/bin"}, {""}, nil} {
		out, errs, _, err := f.run(t.Context(), sandbox.Command{Args: args, Env: plainEnv})
		if !errors.Is(err, sandbox.ErrNoProgram) || out+errs != "" {
			t.Errorf("%q: %v, output %q", args, err, out+errs)
		}
	}
	// A program may say what the engine says.
	said := "OCI runtime exec failed: exec failed: executable file not found"
	echo := []string{"sh", "-c", "echo '" + said + "'; exit 127"}
	out, _, exit, err := f.run(t.Context(), sandbox.Command{Args: echo, Env: plainEnv})
	if err != nil || exit.Code != 127 || out != said+"\n" {
		t.Errorf("%q, %+v, %v", out, exit, err)
	}
}
