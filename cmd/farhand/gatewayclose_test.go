package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// hurried is a context whose end is always near and never comes.
type hurried struct{ context.Context }

// Deadline implements context.Context.
func (hurried) Deadline() (time.Time, bool) { return time.Now().Add(time.Millisecond), true }

// TestCloseWaitsForLastWords: a request that is ended when no gentle time is left still has its answer written.
func TestCloseWaitsForLastWords(t *testing.T) {
	t.Parallel()
	const lastWords = "the pod is stopping"
	begun, closed := make(chan struct{}), make(chan error, 1)
	handler := func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		select {
		case err := <-closed:
			t.Errorf("closed before the answer was written: %v", err)
		case <-time.After(300 * time.Millisecond): // for a Close that does not wait to show itself
		}
		_, _ = io.WriteString(w, lastWords)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base, end := context.WithCancelCause(context.Background())
	g := &Gateway{listener: listener, endRequests: end, beginDrain: func() {}, serveErr: make(chan error, 1), server: &http.Server{
		Handler: http.HandlerFunc(handler), BaseContext: func(net.Listener) context.Context { return base },
	}}
	go func() { g.serveErr <- g.server.Serve(listener) }()
	answered := make(chan string, 1)
	go func() {
		defer close(answered)
		resp, err := http.Get(g.URL())
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answered <- string(body)
	}()
	<-begun
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	closed <- g.Close(hurried{ctx})
	if got := <-answered; got != lastWords {
		t.Errorf("the caller read %q", got)
	}
	<-g.serveErr
}
