package bus

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

// answerOf is the answer to a call.
func answerOf(id string) registry.Reply {
	return registry.Reply{V: registry.EnvelopeVersion, CallID: id, Result: &registry.Result{Success: true, Output: id}}
}

// refusalOf says that a call did not reach its device.
func refusalOf(id string) registry.Reply {
	refusal := registry.ErrNotOwner.With(registry.DispatchedNo)
	return registry.Reply{V: registry.EnvelopeVersion, CallID: id, Err: refusal}
}

// stubborn returns a server and a bus on it, not listening, that does not give an answer up before the test ends.
func stubborn(t *testing.T) (*redistest.Server, *Bus) {
	t.Helper()
	server := redistest.Start(t)
	b := New(dial(t, server.URL()), Options{})
	b.retryFor = time.Hour
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.Close(ended)
	})
	return server, b
}

// TestAnswersOutliveARestart: the server is gone when the answer is pushed, and is back, empty, a moment later.
func TestAnswersOutliveARestart(t *testing.T) {
	server, b := stubborn(t)
	server.Kill()
	receipt := registry.Reply{V: registry.EnvelopeVersion, CallID: "receipt", Delivered: true}
	for _, r := range []registry.Reply{answerOf("answer"), receipt} {
		if err := b.Reply("a", r); err != nil {
			t.Fatal(err)
		}
	}
	registrytest.Eventually(t, "both were tried", func() bool { return b.Stats().RepliesRetried >= 2 })
	server.Restart()
	inbox := registrytest.NewInbox()
	listen(t, dial(t, server.URL()), "a", inbox)
	got := map[string]bool{}
	for len(got) < 2 { // one may come twice
		got[receive(t, inbox.Replies).CallID] = true
	}
	if n := b.Stats().RepliesLost; n != 0 {
		t.Errorf("%d lost", n)
	}
}

// TestAnswersOutliveAHang: whether the server took the answer is not known, so it may arrive twice.
func TestAnswersOutliveAHang(t *testing.T) {
	server, b := stubborn(t)
	server.Pause()
	if err := b.Reply("a", answerOf("c")); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "it was tried", func() bool { return b.Stats().RepliesRetried >= 1 })
	server.Resume()
	inbox := registrytest.NewInbox()
	listen(t, dial(t, server.URL()), "a", inbox)
	if got := receive(t, inbox.Replies); got.CallID != "c" {
		t.Errorf("heard %+v", got)
	}
}

// TestARefusalIsNotRepeatedBlindly: its caller may have asked again, and would take the second one for the answer to
// that, although the device may be running the tool.
func TestARefusalIsNotRepeatedBlindly(t *testing.T) {
	server, b := stubborn(t)
	server.Pause()
	if err := b.Reply("a", refusalOf("c")); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "it is given up", func() bool { return b.Stats().RepliesLost == 1 })
	if n := b.Stats().RepliesRetried; n != 0 {
		t.Errorf("tried %d times again", n)
	}
	server.Kill() // now it surely was not taken
	registrytest.Eventually(t, "connections are refused", func() bool {
		if err := b.Reply("a", refusalOf("d")); err != nil {
			t.Fatal(err)
		}
		return b.Stats().RepliesRetried > 0
	})
}

func TestAnswersAreGivenUpAfterAWhile(t *testing.T) {
	server, b := stubborn(t)
	b.retryFor = 300 * time.Millisecond
	server.Kill()
	if err := b.Reply("a", answerOf("c")); err != nil {
		t.Fatal(err)
	}
	registrytest.Eventually(t, "it is given up", func() bool { return b.Stats().RepliesLost == 1 })
	if n := b.Stats().RepliesRetried; n == 0 {
		t.Error("it was not tried again before")
	}
}

func TestAnswersToPushAgainAreBounded(t *testing.T) {
	server, b := stubborn(t)
	b.replies[0].retries.limits.queueItems = 3
	server.Kill()
	for range 10 {
		if err := b.Reply("a", answerOf("c")); err != nil {
			t.Fatal(err)
		}
	}
	registrytest.Eventually(t, "what is too much is dropped and counted", func() bool {
		return b.Stats().RepliesLost > 0
	})
}

