package ssewriter

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func newStream(w http.ResponseWriter, last time.Time) *Stream {
	s := New(w)
	s.last = last
	return s
}

// A silent stream shows that it lives, not sooner and not more often than needed.
func TestHeartbeat(t *testing.T) {
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	s := newStream(w, time.Now().Add(-Heartbeat+time.Second))
	if err := s.Flush(); err != nil || w.Body.Len() != 0 || s.UntilHeartbeat() <= 0 {
		t.Fatalf("after 14 s: %v, %q", err, w.Body)
	}
	s.last = time.Now().Add(-Heartbeat)
	for range 2 {
		if err := s.Flush(); err != nil || w.Body.String() != ":\n\n" {
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
		if err := errors.Join(s.Put("1-1", "state", struct{}{}), s.Put("", "state", "<a>\n"), s.Flush()); err != nil {
			t.Fatal(err)
		}
		if len(w.deadlines) != 2 || time.Until(w.deadlines[0]) > writeTimeout ||
			time.Until(w.deadlines[0]) < writeTimeout-time.Second ||
			!w.deadlines[1].IsZero() {
			t.Fatalf("deadlines %v", w.deadlines)
		}
	}
	const once = "id: 1-1\nevent: state\ndata: {}\n\nevent: state\ndata: \"<a>\\n\"\n\n"
	if w.Body.String() != once+once {
		t.Errorf("written %q", w.Body)
	}
	w.err = errors.New("i/o timeout") // a client that takes too long
	if err := errors.Join(s.Put("2-1", "state", 1), s.Flush()); err == nil {
		t.Error("nobody notices that the client is too slow")
	}
}
