package client_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/farhand/farhand/ws/client"
)

// TestQueueAndGroups calls a device that sleeps until it is there, and several devices at once, of which one fails.
func TestQueueAndGroups(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	rings := func(answer string, err error) []client.Option {
		return []client.Option{
			client.WithLabels(map[string]string{"room": "kitchen"}),
			client.WithTool(client.Tool{Name: "ring", Description: "Ring the bell."},
				func(context.Context, client.Call) (any, error) { return answer, err }),
			client.WithTool(client.Tool{Name: "hold", Description: "Wait."},
				func(ctx context.Context, _ client.Call) (any, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}),
		}
	}
	connect(t, p.url, "phone", rings("It rang.", nil)...)()
	text, err := os.ReadFile("testdata/queue.mjs")
	must(t, err)
	program := startNode(t, p.environment(), string(text))
	program.expect(t, "sleeping: phone sleeping true")
	program.expect(t, "tools: hold ring")
	program.expect(t, "queued: 1 true queued")
	program.expect(t, "cancelled: 2 cancelled")
	program.expect(t, "expired: timeout no expired")
	program.expect(t, "unknown: session_not_found")
	program.expect(t, "wake the phone")
	asleep := connect(t, p.url, "phone", rings("It rang.", nil)...)
	program.expect(t, "delivered: It rang. It rang.")
	asleep()
	program.expect(t, "connect the others")
	connect(t, p.url, "one", rings("One.", nil)...)
	connect(t, p.url, "two", rings("Two.", nil)...)
	connect(t, p.url, "broken", rings("", errors.New("no bell"))...)
	lines, ok := program.rest(t)
	const want = `group: broken failed tool_failed no bell, one succeeded One., two succeeded Two.
counts: 3 2 1 failed true
first: true succeeded
held: none rejected session_not_found
held: one cancelled cancelled
held: cancelled
refused: [ 'session_not_found', 'no' ]`
	if got := strings.Join(lines, "\n"); !ok || got != want {
		t.Errorf("it succeeded: %t\n%s\nwant\n%s", ok, got, want)
	}
}