func TestCloseDoesNotWaitForFurtherTries(t *testing.T) {
	server, b := stubborn(t)
	server.Kill()
	if err := b.Reply("a", answerOf("c")); err != nil {
		t.Fatal(err)
	}
	// From the fifth failure on it waits for seconds, and with such a limit for ever.
	registrytest.Eventually(t, "it was tried", func() bool { return b.Stats().RepliesRetried >= 5 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		_ = b.Close(ctx)
		close(closed)
	}()
	receive(t, closed)
	if n := b.Stats().RepliesLost; n != 1 {
		t.Errorf("%d answers counted as lost", n)
	}
}

// TestAHangingMemberHoldsUpItsShareOnly: on a Cluster, the answers for some pods cannot be pushed.
func TestAHangingMemberHoldsUpItsShareOnly(t *testing.T) {
	conn := dial(t, redistest.Cluster(t).URL)
	inbox := registrytest.NewInbox()
	listen(t, conn, "healthy", inbox)
	b := New(conn, Options{})
	hung, proceed := shareOf(b.replies, "hung"), make(chan struct{})
	if hung == shareOf(b.replies, "healthy") {
		t.Fatal("both pods have the same share; choose other names")
	}
	hung.first.flush = func([]*pendingReply) { <-proceed }
	for _, pod := range []string{"hung", "healthy"} {
		if err := b.Reply(pod, answerOf(pod)); err != nil {
			t.Fatal(err)
		}
	}
	if got := receive(t, inbox.Replies); got.CallID != "healthy" {
		t.Errorf("heard %+v", got)
	}
	close(proceed)
	if err := b.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// Long answers of one tenant that wait to be sent leave room for those of others, and for what says that one was
// dropped.
func TestAnswersOfATenantLeaveRoomForOthers(t *testing.T) {
	server, b := stubborn(t)
	server.Pause()
	answer := func(tenant string, size int) error {
		r := answerOf("c")
		r.Owner, r.Result.Output = tenant, strings.Repeat("x", size)
		return b.Reply("a", r)
	}
	fill := func(size int) (n int) {
		for answer("evil", size) == nil {
			n++
		}
		return n
	}
	if long, short := fill(4<<20), fill(0); long < 10 || long > 20 || short > 1000 {
		t.Errorf("%d long answers and %d short ones wait", long, short)
	}
	for range 7 {
		if err := answer("good", 4<<20); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Reply("a", refusalOf("d")); err != nil {
		t.Error(err)
	}
}

// A short answer does not wait for the long ones before it.
func TestLongAnswersAreOvertaken(t *testing.T) {
	_, b := stubborn(t)
	began, proceed := make(chan struct{}, 2), make(chan struct{})
	defer close(proceed)
	b.replies[0].long.flush = func([]*pendingReply) { began <- struct{}{}; <-proceed }
	var sent []string
	flushed := make(chan struct{}, 1)
	b.replies[0].first.flush = func(batch []*pendingReply) {
		for _, r := range batch {
			sent = append(sent, r.callID)
		}
		flushed <- struct{}{}
	}
	long := answerOf("long")
	long.Result.Output = strings.Repeat("x", longReply)
	if err := b.Reply("a", long); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := b.Reply("a", answerOf("short")); err != nil {
		t.Fatal(err)
	}
	<-flushed
	if len(sent) != 1 || sent[0] != "short" {
		t.Errorf("sent %q", sent)
	}
}

// The list of a pod that does not read has a bound in bytes. Beyond it a long result is replaced by the message that
// the tool has run, and short answers still fit: whoever reads the list learns of every call.
func TestTheListOfAPodIsBounded(t *testing.T) {
	server, b := stubborn(t)
	b.listBytes = 2 << 20
	const results = 60
	long := strings.Repeat("x", 100<<10)
	for i := range results {
		r := answerOf("long-" + strconv.Itoa(i))
		r.Result.Output, r.Owner = long, "t"
		if err := b.Reply("a", r); err != nil {
			t.Fatal(err)
		}
		if err := b.Reply("a", answerOf("short-"+strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	registrytest.Eventually(t, "all is sent", func() bool {
		s := b.Stats()
		return s.RepliesQueued == 0 && s.RepliesPutOff == 0 && s.RepliesSent >= 2*results
	})
	usage, err := b.conn.Client().MemoryUsage(ctx, podRepliesKey("a"), 0).Result()
	if err != nil || usage > int64(b.listBytes)+1<<20 {
		t.Errorf("the list has %d bytes, %v", usage, err)
	}
	inbox := registrytest.NewInbox()
	listen(t, dial(t, server.URL()), "a", inbox)
	lost := 0
	for got := map[string]bool{}; len(got) < 2*results; {
		r := receive(t, inbox.Replies)
		got[r.CallID] = true
		if r.Err != nil {
			lost++
			if r.Err.Code != registry.CodeLost || r.Err.Dispatched != registry.DispatchedYes || r.CallID[:4] != "long" {
				t.Fatalf("%+v", r)
			}
		}
	}
	if lost < results/2 || lost == results {
		t.Errorf("%d of %d results are lost", lost, results)
	}
	if n := b.Stats().RepliesLost; n != 0 {
		t.Errorf("%d answers have vanished", n)
	}
}
