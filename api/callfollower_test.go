package api

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/registry"
)

// slowLog is a log of calls that never tells how the call ended.
type slowLog struct {
	Calls
	events []registry.CallEvent
	rec    registry.Record
	err    error
}

func (s *slowLog) Events(_ context.Context, _, _, after string) ([]registry.CallEvent, registry.Record, error) {
	if after == "" {
		return s.events, s.rec, s.err
	}
	return nil, s.rec, s.err
}

// The end of a call is told even if its log lost it; such an event has no place in the log, so it has no id.
func TestEndMissingInTheLog(t *testing.T) {
	calls := &slowLog{
		events: []registry.CallEvent{{ID: "5-1", CallID: "c", Type: registry.CallEventState,
			State: registry.StateAccepted}},
		rec: registry.Record{CallID: "c", State: registry.StateLost, Deadline: time.Now()},
	}
	f := &follower{calls: calls, budget: newResponses(64 << 20), id: "c"}
	if err := f.begin(t.Context()); err != nil || f.sent {
		t.Fatalf("begin: %v, sent %v", err, f.sent)
	}
	w := httptest.NewRecorder()
	if err := f.writeAll(t.Context(), ssewriter.New(w)); err != nil {
		t.Fatal(err)
	}
	const want = `id: 5-1
event: state
data: {"call_id":"c","type":"state","state":"accepted","at":"0001-01-01T00:00:00.000Z"}

event: state
data: {"call_id":"c","type":"state","state":"lost","at":"0001-01-01T00:00:00.000Z"}

`
	if w.Body.String() != want {
		t.Errorf("written %q", w.Body)
	}
}

// A call whose record expires while it is followed has no more to tell.
func TestRecordExpiresWhileFollowed(t *testing.T) {
	calls := &slowLog{rec: registry.Record{CallID: "c", State: registry.StateRunning, Deadline: time.Now()}}
	f := &follower{calls: calls, budget: newResponses(64 << 20), id: "c"}
	if err := f.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls.err = registry.ErrNoCall
	w := httptest.NewRecorder()
	if err := f.writeAll(t.Context(), ssewriter.New(w)); err != nil || w.Body.Len() != 0 {
		t.Errorf("%v, written %q", err, w.Body)
	}
}
