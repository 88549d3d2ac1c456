package python_test

import (
	"context"
	"errors"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// TestQueueAndGroups calls a device that sleeps until it is there, and several devices at once, of which one fails.
func TestQueueAndGroups(t *testing.T) {
	t.Parallel()
	pods := startPods(t, 1)
	url := "http://" + pods[0].addr
	hold := tool("hold", "Wait.", `{"type":"object"}`, func(ctx context.Context, _ client.Call) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	t.Run("phone", func(t *testing.T) { startDevice(t, url, "phone", echoTool, hold) }) // then it sleeps
	program := python(t, clientEnv(url), "testdata/queued.py")
	expect := func(want string) {
		t.Helper()
		if line := testkit.Receive(t, want, program.lines); line != want {
			program.end(t)
			t.Fatalf("the program prints %q, want %q", line, want)
		}
	}
	expect("wake the phone")
	startDevice(t, url, "phone", echoTool, hold)
	expect("connect the others")
	kitchen := client.WithLabels(map[string]string{"room": "kitchen"})
	startDevice(t, url, "one", kitchen, echoTool, hold)
	startDevice(t, url, "two", kitchen, echoTool)
	startDevice(t, url, "broken", kitchen, tool("echo", "Fail.", `{"type":"object"}`,
		func(context.Context, client.Call) (any, error) { return nil, errors.New("no voice") }))
	program.end(t)
}
