package routing

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// unheardClaims is a store that claims durable calls, and whose answer to that is lost.
type unheardClaims struct{ *memory.Store }

func (s unheardClaims) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	moved, err := s.Store.MoveCall(ctx, tenant, callID, e, c)
	if e == registry.EventDeliver && err == nil {
		return registry.Moved{}, registry.StoreUnavailable("claim", context.DeadlineExceeded)
	}
	return moved, err
}

// A pod that does not hear that it has claimed a call refuses it. Its caller hears so at once, and the record agrees:
// nothing ran.
func TestAClaimNobodyHeardOfIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := unheardClaims{memory.New(memory.Options{})}
		asking, owning := startPod(t, store, "a"), startPod(t, store, "b")
		l := connect(t, owning, deafConn{}, nil)
		rec := registry.NewRecord("c1", "t", "tool", json.RawMessage(`{}`))
		rec.SessionID, rec.TimeoutMS, rec.IdempotencyKey = "s", 60_000, "k"
		began := time.Now()
		_, _, err := asking.Calls.Start(t.Context(), rec, func(ctx context.Context) (registry.Result, error) {
			return asking.Router.Call(ctx, registry.Call{
				ID: "c1", Route: registry.Route{Session: l.Session(), Spec: testTool(t, "tool")},
				Args: registry.MustJSON(`{}`), Timeout: time.Minute, Durable: true,
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := asking.Calls.WaitOutcome(t.Context(), "t", "c1", time.Minute)
		if took := time.Since(began); err != nil || got.State != registry.StateRejected ||
			got.Dispatched != registry.DispatchedNo || took > time.Second {
			t.Errorf("after %v: %s, dispatched %s, %v", took, got.State, got.Dispatched, err)
		}
		if _, err := asking.Calls.ByKey(t.Context(), "t", "k"); !registry.IsCallNotFound(err) {
			t.Errorf("the key of a call that never ran is not free: %v", err)
		}
	})
}

// A device answers that its tool failed while its caller hangs up, and answers once more. The second answer does not
// count, although the record of the call tells of its end as if there had been no answer.
func TestSecondAnswerAfterAFailureThatCrossedTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		l := connect(t, pod, deafConn{}, nil)
		rec := registry.NewRecord("c1", "t", "tool", json.RawMessage(`{}`))
		rec.SessionID = "s"
		ctx, disconnect := context.WithCancel(t.Context())
		recorded, ended := make(chan struct{}), make(chan struct{})
		go func() {
			res, err := pod.Router.Call(ctx, registry.Call{
				ID: "c1", Route: registry.Route{Session: l.Session(), Spec: testTool(t, "tool")},
				Args: registry.MustJSON(`{}`), Timeout: time.Minute, Record: &rec,
			})
			<-recorded
			pod.Calls.Finish(&rec, res, err)
			close(ended)
		}()
		time.Sleep(time.Second) // it has a record
		disconnect()
		synctest.Wait()
		acks := make(chan bool, 2)
		answer := func(success bool, output string) {
			l.Complete("c1", registry.Result{Success: success, Output: output}, func(i bool) { acks <- i })
			time.Sleep(time.Second)
		}
		answer(false, "failed")
		close(recorded)
		<-ended
		time.Sleep(time.Second)
		answer(true, "second")
		if first, second := <-acks, <-acks; first || !second {
			t.Errorf("ignored: the first %v, the second %v", first, second)
		}
	})
}

// strictStore takes no command of a context that has ended.
type strictStore struct{ *memory.Store }

func (s strictStore) WatchCall(ctx context.Context, tenant, callID, pod string) (registry.Record, error) {
	if err := ctx.Err(); err != nil {
		return registry.Record{}, registry.StoreUnavailable("watch", err)
	}
	return s.Store.WatchCall(ctx, tenant, callID, pod)
}

// A caller whose time is up at the very moment up to which it waits hears how its call stands.
func TestTheLastLookWhenTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := strictStore{memory.New(memory.Options{})}
		pod := startPod(t, store, "a")
		rec := registry.NewRecord("c1", "t", "tool", nil)
		rec.TimeoutMS = 3_600_000
		if _, _, err := store.CreateCall(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		for range 100 { // both ends come together, and either may be seen first
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := pod.Calls.WaitOutcome(ctx, "t", "c1", 10*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	})
}

// Of a call whose record was wiped the feed tells that it succeeded, and not what the tool returned: no answer for its
// caller.
func TestASummaryIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := startPod(t, memory.New(memory.Options{}), "a")
		rec := registry.NewRecord("c1", "t", "tool", json.RawMessage(`{}`))
		pod.Calls.Finish(&rec, registry.Result{Success: true, Output: "forty-two"}, nil)
		time.Sleep(time.Second)
		if got, err := pod.Calls.WaitOutcome(t.Context(), "t", "c1", time.Second); !registry.IsCallNotFound(err) {
			t.Errorf("its caller hears %s, %+v, %v", got.State, got.Result, err)
		}
		if got, err := pod.Calls.Wait(t.Context(), "t", "c1", time.Second); err != nil ||
			got.State != registry.StateSucceeded {
			t.Errorf("others hear %s, %v", got.State, err)
		}
	})
}
