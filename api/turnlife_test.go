package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// A turn has many tokens to wait for: nobody pays for them once the caller is gone.
func TestHangingUpStopsTheTurn(t *testing.T) {
	for _, r := range []request{
		{path: messagesOfS1, body: `{"content":"hi"}`},
		{path: messagesOfS1, body: `{"content":"hi","stream":true}`},
		{path: completionsPath, body: `{"model":"farhand","messages":[{"role":"user","content":"hi"}]}`},
		{path: completionsPath, body: `{"model":"farhand","messages":[{"role":"user","content":"hi"}],"stream":true}`},
	} {
		a, stopped := endless(false)
		f := talking(t, a)
		ctx, disconnect := context.WithCancel(t.Context())
		r.method, r.ctx = http.MethodPost, ctx
		gone := make(chan error, 1)
		go func() {
			_, err := f.try(r)
			gone <- err
		}()
		if r.path == messagesOfS1 {
			await(t, "the question", a.asked)
		} else {
			await(t, "the question", a.completed)
		}
		disconnect()
		if err := await(t, "the end of the turn", stopped); !errors.Is(err, context.Canceled) {
			t.Errorf("%s %s: the turn ended with %v", r.path, r.body, err)
		}
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

// The client of a stream is there until it goes, and what was said comes at once.
func TestHangingUpInTheMiddle(t *testing.T) {
	a, stopped := endless(true)
	f := talking(t, a)
	ctx, disconnect := context.WithCancel(t.Context())
	defer disconnect()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.pods[0].server.URL+messagesOfS1,
		strings.NewReader(`{"content":"hi","stream":true}`))
	f.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := f.pods[0].server.Client().Do(req)
	f.must(err)
	defer resp.Body.Close()
	const first = "event: chunk\ndata: {\"type\":\"chunk\",\"content\":\"well\"}\n\n"
	got := make([]byte, len(first))
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != first {
		t.Fatalf("%v, %q", err, got)
	}
	disconnect()
	if err := await(t, "the end of the turn", stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("the turn ended with %v", err)
	}
}

// A pod that stops begins nothing that is long.
func TestTurnsWhileDraining(t *testing.T) {
	draining, drain := context.WithCancel(t.Context())
	a := oneTurn()
	f := newFleet(t, setup{change: func(c *api.Config) { a.join(c); c.Draining = draining }})
	f.connect(0, session("s1"), echo)
	drain()
	wantProblem(f.post(messagesOfS1, `{"content":"hi"}`), 503, registry.CodeDraining)
	wantProblem(f.post(messagesOfS1, `{"content":"hi","stream":true}`), 503, registry.CodeDraining)
	r := f.post(completionsPath, `{"model":"farhand","messages":[{"role":"user","content":"hi"}]}`)
	if got := decode[failure](r, 503); got.Error.Type != "server_error" || r.header.Get("Retry-After") == "" {
		t.Errorf("%+v, %v", got, r.header)
	}
	if r := f.get("/v1/models"); r.status != 200 {
		t.Errorf("status %d", r.status)
	}
}

// Streamed turns are streams like others: a pod serves a bounded number.
func TestTooManyStreamedTurns(t *testing.T) {
	a, stopped := endless(true)
	f := newFleet(t, setup{change: func(c *api.Config) { a.join(c); c.MaxStreams = 1 }})
	f.connect(0, session("s1"), echo)
	ctx, disconnect := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := f.try(request{method: http.MethodPost, path: messagesOfS1, body: `{"content":"hi","stream":true}`,
			ctx: ctx})
		gone <- err
	}()
	await(t, "the question", a.asked)
	wantProblem(f.post(messagesOfS1, `{"content":"hi","stream":true}`), 429, registry.CodeBusy)
	disconnect()
	await(t, "the end of the turn", stopped)
	<-gone
}
