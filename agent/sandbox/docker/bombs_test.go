package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
)

// processes returns those on this machine whose arguments have text in them.
func processes(text string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		args, _ := os.ReadFile(file)
		args = bytes.ReplaceAll(args, []byte{0}, []byte{' '})
		if bytes.Contains(args, []byte(text)) && !strings.HasPrefix(file, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			found = append(found, string(args))
		}
	}
	return found
}

// Whatever a command does to get away, nothing of it is there after Run.
func TestNothingOutlivesACommand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		ends   bool // by itself
	}{
		"background":          {"NAP &", true},
		"own session":         {"setsid NAP >/dev/null 2>&1 &", true},
		"double fork":         {"(setsid sh -c '(NAP </dev/null >/dev/null 2>&1 &) &' &) &", true},
		"kills its parent":    {"NAP & kill -9 $$", true},
		"foreground":          {"NAP", false},
		"ignores signals":     {"trap '' TERM INT HUP QUIT; while :; do NAP; done", false},
		"children ignore too": {"trap '' TERM; (trap '' TERM; setsid NAP) & NAP; NAP", false},
		"stopped":             {"setsid NAP & kill -STOP $$", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			bound := 30 * time.Second
			if !c.ends {
				bound = 300 * time.Millisecond
				f.sh("true") // which makes the container
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), bound, errLate)
			defer cancel()
			_, _, exit, err := f.run(ctx, script(strings.ReplaceAll(c.script, "NAP", f.nap)))
			if c.ends && err != nil || !c.ends && err != errLate {
				t.Errorf("%+v, %v", exit, err)
			}
			if left := processes(f.nap); left != nil {
				t.Errorf("left %q", left)
			}
		})
	}
}

var errLate = errors.New("the time of the command is over")

func TestForkBomb(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, bomb := range []string{
		"bomb() { bomb | bomb & }; bomb",
		"bomb() { bomb | bomb & }; bomb; while :; do bomb; done",
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, errLate)
		_, _, _, err := f.run(ctx, sandbox.Command{Args: []string{"sh", "-c", bomb, "forkbomb"}, Env: plainEnv})
		cancel()
		if err != nil && err != errLate {
			t.Error(err)
		}
		if left := processes("forkbomb"); left != nil {
			t.Errorf("left %d processes", len(left))
		}
	}
	if out := f.sh("echo fine"); out != "fine" {
		t.Errorf("afterwards: %q", out)
	}
}

func TestMemoryBomb(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, _, exit, err := f.run(t.Context(), sandbox.Command{Args: []string{"tail", "/dev/zero"}, Env: plainEnv})
	if err != nil || exit.Signal != "killed" {
		t.Errorf("%+v, %v", exit, err)
	}
	if out := f.sh("echo fine"); out != "fine" {
		t.Errorf("afterwards: %q", out)
	}
}

func TestDisksOfMemoryAreBounded(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *Config) { c.Tmp = 4 << 20 })
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		text := "dd if=/dev/zero of=" + dir + "/file bs=1M count=64"
		_, errs, exit, err := f.run(t.Context(), script(text))
		if err != nil || exit.Code == 0 || !strings.Contains(errs, "No space left") {
			t.Errorf("%s: %+v, %v: %s", dir, exit, err, errs)
		}
		if size := f.sh("stat -c %s " + dir + "/file"); size != "4194304" {
			t.Errorf("%s has a file of %s bytes", dir, size)
		}
	}
	text := "i=0; while [ $i -lt 30000 ]; do : > /tmp/$i || exit 1; i=$((i+1)); done"
	_, errs, exit, err := f.run(t.Context(), script(text))
	if err != nil || exit.Code == 0 || !strings.Contains(errs, "No space left") {
		t.Errorf("files: %+v, %v: %s", exit, err, errs)
	}
}

func TestLimitsOfACommand(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	l := sandbox.Limits{Memory: 32 << 20, Processes: 12, CPU: time.Second, FileSize: 1 << 20}
	out, errs, exit, err := f.run(t.Context(), sandbox.Command{
		Args: []string{"sh", "-c", "dd if=/dev/zero of=/workspace/f bs=1M count=2; stat -c %s /workspace/f; " +
			"ulimit -c; ulimit -n; ulimit -t; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max; " +
			"cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes"},
		Env: plainEnv, Limits: l,
	})
	if want := "1048576\n0\n1024\n1\n16\n33554432\n"; err != nil || out != want {
		t.Errorf("%+v, %v: %q, not %q\n%s", exit, err, out, want, errs)
	}
	forever := script("while :; do :; done")
	forever.Limits = l
	_, _, exit, err = f.run(t.Context(), forever)
	if err != nil || exit.Signal != "killed" {
		t.Errorf("a second of CPU: %+v, %v", exit, err)
	}
	// Without limits of its own it has those of the engine.
	out = f.sh("cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null; ulimit -f")
	if out != "34\nunlimited" {
		t.Errorf("limits of the engine: %q", out)
	}
}

// count counts what is written, and remembers how much memory was in use.
type count struct {
	n    int64
	heap uint64
}

func (c *count) Write(p []byte) (int, error) {
	if c.n>>26 != (c.n+int64(len(p)))>>26 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.heap = max(c.heap, m.HeapAlloc)
	}
	c.n += int64(len(p))
	return len(p), nil
}

func TestOutputFlood(t *testing.T) {
	f := setUp(t)
	f.sh("true")
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	out := new(count)
	exit, err := f.engine.Run(t.Context(), f.space, sandbox.Command{
		Args: []string{"dd", "if=/dev/zero", "bs=1M", "count=1024"}, Env: plainEnv, Stdout: out, Stderr: io.Discard,
	})
	if err != nil || exit.Code != 0 || out.n != 1<<30 {
		t.Errorf("%d bytes: %+v, %v", out.n, exit, err)
	}
	if grown := int64(out.heap) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("1 GB of output took %d MB of memory", grown>>20)
	}
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestAWriterThatFailsEndsTheCommand(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.engine.Run(t.Context(), f.space, sandbox.Command{
		Args: []string{"sh", "-c", "while :; do echo flood; done"}, Env: plainEnv, Stdout: full{}, Stderr: io.Discard,
	})
	if !errors.Is(err, errFull) || errors.Is(err, sandbox.ErrUnavailable) {
		t.Error(err)
	}
	if left := processes("echo flood"); left != nil {
		t.Errorf("left %q", left)
	}
}
