package routing

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A device gives back only calls that it has. One with a record can be sent again, unless its device had begun with it.
func TestDevicesGiveCallsBack(t *testing.T) {
	store := memory.New(memory.Options{})
	pod := startPod(t, store, "a")
	l := connect(t, pod, deafConn{}, nil)
	has := func(id string) bool { _, ok := l.Remaining(id); return ok }
	l.Return("unknown", "why")

	ended := begin(t, pod, l.Session(), "light", time.Minute)
	testkit.Eventually(t, "the device has the call", func() bool { return has("light") })
	l.Return("light", "why")
	l.Return("light", "again")
	if got := <-ended; !errors.Is(got.err, registry.CodeAsksPerson) || registry.AsError(got.err).Message != "why" ||
		registry.AsError(got.err).Dispatched != registry.DispatchedNo {
		t.Errorf("%+v", got)
	}

	for id, begun := range map[string]bool{"kept": false, "begun": true} {
		rec := registry.NewRecord(id, "t", "tool", json.RawMessage(`{}`))
		rec.SessionID, rec.TimeoutMS = "s", time.Minute.Milliseconds()
		if _, _, err := store.CreateCall(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		ended = begin(t, pod, l.Session(), id, time.Minute, func(c *registry.Call) { c.Durable = true })
		state := func() registry.State {
			r, err := store.ReadCall(t.Context(), "t", id)
			if err != nil {
				t.Fatal(err)
			}
			return r.State
		}
		testkit.Eventually(t, "the device has the call", func() bool {
			return has(id) && state() == registry.StateDelivered
		})
		want, left := registry.CodeAsksPerson, registry.StateAccepted
		if begun {
			if err := l.Progress(id, nil, nil, "", ""); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, "the call runs", func() bool { return state() == registry.StateRunning })
			want, left = registry.CodeApprovalDenied, registry.StateRunning
		}
		l.Return(id, "why")
		if got := <-ended; !errors.Is(got.err, want) || state() != left {
			t.Errorf("%s: %+v, the record is %s", id, got, state())
		}
	}
}
