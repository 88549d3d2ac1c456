package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// clock is a response writer that remembers every deadline it was given, and may fail.
type clock struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	err       error
}

func (c *clock) SetWriteDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

func (c *clock) Write(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	return c.ResponseRecorder.Write(p)
}

func newStream(w http.ResponseWriter, last time.Time) *stream {
	return &stream{w: w, control: http.NewResponseController(w), last: last}
}

// A silent stream shows that it lives, not sooner and not more often than needed.
func TestHeartbeat(t *testing.T) {
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	s := newStream(w, time.Now().Add(-heartbeat+time.Second))
	if err := s.flush(); err != nil || w.Body.Len() != 0 || s.silence() <= 0 {
		t.Fatalf("after 14 s: %v, %q", err, w.Body)
	}
	s.last = time.Now().Add(-heartbeat)
	for range 2 {
		if err := s.flush(); err != nil || w.Body.String() != ":\n\n" {
			t.Fatalf("after 15 s: %v, %q", err, w.Body)
		}
	}
}

// Every write has its own deadline, and none remains between writes: an event may come in an hour.
func TestStreamDeadlines(t *testing.T) {
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	s := newStream(w, time.Now())
	for range 2 {
		w.deadlines = nil
		if err := errors.Join(s.put("1-1", "state", struct{}{}), s.put("", "state", "<a>\n"), s.flush()); err != nil {
			t.Fatal(err)
		}
		if len(w.deadlines) != 2 || time.Until(w.deadlines[0]) > streamWriteTimeout || time.Until(w.deadlines[0]) < streamWriteTimeout-time.Second ||
			!w.deadlines[1].IsZero() {
			t.Fatalf("deadlines %v", w.deadlines)
		}
	}
	const once = "id: 1-1\nevent: state\ndata: {}\n\nevent: state\ndata: \"<a>\\n\"\n\n"
	if w.Body.String() != once+once {
		t.Errorf("written %q", w.Body)
	}
	w.err = errors.New("i/o timeout") // a client that takes too long
	if err := errors.Join(s.put("2-1", "state", 1), s.flush()); err == nil {
		t.Error("nobody notices that the client is too slow")
	}
}

// slowLog is a ledger whose log never tells how the call ended.
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
	ledger := &slowLog{
		events: []registry.CallEvent{{ID: "5-1", CallID: "c", Type: registry.CallEventState, State: registry.StateAccepted}},
		rec:    registry.Record{CallID: "c", State: registry.StateLost, Deadline: time.Now()},
	}
	f := &follower{calls: ledger, rooms: newResponses(DefaultMaxResponseBytes), id: "c"}
	if err := f.begin(t.Context()); err != nil || f.told {
		t.Fatalf("begin: %v, told %v", err, f.told)
	}
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	if err := f.run(t.Context(), newStream(w, time.Now())); err != nil {
		t.Fatal(err)
	}
	const want = "id: 5-1\nevent: state\ndata: {\"call_id\":\"c\",\"type\":\"state\",\"state\":\"accepted\",\"at\":\"0001-01-01T00:00:00.000Z\"}\n\n" +
		"event: state\ndata: {\"call_id\":\"c\",\"type\":\"state\",\"state\":\"lost\",\"at\":\"0001-01-01T00:00:00.000Z\"}\n\n"
	if w.Body.String() != want {
		t.Errorf("written %q", w.Body)
	}
}

// A call whose record expires while it is followed has no more to tell.
func TestRecordExpiresWhileFollowed(t *testing.T) {
	ledger := &slowLog{rec: registry.Record{CallID: "c", State: registry.StateRunning, Deadline: time.Now()}}
	f := &follower{calls: ledger, rooms: newResponses(DefaultMaxResponseBytes), id: "c"}
	if err := f.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	ledger.err = registry.ErrNoCall
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	if err := f.run(t.Context(), newStream(w, time.Now())); err != nil || w.Body.Len() != 0 {
		t.Errorf("%v, written %q", err, w.Body)
	}
}
