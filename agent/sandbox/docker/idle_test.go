package docker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/workspace/limittest"
)

// of returns the fixture with another workspace, of a tenant.
func (f *fixture) of(tenant, name string) *fixture {
	f.t.Helper()
	other := *f
	other.space = workspace(f.t, f.t.Name()+name)
	other.space.Tenant = tenant
	return &other
}

// Of containers without a command so many are kept, half of them of one tenant. The one used least recently goes, of
// the tenant that has most.
func TestKeptContainersAreBounded(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *Config) { c.MaxIdle, c.Pod = 4, "bounded" })
	kept := func() (names []string) {
		for _, c := range containers(t, labelPod+"=bounded") {
			names = append(names, strings.TrimPrefix(c.Labels[labelSpace], f.space.ID))
		}
		slices.Sort(names)
		return names
	}
	for _, step := range []struct {
		tenant, name string
		want         []string
	}{
		{"a", "1", []string{"1"}}, {"a", "2", []string{"1", "2"}}, {"a", "3", []string{"2", "3"}},
		{"b", "4", []string{"2", "3", "4"}}, {"b", "5", []string{"2", "3", "4", "5"}},
		{"c", "6", nil},
	} {
		f.of(step.tenant, step.name).sh("true")
		// maintain may look at one of them just then, and removes what is too many when it has.
		until(t, fmt.Sprintf("after %s %v are kept", step.name, step.want), func() bool {
			got := kept()
			if step.want != nil {
				return slices.Equal(got, step.want)
			}
			// Of two tenants that have as many, either may lose one.
			return len(got) == 4 && slices.Contains(got, "6") && slices.Contains(got, "3") && slices.Contains(got, "5")
		})
	}
	var all sync.WaitGroup
	for i := range 9 {
		other := f.of("d", fmt.Sprint("d", i))
		all.Go(func() {
			if _, _, exit, err := other.run(t.Context(), script("true")); err != nil || exit.Code != 0 {
				t.Errorf("%+v, %v", exit, err)
			}
		})
	}
	all.Wait()
	until(t, "of nine at once no more are kept", func() bool {
		got := kept()
		return len(got) <= 4 && len(slices.DeleteFunc(got, func(s string) bool { return s[0] != 'd' })) <= 2
	})
}

// A container whose memory stays high is not kept, though it has no process that takes it; one that has little is.
func TestHeavyContainersAreNotKept(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *Config) { c.Idle, c.MaxIdleMemory = time.Hour, 8<<20 })
	light := f.of("", "light")
	light.sh("dd if=/dev/zero of=/tmp/f bs=1M count=1; dd if=/dev/zero of=/workspace/f bs=1M count=30")
	f.sh("dd if=/dev/zero of=/tmp/f bs=1M count=14")
	f.engine.removeIdle() // as the keeper does
	if left := f.own(); len(left) != 0 {
		t.Errorf("14 MiB are kept: %v", left)
	}
	if out := light.sh("ls /tmp"); out != "f" {
		t.Errorf("the light one has %q", out)
	}
}

// Shared memory, queues and semaphores that a command leaves behind are gone, or few.
func TestNothingOfSystemVStays(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	build := exec.Command("go", "build", "-o", filepath.Join(f.space.Dir, "shm"), "./testdata/shm")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, errs, exit, err := f.run(t.Context(), sandbox.Command{Args: []string{"/workspace/shm"}, Env: plainEnv})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v: %s", exit, err, errs)
	}
	if out := f.sh("wc -l < /proc/sysvipc/shm"); out != "1" { // the heading
		t.Errorf("segments are left: %s", f.sh("cat /proc/sysvipc/shm"))
	}
	if out := f.sh("cd /proc/sys/kernel; cat msgmni msgmnb sem"); strings.Join(strings.Fields(out), " ") !=
		"16 16384 250 32000 32 128" {
		t.Errorf("bounds of queues and semaphores: %q", out)
	}
}

// Files that a container's program has open and that have no name are found from outside, as those of its workspace.
func TestNamelessFilesOfContainers(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	runs, done := newSignal(), make(chan error, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		c := script("exec 3>f; rm f; head -c 3000000 /dev/zero >&3; echo runs; exec " + f.nap)
		c.Stdout, c.Stderr = runs, os.Stderr
		_, err := f.engine.Run(ctx, f.space, c)
		done <- err
	}()
	select {
	case <-runs.c:
	case err := <-done:
		t.Fatal(err)
	}
	if n := sandbox.Nameless(f.space); n < 3000000 {
		t.Errorf("%d bytes without a name", n)
	}
	if n := sandbox.Nameless(workspace(t, "another")); n != 0 {
		t.Errorf("another workspace has %d bytes without a name", n)
	}
	cancel(errLate)
	<-done
}

// TestWorkspaceLimits: what programs of a container hide in their workspace counts, as on the host.
func TestWorkspaceLimits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	limittest.Run(t, f.engine, plainEnv...)
}
