package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

func call1(id string) registry.Envelope {
	return registry.Envelope{
		V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, CallID: id, ReplyTo: "a",
		Args: registry.MustJSON(`{}`),
	}
}

func wantDispatched(t *testing.T, err error, want registry.Dispatched) {
	t.Helper()
	if e := registry.AsError(err); e.Code != registry.CodeStoreUnavailable || e.Dispatched != want {
		t.Errorf("error %v, dispatched %q; want %q", err, e.Dispatched, want)
	}
}

// TestReceiverCountOnCluster shows that the count of the sharded publish is to be relied on, wherever pod and
// channel are.
func TestReceiverCountOnCluster(t *testing.T) {
	url := redistest.Cluster(t).URL
	sender := New(dial(t, url), Options{})
	for i := range 12 {
		pod, inbox := fmt.Sprintf("pod%d", i), registrytest.NewInbox()
		if err := sender.Send(context.Background(), pod, call1("early")); !errors.Is(err, registry.ErrNoReceiver) {
			t.Fatalf("%s before it listens: %v", pod, err)
		}
		listen(t, dial(t, url), pod, inbox)
		if err := sender.Send(context.Background(), pod, call1(pod)); err != nil {
			t.Fatalf("%s: %v", pod, err)
		}
		if got := receive(t, inbox.Envelopes).CallID; got != pod {
			t.Errorf("%s heard %s", pod, got)
		}
	}
}

