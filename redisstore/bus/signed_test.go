package bus

import (
	"context"
	"testing"

	"github.com/farhand/farhand/redisstore/internal/signed"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

const fleetSecret = "a secret that Redis does not know"

func listenSigned(t *testing.T, url, pod string, h registry.BusHandler) *Bus {
	t.Helper()
	b := New(dial(t, url), Options{Signer: signed.New(signed.Options{Secrets: []string{fleetSecret}})})
	if err := b.Listen(context.Background(), pod, h); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// TestAnotherClientOfRedisIsNotHeard: a client with all rights publishes and pushes calls and replies that it made
// itself, and those that pods have sent, to the same and to another pod. No pod takes one.
func TestAnotherClientOfRedisIsNotHeard(t *testing.T) {
	url, ctx := redistest.Single(t), context.Background()
	at := map[string]*registrytest.Inbox{"a": registrytest.NewInbox(), "b": registrytest.NewInbox()}
	a, b := listenSigned(t, url, "a", at["a"]), listenSigned(t, url, "b", at["b"])

	attacker := dial(t, url).Client()
	spy := attacker.Subscribe(ctx, podChannel("b"))
	defer spy.Close()
	if _, err := spy.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(ctx, "b", call1("genuine")); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, at["b"].Envelopes).CallID; got != "genuine" {
		t.Fatalf("heard %q", got)
	}
	overheard := ""
	for overheard == "" { // between probes
		m, err := spy.ReceiveMessage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Payload) > signed.Overhead+1 {
			overheard = m.Payload
		}
	}

	call, err := encodeEnvelope(call1("forged"))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := encodeReply(registry.Reply{CallID: "genuine", Result: &registry.Result{Output: "forged"}})
	if err != nil {
		t.Fatal(err)
	}
	other := signed.New(signed.Options{Secrets: []string{"another secret of 32 characters.."}})
	forged := []string{
		string(call), string(reply), string(other.Sign("b", call)), string(other.Sign("b", reply)), overheard,
		"S" + overheard, overheard[signed.Overhead:], "B", "P", "",
	}
	for _, pod := range []string{"a", "b"} {
		for _, text := range forged {
			if err := attacker.Publish(ctx, podChannel(pod), text).Err(); err != nil {
				t.Fatal(err)
			}
			if err := attacker.RPush(ctx, podRepliesKey(pod), text).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What follows the forged messages on the same ways arrives, and is the first that does.
	if err := a.Send(ctx, "b", call1("next")); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(ctx, "a", call1("next")); err != nil {
		t.Fatal(err)
	}
	for pod, from := range map[string]*Bus{"a": b, "b": a} {
		if err := from.Reply(pod, registry.Reply{CallID: "last", Delivered: true}); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, at[pod].Envelopes).CallID; got != "next" {
			t.Errorf("%s took the call %q", pod, got)
		}
		if got := receive(t, at[pod].Replies).CallID; got != "last" {
			t.Errorf("%s took the reply %q", pod, got)
		}
	}
	for pod, bus := range map[string]*Bus{"a": a, "b": b} {
		n := int64(0)
		for _, count := range bus.Stats().Rejected {
			n += count
		}
		if want := int64(2 * len(forged)); n != want || bus.Stats().Malformed != 0 {
			t.Errorf("%s rejected %d, want %d: %v", pod, n, want, bus.Stats().Rejected)
		}
	}
}
