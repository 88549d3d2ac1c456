package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// hungFeed is a store that takes no batch before it is told to go on.
type hungFeed struct {
	*memory.Store
	proceed chan struct{}
}

func (h hungFeed) AppendActivity(ctx context.Context, all []registry.Activity) error {
	select {
	case <-h.proceed:
		return h.Store.AppendActivity(ctx, all)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// largeText is an answer, or a part of the arguments, of 100 KB.
var largeText = strings.Repeat("x", 100<<10)

func largeRecord(id string) registry.Record {
	return registry.NewRecord(id, "t", "tool", json.RawMessage(`{"text":"`+largeText+`"}`))
}

// What waits for a store that hangs does not hold on to what the calls carried.
func TestTheFeedHoldsNeitherArgumentsNorOutputs(t *testing.T) {
	pod, err := NewPod(PodConfig{Store: memory.New(memory.Options{}), Bus: &memory.Bus{}})
	if err != nil {
		t.Fatal(err)
	}
	want := largeRecord("")
	want.DigestArgs()
	answer := registry.Result{Success: true, Output: largeText, Structured: registry.MustJSON(`"` + largeText + `"`)}
	fast := largeRecord("fast")
	pod.Calls.Finish(&fast, answer, nil)
	slow := largeRecord("slow")
	for _, e := range []registry.Event{registry.EventDeliver, registry.EventRun} {
		slow.Apply(e, registry.Change{}, time.Now())
	}
	pod.rec.keepRunning(&slow)
	pod.Calls.Finish(&slow, answer, nil)
	waiting := pod.rec.queue[0]
	if rec := waiting.records; len(rec) != 2 || rec[1].Result.Output != largeText || holdsArgs(rec[1]) ||
		rec[1].ArgsDigest != want.ArgsDigest {
		t.Errorf("the slow call's record does not have its answer and digest")
	}
	for _, a := range waiting.activities {
		c := a.Call
		if c.ArgsDigest != want.ArgsDigest || holdsArgs(*c) || !c.Result.Success || c.Result.Output != "" ||
			!c.Result.Structured.IsZero() {
			t.Errorf("%s waits with its arguments or output, or without its digest", c.CallID)
		}
	}
	small := registry.NewRecord("small", "t", "tool", json.RawMessage(`{}`))
	pod.Calls.Finish(&small, answer, nil)
	if last := waiting.activities[2].Call; last.ArgsDigest != "" {
		t.Error("a short digest is not made off the critical path")
	}
}

// holdsArgs reports whether a record has arguments in memory that wait to be digested.
func holdsArgs(r registry.Record) bool { return !reflect.ValueOf(r).FieldByName("args").IsNil() }

// The queue is bounded in bytes, too, and what was dropped is counted. Room comes back as it is written.
func TestTheQueueIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hungFeed{memory.New(memory.Options{}), make(chan struct{})}
		pod := startPod(t, store, "a")
		pod.rec.activity(registry.Activity{Tenant: "t", Type: registry.ActivityUpdated, Reason: "first"})
		synctest.Wait() // it is being written
		const lines = 2 * recorderBytes / (100 << 10)
		for range lines {
			pod.rec.event(registry.CallEvent{Tenant: "t", CallID: "c1", Type: registry.CallEventProgress,
				Chunk: largeText})
		}
		held, waiting := load(pod.rec)
		if held > recorderBytes || held < recorderBytes/2-200<<10 || int64(waiting)+pod.rec.dropped.Load() != lines {
			t.Errorf("%d bytes in %d lines wait, %d were dropped", held, waiting, pod.rec.dropped.Load())
		}
		close(store.proceed)
		time.Sleep(time.Second)
		if held, waiting = load(pod.rec); held != 0 || waiting != 0 {
			t.Errorf("%d bytes are still held, %d lines wait", held, waiting)
		}
	})
}

