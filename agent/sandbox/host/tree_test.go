//go:build linux

package host_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
)

// escapes are scripts that try to leave something behind. $0 is the mark of their processes. Each says "ready" when it
// has done what it can.
var escapes = map[string]string{
	"background": `sleep 1000 & exec sh -c 'sleep 1000 & echo ready; '"$END" "$0"`,
	"nohup":      `nohup sh -c 'sleep 1000' $0 >/dev/null 2>&1 & echo ready; eval "$END"`,
	"setsid":     `setsid sh -c 'sleep 1000; true' $0 & echo ready; eval "$END"`,
	"double fork": `(setsid sh -c '(setsid sh -c "sleep 1000; true" $0 & ) ' $0 & )
		echo ready; eval "$END"`,
	"daemon without files": `setsid sh -c 'exec </dev/null >/dev/null 2>&1 3>&-; cd /
		sh -c "sleep 1000; true" $0 & ' $0
		echo ready; eval "$END"`,
	"ignores signals": `trap '' TERM INT HUP QUIT; setsid sh -c 'trap "" TERM INT HUP; while :; do sleep 1; done' $0 &
		echo ready; eval "$END"`,
	"moves on":     `setsid sh ./chase.sh $0 & echo ready; eval "$END"`,
	"a deep chain": `setsid sh ./chain.sh 30 $0 & echo ready; eval "$END"`,
	"many": `for i in 1 2 3 4 5 6 7 8 9 10; do for j in 1 2 3 4; do sleep 1000 & done; done
		echo ready; eval "$END"`,
	"without an environment": `env -i PATH=$PATH setsid sh -c 'sleep 1000; true' $0 & echo ready; eval "$END"`,
}

// ends are how a command of escapes goes on after it is ready: it ends by itself, or has to be killed.
var ends = []string{"exit 3", "while :; do sleep 1000; done"}

func TestNothingIsLeft(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		put(t, w, "chase.sh", "setsid sh ./chase.sh $1 &\nexit 0\n")
		put(t, w, "chain.sh", "[ $1 -gt 0 ] && setsid sh ./chain.sh $(($1-1)) $2 &\nsleep 1000\n")
		for name, script := range escapes {
			for _, end := range ends {
				t.Run(name+", "+end[:5], func(t *testing.T) {
					mark := rand.Text()
					c := shell(script, mark)
					c.Env = append([]string{"END=" + end, "MARK=" + mark}, path...)
					ctx, cancel := context.WithCancelCause(deadline(t))
					defer cancel(nil)
					enough := errors.New("enough")
					if end != ends[0] {
						c.Stdout = &onText{text: "ready", do: func() { cancel(enough) }}
					}
					exit, err := e.Run(ctx, w, c)
					if end == ends[0] && (err != nil || exit.Code != 3) || end != ends[0] && !errors.Is(err, enough) {
						t.Errorf("%+v, %v", exit, err)
					}
					if left := marked(t, mark); len(left) > 0 {
						t.Errorf("still there: %q", left)
					}
				})
			}
		}
	})
}

// onText calls do once when a text was written to it.
type onText struct {
	text string
	do   func()
	once sync.Once
	all  bytes.Buffer
}

func (w *onText) Write(p []byte) (int, error) {
	w.all.Write(p)
	if strings.Contains(w.all.String(), w.text) {
		w.once.Do(w.do)
	}
	return len(p), nil
}

// marked returns the command lines of living processes that have a mark in it or in their environment.
func marked(t testing.TB, mark string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // none: it has ended
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if bytes.Contains(line, []byte(mark)) || bytes.Contains(env, []byte(mark)) {
			found = append(found, string(line))
		}
	}
	return found
}

func TestForkBombs(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		// Shells that cannot fork give up, so those that could must stay until they are killed.
		put(t, w, "bomb.sh", "setsid sh ./bomb.sh $1 & setsid sh ./bomb.sh $1 & exec sleep 60\n")
		for _, script := range []string{"b() { b | b & }; b; wait", "sh ./bomb.sh $0"} {
			mark := rand.Text()
			c := shell(script, mark)
			c.Env = append([]string{"MARK=" + mark}, path...)
			c.Limits = sandbox.Limits{Processes: 50, Memory: 256 << 20}
			start := time.Now()
			got := run(t, e, w, c) // the first one may burn out by itself, at the limit of its user
			if script[0] == 's' && got.Signal != "killed" {
				t.Errorf("%s: %+v", script, got.Exit)
			}
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("%d are left", len(left))
			}
			t.Logf("over after %v", time.Since(start))
		}
	})
}

// counter counts what is written to it. After limit bytes it fails.
type counter struct {
	n, limit int64
	err      error
}

func (c *counter) Write(p []byte) (int, error) {
	if c.n += int64(len(p)); c.limit > 0 && c.n > c.limit {
		return 0, c.err
	}
	return len(p), nil
}

func TestFloodOfOutput(t *testing.T) {
	e, w := newEngine(t, host.Config{}), newWorkspace(t)
	var stdout, stderr counter
	const size = 1 << 30
	c := shell("head -c 1073741824 /dev/zero & head -c 1048576 /dev/zero >&2; wait")
	c.Env, c.Stdout, c.Stderr = path, &stdout, &stderr
	if exit, err := e.Run(deadline(t), w, c); err != nil || exit.Code != 0 || stdout.n != size || stderr.n != 1<<20 {
		t.Errorf("%+v, %v; %d and %d bytes", exit, err, stdout.n, stderr.n)
	}
}

func TestAnErrorOfAWriterEndsTheCommand(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w, full := newWorkspace(t), errors.New("enough of it")
		for _, script := range []string{"yes", "yes >&2", "setsid yes & sleep 1000"} {
			mark := rand.Text()
			c := shell(script, mark)
			c.Env = append([]string{"MARK=" + mark}, path...)
			c.Stdout, c.Stderr = &counter{limit: 1 << 20, err: full}, &counter{limit: 1 << 20, err: full}
			if _, err := e.Run(deadline(t), w, c); !errors.Is(err, full) {
				t.Errorf("%s: %v", script, err)
			}
			if left := marked(t, mark); len(left) > 0 {
				t.Errorf("%s: left are %q", script, left)
			}
		}
	})
}

func TestDeadline(t *testing.T) {
	e, w := newEngine(t, host.Config{}), newWorkspace(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := shell("trap '' TERM; while :; do sleep 1000; done")
	c.Env, c.Stdout = path, io.Discard
	if _, err := e.Run(ctx, w, c); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if _, err := e.Run(ctx, w, c); !errors.Is(err, context.DeadlineExceeded) { // that has passed before
		t.Error(err)
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w, ready := newWorkspace(t), make(chan struct{})
		mark := rand.Text()
		c := shell("setsid sleep 1000 & echo ready; sleep 1000", mark)
		c.Env = append([]string{"MARK=" + mark}, path...)
		c.Stdout = &onText{text: "ready", do: func() { close(ready) }}
		ended := make(chan error)
		go func() {
			_, err := e.Run(deadline(t), w, c)
			ended <- err
		}()
		<-ready
		if err := e.Close(deadline(t)); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, sandbox.ErrUnavailable) {
			t.Error(err)
		}
		if left := marked(t, mark); len(left) > 0 {
			t.Errorf("left are %q", left)
		}
		if left := names(t, w.Dir); len(left) > 0 {
			t.Errorf("in the workspace: %q", left)
		}
		if _, err := e.Run(deadline(t), w, c); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Error(err)
		}
	})
}
