//go:build linux

package host_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
	"github.com/farhand/farhand/agent/sandbox/workspace/limittest"
)

func TestRights(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		who := shell("id -u; id -g; id -G")
		id := strconv.Itoa(w.UID) + "\n" + strconv.Itoa(w.GID) + "\n"
		got := run(t, e, w, who)
		if !strings.HasPrefix(got.out, id) || os.Geteuid() == 0 && got.out != id+strconv.Itoa(w.GID)+"\n" {
			t.Errorf("runs as %q", got.out)
		}
		who.Elevated = true
		got, err := try(t, e, w, who)
		if e.Name() == host.NameLandlock {
			if !errors.Is(err, sandbox.ErrNotElevated) {
				t.Errorf("%+v, %v", got, err)
			}
			return
		}
		if err != nil || !strings.HasPrefix(got.out, strconv.Itoa(os.Geteuid())+"\n") {
			t.Errorf("elevated: %+v, %v", got, err)
		}
		got = run(t, e, w, shell("grep -E '^(NoNewPrivs|CapEff)' /proc/self/status"))
		if os.Geteuid() == 0 && got.out != "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n" ||
			!strings.HasSuffix(got.out, "NoNewPrivs:\t1\n") {
			t.Errorf("%q", got.out)
		}
	})
}

func TestLimits(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) {
		w := newWorkspace(t)
		for name, c := range map[string]struct {
			script string
			limits sandbox.Limits
			want   func(r result) bool
		}{
			"memory of one": {
				"tail /dev/zero", sandbox.Limits{Memory: 32 << 20},
				func(r result) bool { return r.Code != 0 },
			},
			"memory of all": { // each has less than there may be
				`for i in 1 2 3 4 5 6; do head -c 20000000 /dev/zero | tail -c 20000000 | sleep 1000 & done
				sleep 1000`,
				sandbox.Limits{Memory: 50 << 20}, func(r result) bool { return r.Signal == "killed" },
			},
			"enough memory": {
				"head -c 20000000 /dev/zero | tail -c 20000000 | wc -c", sandbox.Limits{Memory: 512 << 20},
				func(r result) bool { return r.Code == 0 && r.out == "20000000\n" },
			},
			"processes": {
				"for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done; wait", sandbox.Limits{Processes: 8},
				func(r result) bool { return r.Signal == "killed" },
			},
			"enough processes": {
				"for i in 1 2 3 4 5; do sleep 0.1 & done; wait", sandbox.Limits{Processes: 8},
				func(r result) bool { return r.Code == 0 },
			},
			"processor": {
				"while :; do :; done", sandbox.Limits{CPU: time.Millisecond}, // rounded up
				func(r result) bool { return strings.Contains(r.Signal, "CPU") },
			},
			"file": {
				"head -c 3000000 /dev/zero > file", sandbox.Limits{FileSize: 1 << 20},
				func(r result) bool { return r.Code != 0 },
			},
			"none of its own": {
				"ulimit -c; ulimit -n; ulimit -Hn", sandbox.Limits{},
				func(r result) bool { return r.out == "0\n1024\n4096\n" },
			},
			"they cannot be raised": {
				"ulimit -f unlimited || ulimit -d unlimited", sandbox.Limits{Memory: 1 << 30, FileSize: 1 << 20},
				func(r result) bool { return r.Code != 0 },
			},
		} {
			t.Run(name, func(t *testing.T) {
				cmd := shell(c.script)
				cmd.Limits = c.limits
				if got := run(t, e, w, cmd); !c.want(got) {
					t.Errorf("%+v", got)
				}
			})
		}
	})
}

// TestNiceness: programs leave the processor to the gateway, also to one that leaves it to others itself.
func TestNiceness(t *testing.T) {
	w := newWorkspace(t)
	now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0) // 20 less the niceness
	if err != nil {
		t.Fatal(err)
	}
	for _, started := range []int{20 - now, 15} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the thread ends with its niceness, which supervisors inherit
			if err := syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), started); err != nil {
				t.Error(err)
				return
			}
			r, err := try(t, newEngine(t, host.Config{}), w, shell("nice"))
			if want := fmt.Sprintf("%d\n", max(10, started)); err != nil || r.out != want {
				t.Errorf("started with %d: %+v, %v, want %s", started, r, err, want)
			}
		}()
		<-done
	}
}

// TestWorkspaceLimits: what programs hide in their workspace counts.
func TestWorkspaceLimits(t *testing.T) {
	engines(t, func(t *testing.T, e *host.Engine) { limittest.Run(t, e, path...) })
}
