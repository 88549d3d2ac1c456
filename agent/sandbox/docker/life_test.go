package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
	"github.com/farhand/farhand/internal/testkit"
)

// containers returns all containers that the engine has, or those with a label.
func containers(t *testing.T, labels ...string) []container.Summary {
	t.Helper()
	api, err := shared.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	filter := client.Filters{}
	if len(labels) > 0 {
		filter.Add("label", labels...)
	}
	found, err := api.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: filter})
	if err != nil {
		t.Fatal(err)
	}
	return found.Items
}

// own returns the containers of the workspace.
func (f *fixture) own() []container.Summary {
	f.t.Helper()
	return containers(f.t, labelSpace+"="+f.space.ID)
}

// until waits for something that no channel tells.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	testkit.Eventually(t, what, is)
}

// started runs a command that goes on, and returns once it runs.
func (f *fixture) started(ctx context.Context) (ended <-chan error) {
	f.t.Helper()
	runs, done := newSignal(), make(chan error, 1)
	go func() {
		_, err := f.engine.Run(ctx, f.space, sandbox.Command{
			Args: []string{"sh", "-c", "echo runs; " + f.nap}, Env: plainEnv, Stdout: runs, Stderr: runs,
		})
		done <- err
	}()
	select {
	case <-runs.c:
	case err := <-done:
		f.t.Fatal(err)
	}
	return done
}

// signal closes its channel at the first write.
type signal struct {
	once sync.Once
	c    chan struct{}
}

func newSignal() *signal { return &signal{c: make(chan struct{})} }

func (s *signal) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.c) })
	return len(p), nil
}

func TestOneContainerForAWorkspace(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.sh("echo kept > /tmp/file")
	first := f.own()
	if out := f.sh("cat /tmp/file"); out != "kept" {
		t.Errorf("the second command found %q", out)
	}
	if again := f.own(); len(first) != 1 || len(again) != 1 || first[0].ID != again[0].ID {
		t.Errorf("first %v, then %v", first, again)
	}
	// Other limits are another container.
	if _, _, _, err := f.run(t.Context(), sandbox.Command{
		Args: []string{"true"}, Env: plainEnv, Limits: sandbox.Limits{Memory: 32 << 20},
	}); err != nil {
		t.Fatal(err)
	}
	if again := f.own(); len(again) != 1 || first[0].ID == again[0].ID {
		t.Errorf("first %v, then %v", first, again)
	}
	other := *f
	other.space = workspace(t, "another")
	if out := other.sh("ls /tmp /workspace"); strings.Contains(out, "file") {
		t.Errorf("another workspace sees %q", out)
	}
	if err := f.engine.Release(t.Context(), f.space); err != nil {
		t.Fatal(err)
	}
	if left := f.own(); len(left) != 0 || len(other.own()) != 1 {
		t.Errorf("after the release there are %v", left)
	}
	if n := f.engine.Stats(); n.Running != 1 || n.Started != 3 || n.Failed != 0 || n.Down {
		t.Errorf("counted %+v", n)
	}
	f.sh("true") // A workspace may come back.
}

func TestCommandsKnowTheirEnvironmentOnly(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	env := []string{"A=b c", "HOME=/workspace"}
	out, _, _, err := f.run(t.Context(), sandbox.Command{Args: []string{"/bin/env"}, Env: env})
	if err != nil || out != "A=b c\nHOME=/workspace\n" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestCommandsOfAWorkspaceTakeTurns(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			// mkdir fails for who is not alone.
			text := "mkdir /workspace/lock && sleep 0.05 && rmdir /workspace/lock"
			_, errs, exit, err := f.run(t.Context(), script(text))
			if err != nil || exit.Code != 0 {
				t.Errorf("%+v, %v: %s", exit, err, errs)
			}
		})
	}
	wg.Wait()
	ended := f.started(t.Context())
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLate)
	if _, _, _, err := f.run(ctx, script("true")); err != errLate {
		t.Errorf("whose time is over before its turn: %v", err)
	}
	if err := f.engine.Release(t.Context(), f.space); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, errReleased) {
		t.Errorf("the command of a released workspace: %v", err)
	}
	if left := f.own(); len(left) != 0 || processes(f.nap) != nil {
		t.Errorf("left %v", left)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	ended := f.started(t.Context())
	if err := f.engine.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, sandbox.ErrUnavailable) {
		t.Error(err)
	}
	if _, _, _, err := f.run(t.Context(), script("true")); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("after Close: %v", err)
	}
	if left := f.own(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// An engine goes on with a request that was given up.
func TestAStartThatIsGivenUpLeavesNothing(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *Config) { c.Pod = "gives-up" })
	for i := range 6 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond<<i, errLate)
		if _, _, _, err := f.run(ctx, script("true")); err != nil && err != errLate {
			t.Error(err)
		}
		cancel()
		if err := f.engine.Release(t.Context(), f.space); err != nil {
			t.Error(err)
		}
	}
	other := setUp(t)
	other.sh("true") // The engine has had the time to make one.
	if left := containers(t, labelPod+"=gives-up"); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestIdleContainersGo(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *Config) { c.Idle = 200 * time.Millisecond })
	f.sh("true")
	until(t, "the idle container is gone", func() bool { return len(f.own()) == 0 })
	f.sh("sleep 1") // longer than Idle
}

func TestContainersEndByThemselves(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *Config) { c.Life = 3 * time.Second })
	ended := f.started(t.Context())
	<-ended // long before the command would have
	if left := f.own(); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	f.sh("true")
}

// podVariable makes this test binary a pod: it has the folder of the workspace and what to run.
const podVariable = "FARHAND_TEST_POD"

