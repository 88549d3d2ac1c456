package ws_test

import (
	"context"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws/client"
)

// slowTool is a tool whose handlers wait until the test lets them go.
func slowTool() (o client.Option, entered <-chan string, release chan<- struct{}) {
	ids, gate := make(chan string, 8), make(chan struct{})
	return client.WithTool(client.Tool{Name: "slow"}, func(_ context.Context, call client.Call) (any, error) {
		ids <- call.ID
		<-gate
		return "worth waiting for", nil
	}), ids, gate
}

func TestAnswerIsSentAgainToTheSamePod(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	r := newRelay(t, g)
	tool, entered, release := slowTool()
	_, states, _ := runSDK(t, r.url(), client.WithSession("resumes"), tool)
	connected(t, states, 1)
	done := g.call("resumes", "slow", `{}`)
	receive(t, entered)
	r.leadTo(nil)
	lost := r.lose()
	close(release)
	receive(t, lost)
	r.disconnect()
	g.waitReleased()
	r.leadTo(g)
	if o := await(t, done); o.err != nil || o.result.Output != "worth waiting for" {
		t.Fatalf("outcome: %+v", o)
	}
}

// TestAnswerIsSentAgainToAnotherPod: the connection dies between the end of the handler and the acknowledgement, in a
// way its pod does not notice, and the device comes back to the other pod.
func TestAnswerIsSentAgainToAnotherPod(t *testing.T) {
	t.Parallel()
	memory := memory.New(memory.Options{})
	a, b := newGatewayOn(t, memory), newGatewayOn(t, memory)
	r := newRelay(t, a)
	tool, entered, release := slowTool()
	_, states, _ := runSDK(t, r.url(), client.WithSession("moves"), tool)
	connected(t, states, 1)
	plain := a.call("moves", "slow", `{}`)
	remote := b.call("moves", "slow", `{}`)
	durable, kept := a.callDurable("moves", "slow")
	for range 3 {
		receive(t, entered)
	}
	lost := r.lose()
	close(release)
	receive(t, lost)
	evicted := make(chan struct{})
	r.hold(evicted)
	r.leadTo(b)
	r.cutDevices()
	a.waitReleased() // b has claimed the session and notified a
	close(evicted)
	for name, done := range map[string]<-chan outcome{"plain": plain, "remote": remote, "durable": kept} {
		if o := await(t, done); o.err != nil || o.result.Output != "worth waiting for" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	rec, err := b.pod.Calls.Get(context.Background(), registry.DefaultTenant, durable)
	if must(t, err); rec.State != registry.StateSucceeded {
		t.Fatalf("record: %+v", rec)
	}
	if n := len(a.pod.Hub.All()); n != 0 {
		t.Fatalf("%d sessions on the former pod", n)
	}
}
