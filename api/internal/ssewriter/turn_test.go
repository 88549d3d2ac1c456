package ssewriter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A model that thinks for long does not look like a dead gateway: the answer begins, and then comments come.
func TestTurnStreamBeats(t *testing.T) {
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	opened, stopped := 0, 0
	s := &TurnStream{
		open: func() (*Stream, error) { opened++; return newStream(w, time.Now()), nil },
		stop: func() { stopped++ },
	}
	if wait := s.beat(); opened != 1 || w.Body.String() != ":\n\n" || wait < Heartbeat-time.Second {
		t.Fatalf("first: opened %d times, %q, next in %v", opened, w.Body, wait)
	}
	s.out.last = time.Now().Add(-Heartbeat)
	if wait := s.beat(); w.Body.String() != ":\n\n:\n\n" || wait < Heartbeat-time.Second {
		t.Fatalf("after silence: %q, next in %v", w.Body, wait)
	}
	s.Send("chunk", map[string]string{"content": "a"})
	s.beat()
	if want := ":\n\n:\n\nevent: chunk\ndata: {\"content\":\"a\"}\n\n"; w.Body.String() != want || opened != 1 {
		t.Fatalf("opened %d times, written %q", opened, w.Body)
	}
	w.err = errors.New("i/o timeout") // a client that takes too long
	for range 2 {
		s.Send("chunk", 1)
	}
	if s.SendText("x"); stopped != 1 || s.err == nil || s.beat() != Heartbeat {
		t.Errorf("the turn was stopped %d times", stopped)
	}
}

// A client that is gone before anything was said stops the turn.
func TestTurnStreamCannotOpen(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	s := &TurnStream{open: func() (*Stream, error) { return nil, http.ErrHandlerTimeout }, stop: stop}
	s.Send("chunk", 1)
	s.beat()
	if ctx.Err() == nil || s.out != nil {
		t.Error("the turn goes on")
	}
}

// A long text is written in parts, after what came before it, and leaves no long buffer behind. A client that was
// disconnected for others gets no further part.
func TestTurnStreamParts(t *testing.T) {
	w := &clock{ResponseRecorder: httptest.NewRecorder()}
	out, parts, stopped := newStream(w, time.Now()), 3, 0
	s := &TurnStream{open: func() (*Stream, error) { return out, nil }, stop: func() { stopped++ }}
	next := func(*http.ResponseController) bool { parts--; return parts >= 0 }
	out.buffer.WriteString("before ")
	if s.SendParts([]byte("a b c"), 2, next); parts != 0 || w.Body.String() != "before a b c" || s.err != nil {
		t.Fatalf("%d parts are left, written %q, %v", parts, w.Body, s.err)
	}
	s.SendRaw(make([]byte, 2*keptBuffer))
	if n := out.buffer.Cap(); n > keptBuffer {
		t.Errorf("%d bytes are kept", n)
	}
	for range 2 {
		if s.SendParts([]byte("more"), 2, next); stopped != 1 || s.err == nil {
			t.Errorf("the turn was stopped %d times", stopped)
		}
	}
	if strings.Contains(w.Body.String(), "more") {
		t.Error("a part was written to a client that was disconnected")
	}
}
