package routing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// A light call that waits for a person is found on every pod from the question on, and cancelling it anywhere ends the
// waiting.
func TestAttend(t *testing.T) {
	pod, other := herePods(t)
	limit, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for name, decide := range map[string]func(ctx context.Context, id string) error{
		"allowed": func(context.Context, string) error { return nil },
		"denied": func(context.Context, string) error {
			return registry.Errorf(registry.CodeApprovalDenied, "no").With(registry.DispatchedNo)
		},
		"cancelled": func(ctx context.Context, id string) error {
			if _, err := other.Calls.Cancel(limit, "t", id); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		},
		"allowed as it was cancelled": func(_ context.Context, id string) error {
			_, err := pod.Calls.Cancel(limit, "t", id)
			return err
		},
	} {
		rec := registry.NewRecord(registry.NewCallID(), "t", "clock", []byte(`{}`))
		rec.TimeoutMS = time.Minute.Milliseconds()
		err := pod.Calls.Attend(limit, &rec, func(ctx context.Context) error {
			found, err := other.Calls.Get(limit, "t", rec.CallID)
			if err != nil || found.State.Final() || found.Pod != pod.ID() {
				t.Errorf("%s: whoever is asked finds %+v, %v", name, found, err)
			}
			return decide(ctx, rec.CallID)
		})
		want := map[string]error{
			"denied": registry.CodeApprovalDenied, "cancelled": registry.CodeCancelled,
			"allowed as it was cancelled": registry.CodeCancelled,
		}[name]
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
		pod.Calls.Finish(&rec, registry.Result{Success: err == nil}, err)
		ended, err := other.Calls.Wait(limit, "t", rec.CallID, 10*time.Second)
		if err != nil || !ended.State.Final() || ended.Dispatched == registry.DispatchedYes && want != nil {
			t.Errorf("%s: its record is %+v, %v", name, ended, err)
		}
	}
}

// A waiting call begins once, on one pod, unless it was refused.
func TestHeldCallsBeginOnce(t *testing.T) {
	pod, other := herePods(t)
	limit, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	hold := func(key string) string {
		rec := registry.NewRecord(registry.NewCallID(), "t", "clock", []byte(`{}`))
		rec.Source, rec.Mode, rec.IdempotencyKey = registry.SourceLocal, registry.ModeAsync, key
		rec.HoldMS, rec.TimeoutMS = time.Minute.Milliseconds(), time.Minute.Milliseconds()
		if _, created, err := pod.Calls.Hold(limit, rec); err != nil || !created {
			t.Fatalf("held %v, %v", created, err)
		}
		return rec.CallID
	}
	run := func(context.Context, registry.Record) (registry.Result, error) {
		return registry.Result{Success: true, Output: "noon"}, nil
	}

	owner := share.Owner{Tenant: "t", Identity: "anna"}
	id := hold("")
	begun, err := other.Calls.Begin(limit, owner, id, time.Minute, run)
	if err != nil || !begun {
		t.Fatalf("begun %v, %v", begun, err)
	}
	if again, err := pod.Calls.Begin(limit, owner, id, time.Minute, run); err != nil || again {
		t.Errorf("begun again: %v, %v", again, err)
	}
	if rec, err := pod.Calls.Wait(limit, "t", id, 10*time.Second); err != nil || rec.Result == nil ||
		rec.Result.Output != "noon" {
		t.Errorf("it ends as %+v, %v", rec, err)
	}

	denied := registry.Errorf(registry.CodeApprovalDenied, "no")
	id = hold("key")
	if refused, err := other.Calls.Refuse(limit, "t", id, denied); err != nil || !refused {
		t.Fatalf("refused %v, %v", refused, err)
	}
	if refused, err := pod.Calls.Refuse(limit, "t", id, denied); err != nil || refused {
		t.Errorf("refused again: %v, %v", refused, err)
	}
	if begun, err := pod.Calls.Begin(limit, owner, id, time.Minute, run); err != nil || begun {
		t.Errorf("begun after it was refused: %v, %v", begun, err)
	}
	rec, err := pod.Calls.Get(limit, "t", id)
	if _, why := rec.Outcome(); err != nil || !errors.Is(why, registry.CodeApprovalDenied) || !rec.NeverRan() {
		t.Errorf("it ends as %+v, %v", rec, err)
	}
	hold("key") // which the refused call has left
}