func TestMessagesNobodyUnderstands(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	caller, inbox := registrytest.NewInbox(), registrytest.NewInbox()
	listen(t, conn, "a", caller)
	b := listen(t, conn, "b", inbox)
	ctx := context.Background()
	for _, text := range []string{"", "nonsense", "E{", "E\x63\x00\x06future\x01a"} {
		if err := conn.Client().Publish(ctx, podChannel("b"), text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(t, caller.Replies); got.CallID != "future" || got.Err == nil ||
		!got.Err.Retryable() || !strings.Contains(got.Err.Message, "newer release") {
		t.Errorf("answered %+v", got)
	}
	if err := b.Send(ctx, "b", call1("fine")); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, inbox.Envelopes).CallID; got != "fine" {
		t.Errorf("heard %s", got)
	}
	if n := b.Stats().Malformed; n != 4 {
		t.Errorf("%d malformed, want 4", n)
	}
	if n := conn.Forms().Counts(); n["message"] != 1 {
		t.Errorf("counted %v of newer releases, want a message", n)
	}
}

// panicky panics on the first call.
type panicky struct{ *registrytest.Inbox }

func (p panicky) HandleEnvelope(e registry.Envelope) {
	if e.CallID == "boom" {
		panic("boom")
	}
	p.Inbox.HandleEnvelope(e)
}

func TestAPanickingHandlerIsSurvived(t *testing.T) {
	inbox := registrytest.NewInbox()
	b := listen(t, dial(t, redistest.Single(t)), "a", panicky{inbox})
	for _, id := range []string{"boom", "fine"} {
		if err := b.Send(context.Background(), "a", call1(id)); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(t, inbox.Envelopes).CallID; got != "fine" || b.Stats().Panics != 1 {
		t.Errorf("heard %s, %d panics", got, b.Stats().Panics)
	}
}

func TestSendRefusals(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	b := New(conn, Options{})
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	wantDispatched(t, b.Send(ended, "a", call1("c")), registry.DispatchedNo)
	if b.Healthy() == nil {
		t.Error("healthy without listening")
	}
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantDispatched(t, b.Send(context.Background(), "a", call1("c")), registry.DispatchedNo)
	if err := b.Reply("a", registry.Reply{CallID: "c", Delivered: true}); err == nil {
		t.Error("a closed bus took a reply")
	}
	if err := b.Listen(context.Background(), "a", registrytest.NewInbox()); err == nil {
		t.Error("a closed bus listens")
	}
	if err := b.Close(context.Background()); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestASendThatLeftIsNotReportedAsUnknown: the answer and the end of the waiting come together.
func TestASendThatLeftIsNotReportedAsUnknown(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	posted := &pendingEnvelope{queue: &batcher[*pendingEnvelope]{size: func(*pendingEnvelope) int { return 0 }}}
	for range 200 { // which of the two is seen first is left to chance
		s := make(outcome, 1)
		s.Sent(nil)
		if err := s.await(ended, posted, redisconn.DefaultTimeout); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListenOnce(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	b := listen(t, conn, "a", registrytest.NewInbox())
	if err := b.Listen(context.Background(), "a", registrytest.NewInbox()); err == nil {
		t.Error("listened twice")
	}
}

func TestReplyQueueIsBounded(t *testing.T) {
	server := redistest.Start(t)
	b := New(dial(t, server.URL()), Options{})
	server.Pause()
	big := registry.Reply{CallID: "c", Result: &registry.Result{Output: strings.Repeat("x", 8<<20)}}
	var refused error
	for range 20 {
		if err := b.Reply("a", big); err != nil { // and does not wait for Redis, which hangs
			refused = err
			break
		}
	}
	if !errors.Is(refused, registry.CodeStoreUnavailable) || b.Stats().RepliesRefused != 1 {
		t.Errorf("refused with %v, counted %d", refused, b.Stats().RepliesRefused)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if b.Stats().RepliesLost == 0 {
		t.Error("dropped answers are not counted")
	}
}

func TestCloseDeliversWhatIsQueued(t *testing.T) {
	conn := dial(t, redistest.Single(t))
	inbox := registrytest.NewInbox()
	listen(t, conn, "a", inbox)
	b := New(conn, Options{})
	const n = 500
	for i := range n {
		if err := b.Reply("a", registry.Reply{CallID: fmt.Sprint(i), Delivered: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := receive(t, inbox.Replies).CallID; got != fmt.Sprint(i) {
			t.Fatalf("answer %d is %s", i, got)
		}
	}
}

func TestDispatched(t *testing.T) {
	for _, c := range []struct {
		err  error
		want registry.Dispatched
	}{
		{redis.ErrPoolTimeout, registry.DispatchedNo},
		{redis.ErrClosed, registry.DispatchedNo},
		{fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), registry.DispatchedNo},
		{redis.ErrNoScript, registry.DispatchedNo},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, registry.DispatchedUnknown},
		{&net.OpError{Op: "write", Err: errors.New("broken pipe")}, registry.DispatchedUnknown},
		{io.EOF, registry.DispatchedUnknown},
		{context.DeadlineExceeded, registry.DispatchedUnknown},
	} {
		if got := dispatched(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}

// TestCloseDeliversWhatWasSent: what was sent to a pod before its senders are told that nobody listens is handled.
func TestCloseDeliversWhatWasSent(t *testing.T) {
	for name, url := range map[string]string{"single": redistest.Single(t), "cluster": redistest.Cluster(t).URL} {
		t.Run(name, func(t *testing.T) {
			for i := range 10 {
				closeWhileSending(t, url, fmt.Sprint("leaving-", i))
			}
		})
	}
}

func closeWhileSending(t *testing.T, url, pod string) {
	t.Helper()
	asking, leaving := New(dial(t, url), Options{}), New(dial(t, url), Options{})
	handled := make(countingHandler, 1<<16)
	if err := leaving.Listen(t.Context(), pod, handled); err != nil {
		t.Fatal(err)
	}
	sent, closed := 0, make(chan error, 1)
	for ; ; sent++ {
		err := asking.Send(t.Context(), pod, call1(fmt.Sprint(sent)))
		if errors.Is(err, registry.ErrNoReceiver) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if sent == 100 {
			go func() { closed <- leaving.Close(context.Background()) }()
		}
	}
	if err := errors.Join(<-closed, asking.Close(context.Background())); err != nil {
		t.Error(err)
	}
	if len(handled) != sent {
		t.Errorf("%d of %d were handled", len(handled), sent)
	}
}

// countingHandler counts envelopes.
type countingHandler chan struct{}

func (h countingHandler) HandleEnvelope(registry.Envelope) { h <- struct{}{} }
func (countingHandler) HandleReply(registry.Reply)         {}
func (countingHandler) HandleGap()                         {}