// TestTheRecorderHasRoomForOtherTenants: neither with many lines, nor with long ones, nor with records that cannot be
// written, does a tenant take more than half of what there is.
func TestTheRecorderHasRoomForOtherTenants(t *testing.T) {
	for name, x := range map[string]struct {
		text         string
		takes, wants int // lines
	}{"many": {"", recorderQueue, 1000}, "long": {largeText, 2 * recorderBytes / (100 << 10), 50}} {
		store := &awayStore{Store: memory.New(memory.Options{})}
		store.away.Store(true)
		pod, err := NewPod(PodConfig{Store: store, Bus: &memory.Bus{}})
		if err != nil {
			t.Fatal(err)
		}
		rec := pod.rec
		record := func(tenant string, n int) {
			r := registry.NewRecord(strconv.Itoa(n), tenant, "tool", json.RawMessage(`{}`))
			r.Err = registry.Errorf(registry.CodeTimeout, "%s", x.text)
			rec.keep(r)
		}
		for _, unwritten := range []bool{true, false} {
			for i := range x.takes {
				record("greedy", i)
				if unwritten && i%recorderBatch == 0 {
					_, _ = rec.flush()
				}
			}
			dropped := rec.dropped.Load()
			if dropped == 0 {
				t.Errorf("%s: a tenant that takes all lost nothing", name)
			}
			for i := range x.wants {
				record("other", i)
			}
			if unwritten {
				for more := true; more; {
					more, _ = rec.flush()
				}
				kept := slices.ContainsFunc(rec.unwritten, func(r registry.Record) bool { return r.Tenant == "other" })
				if len(rec.unwritten) > recorderKept || !kept {
					t.Errorf("%s: of %d records that wait none is another tenant's", name, len(rec.unwritten))
				}
			} else if now := rec.dropped.Load(); now != dropped {
				t.Errorf("%s: another tenant lost %d of %d lines", name, now-dropped, x.wants)
			}
		}
		store.away.Store(false)
		for more := true; more; {
			if more, err = rec.flush(); err != nil {
				t.Fatal(err)
			}
		}
		if held, waiting := load(rec); held != 0 || waiting != 0 || len(rec.of) != 0 {
			t.Errorf("%s: %d bytes held, %d lines wait, of %v", name, held, waiting, rec.of)
		}
	}
}

// load returns how many bytes a recorder holds, and how many lines wait.
func load(r *recorder) (held, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, r.waiting
}

// What was written is let go of, also when the batch is used again, and a batch that is being written grows no more.
func TestAWrittenBatchHoldsNothing(t *testing.T) {
	pod, err := NewPod(PodConfig{Store: memory.New(memory.Options{}), Bus: &memory.Bus{}})
	if err != nil {
		t.Fatal(err)
	}
	rec := pod.rec
	fill := func(n int) {
		for range n {
			rec.activity(registry.Activity{Tenant: "t", Type: registry.ActivityUpdated, Reason: "x"})
		}
	}
	fill(recorderBatch + 1)
	first := rec.nextBatch()
	rec.keep(registry.NewRecord("c", "t", "tool", nil))
	if second := rec.nextBatch(); first.len() != recorderBatch || second.len() != 2 || second == first ||
		rec.nextBatch() != nil {
		t.Fatalf("batches of %d and %d", first.len(), second.len())
	}
	rec.release(first)
	if first.activities = first.activities[:recorderBatch]; first.activities[0].Reason != "" ||
		first.activities[recorderBatch-1].Reason != "" {
		t.Error("a written batch holds on to its lines")
	}
	first.activities = first.activities[:0]
	for range 10 * recorderSpare {
		fill(recorderBatch)
	}
	for more := true; more; {
		if more, err = rec.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := pod.Calls.Feed(t.Context(), "t", "", 2*10_000, 0); err != nil ||
		len(last) != 10_000 {
		t.Errorf("%d lines, %v", len(last), err)
	}
	if n := len(rec.spare); n != recorderSpare {
		t.Errorf("%d empty batches are kept", n)
	}
}

// brokenFeed is a store that takes events, but neither records nor activity.
type brokenFeed struct{ *memory.Store }

func (brokenFeed) AppendActivity(context.Context, []registry.Activity) error {
	return registry.StoreUnavailable("append", context.DeadlineExceeded)
}

func (brokenFeed) KeepCalls(context.Context, []registry.Record) error {
	return registry.StoreUnavailable("keep", context.DeadlineExceeded)
}

// What a store does not take is counted line by line, not batch by batch. Records are not lost yet: they are tried
// again.
func TestLostLinesAreCounted(t *testing.T) {
	pod, err := NewPod(PodConfig{Store: brokenFeed{memory.New(memory.Options{})}, Bus: &memory.Bus{}})
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		pod.rec.activity(registry.Activity{Tenant: "t", Type: registry.ActivityUpdated})
	}
	for range 3 {
		pod.rec.keep(registry.NewRecord(registry.NewCallID(), "t", "tool", nil))
	}
	if more, err := pod.rec.flush(); !more || err == nil {
		t.Fatalf("flushed: %v, %v", more, err)
	}
	if lost, again := pod.rec.dropped.Load(), len(pod.rec.unwritten); lost != 7 || again != 3 {
		t.Errorf("%d lines counted as lost, want 7, and %d records to be tried again, want 3", lost, again)
	}
}

// slowFeed is a store that takes its time for activity, and counts how often it is written to.
type slowFeed struct {
	*memory.Store
	writes, lines atomic.Int64
}

func (s *slowFeed) AppendActivity(ctx context.Context, all []registry.Activity) error {
	time.Sleep(recorderPause / 5)
	s.writes.Add(1)
	s.lines.Add(int64(len(all)))
	return s.Store.AppendActivity(ctx, all)
}

