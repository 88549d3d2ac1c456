package ssewriter

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