// pod runs a command that goes on, until it is killed.
func pod(what string) error {
	dir, nap, _ := strings.Cut(what, " ")
	e, err := New(Config{Host: os.Getenv("FARHAND_TEST_HOST"), Image: dockertest.Image, Pod: "victim"})
	if err != nil {
		return err
	}
	space := sandbox.Workspace{ID: "victim", Dir: dir, UID: owner, GID: owner}
	_, err = e.Run(context.Background(), space, sandbox.Command{
		Args: []string{"sh", "-c", "echo runs; setsid " + nap + " & " + nap}, Env: plainEnv,
		Stdout: os.Stdout, Stderr: os.Stderr,
	})
	return err
}

func TestNothingOutlivesAPodThatIsKilled(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.sh("echo alive > /tmp/alive")
	space := workspace(t, "victim")
	victim := exec.Command(os.Args[0])
	victim.Env = append(os.Environ(), podVariable+"="+space.Dir+" "+f.nap, "FARHAND_TEST_HOST="+shared.Host())
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	until(t, "the pod has a container with two commands", func() bool {
		return len(containers(t, labelPod+"=victim")) == 1 && len(processes(f.nap)) >= 2
	})
	_ = victim.Process.Kill()
	_ = victim.Wait()
	until(t, "the container of the dead pod is gone", func() bool {
		return len(containers(t, labelPod+"=victim")) == 0 && processes(f.nap) == nil
	})
	if alive := f.sh("cat /tmp/alive"); alive != "alive" {
		t.Errorf("the container of the living pod: %q", alive)
	}
}

func TestLeftoversAreRemovedAtTheStart(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.sh("echo alive > /tmp/alive")
	api, err := shared.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(processLabel())
	ofDead := strings.Join([]string{words[0], words[1], "4194300", "1"}, " ")
	ofOther := strings.Join([]string{"another-boot", words[1], "4194300", "1"}, " ")
	make := func(start bool, labels map[string]string) string {
		made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{
			Image: dockertest.Image, Entrypoint: strings.Fields(f.nap), Labels: labels,
		}, HostConfig: &container.HostConfig{NetworkMode: "none"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = api.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true})
		})
		if start {
			if _, err := api.ContainerStart(t.Context(), made.ID, client.ContainerStartOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return made.ID
	}
	goes := []string{
		make(false, map[string]string{labelPod: "dead", labelProcess: ofDead}),
		make(true, map[string]string{labelPod: "dead", labelProcess: ofDead}),
	}
	stays := []string{
		make(false, map[string]string{labelPod: "new", labelProcess: processLabel()}),
		make(false, map[string]string{labelPod: "new", labelProcess: ofOther}),
		make(true, map[string]string{labelPod: "other", labelProcess: ofOther}),
		make(false, map[string]string{"farhand": "of somebody else", labelProcess: ofDead}),
	}
	setUp(t)
	is := func(id string) bool {
		_, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		return err == nil
	}
	until(t, "leftovers are gone", func() bool { return !is(goes[0]) && !is(goes[1]) })
	for i, id := range stays {
		if !is(id) {
			t.Errorf("container %d is gone", i)
		}
	}
	if alive := f.sh("cat /tmp/alive"); alive != "alive" {
		t.Errorf("the container of the living pod: %q", alive)
	}
}

func TestWhatIsLeft(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		state container.ContainerState
		age   time.Duration
		left  bool
	}{
		{container.StateRunning, time.Hour, false}, {container.StatePaused, time.Hour, false},
		{container.StateExited, 0, true}, {container.StateDead, 0, true},
		{container.StateCreated, time.Minute, false}, {container.StateCreated, 3 * time.Minute, true},
	} {
		if isLeft(container.Summary{State: c.state, Created: now.Add(-c.age).Unix()}, now) != c.left {
			t.Errorf("%+v", c)
		}
	}
	own := processLabel()
	for label, dead := range map[string]bool{
		own: false, "": false, "nonsense": false, strings.Replace(own, "pid:", "pid:1", 1): false,
		own + "1": true, // another start
	} {
		if isDead(label, own) != dead {
			t.Errorf("%q", label)
		}
	}
}

func TestAnEngineThatVanishes(t *testing.T) {
	f := setUp(t)
	ended := f.started(t.Context())
	if err := shared.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("the command that ran: %v", err)
	}
	_, _, _, err := f.run(t.Context(), script("true"))
	if !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("without an engine: %v", err)
	}
	until(t, "it is known that the engine is down", func() bool {
		return errors.Is(sandbox.Down(f.engine), sandbox.ErrUnavailable)
	})
	if err := shared.Restart(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is known that the engine is back", func() bool { return sandbox.Down(f.engine) == nil })
	until(t, "the command is gone", func() bool { return processes(f.nap) == nil })
	if out := f.sh("echo back"); out != "back" {
		t.Errorf("%q", out)
	}
	var there []string
	defer func() {
		if t.Failed() {
			t.Log("there were", there)
		}
	}()
	// What the engine was about to remove as it was killed may be left dead, for the next sweep.
	until(t, "only the new container is there", func() bool {
		f.engine.sweep()
		there = nil
		for _, c := range containers(t) {
			there = append(there, fmt.Sprint(c.ID[:12], " ", c.State, " ", c.Status))
		}
		return len(there) == 1
	})
	f.sh("echo kept > /tmp/file")
	if err := shared.Kill(); err != nil { // between two commands
		t.Fatal(err)
	}
	if err := shared.Restart(); err != nil {
		t.Fatal(err)
	}
	if out := f.sh("ls /tmp"); out != "" {
		t.Errorf("a new container has %q", out)
	}
}