// Lines that come during a write are written with those that come soon after, and not at once by themselves.
func TestASlowStoreIsWrittenToWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pauses = 20
		store := &slowFeed{Store: memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		began := time.Now()
		n := int64(0)
		for ; time.Since(began) < pauses*recorderPause; n++ {
			pod.rec.activity(registry.Activity{Tenant: "t", Type: registry.ActivityUpdated})
			time.Sleep(time.Millisecond)
		}
		if writes := store.writes.Load(); writes > pauses {
			t.Errorf("%d writes in the time of %d pauses", writes, pauses)
		}
		time.Sleep(3 * recorderPause)
		if lines := store.lines.Load(); lines != n {
			t.Errorf("%d of %d lines are written", lines, n)
		}
	})
}

// More lines than a batch has are all written, also when none comes after them.
func TestABurstIsWrittenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowFeed{Store: memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		line := registry.Activity{Tenant: "t", Type: registry.ActivityUpdated}
		pod.rec.activity(line)
		time.Sleep(recorderPause / 2) // the writer has written it, and pauses
		for range recorderBatch + 1 {
			pod.rec.activity(line)
		}
		time.Sleep(4 * recorderPause)
		if lines := store.lines.Load(); lines != recorderBatch+2 {
			t.Errorf("%d of %d lines are written", lines, recorderBatch+2)
		}
	})
}

// awayStore is a store that keeps no records while it is away.
type awayStore struct {
	*memory.Store
	away atomic.Bool
}

func (s *awayStore) KeepCalls(ctx context.Context, records []registry.Record) error {
	if s.away.Load() {
		return registry.StoreUnavailable("keep calls", errors.New("away"))
	}
	return s.Store.KeepCalls(ctx, records)
}

// A call that somebody may have looked up while it ran is brought to its end in the store, though that was away just
// then.
func TestEndsOfCallsAreRecordedAfterTheStoreWasAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &awayStore{Store: memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		l := connect(t, pod, deafConn{}, nil)
		for _, id := range []string{"c1", "c2"} { // c2 runs when the store is away already
			ended := begin(t, pod, l.Session(), id, 5*time.Second)
			time.Sleep(400 * time.Millisecond)
			store.away.Store(true)
			l.Complete(id, registry.Result{Success: true, Output: "done"}, func(bool) {})
			if got := <-ended; got.err != nil {
				t.Fatal(got.err)
			}
		}
		time.Sleep(4 * time.Second)
		store.away.Store(false)
		time.Sleep(2 * time.Second)
		for _, id := range []string{"c1", "c2"} {
			if r, err := store.ReadCall(t.Context(), "t", id); err != nil || r.State != registry.StateSucceeded ||
				r.Late {
				t.Errorf("%s: %+v, %v", id, r, err)
			}
		}
		if held, waiting := load(pod.rec); held != 0 || waiting != 0 {
			t.Errorf("%d bytes held, %d lines wait", held, waiting)
		}
	})
}

// What cannot be written for long does not grow without end.
func TestRecordsThatWaitAreBounded(t *testing.T) {
	store := &awayStore{Store: memory.New(memory.Options{})}
	store.away.Store(true)
	pod, err := NewPod(PodConfig{Store: store, Bus: &memory.Bus{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * recorderKept {
		rec := registry.NewRecord(strconv.Itoa(i), "t", "tool", json.RawMessage(`{}`))
		rec.Err = registry.Errorf(registry.CodeTimeout, "%s", largeText)
		pod.rec.keep(rec)
		if i%recorderBatch == 0 {
			_, _ = pod.rec.flush()
		}
	}
	for more := true; more; {
		more, _ = pod.rec.flush()
	}
	if held, _ := load(pod.rec); held > recorderBytes || len(pod.rec.unwritten) > recorderKept ||
		len(pod.rec.unwritten) == 0 || pod.rec.dropped.Load() == 0 {
		t.Errorf("%d records wait, %d bytes held, %d dropped", len(pod.rec.unwritten), held, pod.rec.dropped.Load())
	}
	store.away.Store(false)
	if _, err := pod.rec.flush(); err != nil {
		t.Fatal(err)
	}
	if held, _ := load(pod.rec); held != 0 {
		t.Errorf("%d bytes held", held)
	}
}

// A caller that reads that its call is lost finds its record, although the recorder pauses between its writes.
func TestLostCallsAreRecordedFirst(t *testing.T) {
	store := memory.New(memory.Options{})
	pod := startPod(t, store, "pod")
	for i := range 20 {
		rec := registry.NewRecord(fmt.Sprint("lost-", i), "t", "tool", nil)
		rec.SessionID, rec.TimeoutMS = "s", 30_000
		rec.Apply(registry.EventRoute, registry.Change{}, time.Now())
		pod.Calls.Finish(&rec, registry.Result{}, registry.Lost().With(registry.DispatchedUnknown))
		found, err := store.ReadCall(t.Context(), "t", fmt.Sprint("lost-", i))
		if err != nil || found.State != registry.StateLost {
			t.Fatalf("record %d: %+v, %v", i, found, err)
		}
	}
}
