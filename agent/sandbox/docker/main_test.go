package docker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/sandbox/docker/dockertest"
)

// shared is the engine of all tests of this package, once one has asked for it.
var shared struct {
	once sync.Once
	*dockertest.Engine
	err    error
	setUps atomic.Int64
}

// needEngine starts the engine, or skips the test with the reason why there can be none.
func needEngine(t *testing.T) {
	t.Helper()
	if err := dockertest.Available(); err != nil {
		t.Skip("no engine:", err)
	}
	shared.once.Do(func() { shared.Engine, shared.err = dockertest.Start() })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
}

func TestMain(m *testing.M) {
	if dir := os.Getenv(podVariable); dir != "" {
		fmt.Fprintln(os.Stderr, pod(dir))
		os.Exit(1)
	}
	if host := os.Getenv(probeVariable); host != "" {
		fmt.Println(Probe(context.Background(), Config{Host: host, Pod: "p"}))
		os.Exit(0)
	}
	os.Setenv("FARHAND_CANARY", canary) // for all tests, which run in parallel
	code := m.Run()
	if shared.Engine != nil {
		if left := left(); left != "" {
			fmt.Fprintln(os.Stderr, left)
			code = 1
		}
		shared.Stop()
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// left says what all tests together have left behind.
func left() string {
	api, err := shared.Client()
	if err != nil {
		return err.Error()
	}
	defer api.Close()
	found, err := api.ContainerList(context.Background(), client.ContainerListOptions{All: true})
	// An engine that is killed while it removes a container says afterwards that it is dead, and removes it when asked
	// again: the next pod does.
	there := slices.DeleteFunc(found.Items, func(c container.Summary) bool { return c.State == container.StateDead })
	if err != nil || len(there) > 0 {
		return fmt.Sprintf("left containers: %v, %v", there, err)
	}
	if left := processes(naps()); left != nil {
		return fmt.Sprintf("left processes: %q", left)
	}
	return ""
}
