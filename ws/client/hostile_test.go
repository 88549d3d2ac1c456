package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Tests against a gateway that means harm.

// A time that a gateway says neither overflows nor keeps the device away for good.
func TestTimesOfGatewaysAreBounded(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]time.Duration{
		"2": 2 * time.Second, "-5": 0, "soon": 0, "99999999999999999999": 0,
		"86401": 24 * time.Hour, "9223372036": 24 * time.Hour, "9300000000": 24 * time.Hour,
	} {
		resp := &http.Response{
			StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {said}},
			Body: io.NopCloser(strings.NewReader("")),
		}
		if got := refusal(resp).retryAfter; got != want {
			t.Errorf("Retry-After %s: %v, want %v", said, got, want)
		}
	}
}

// The token is for the gateway that it was given with: no answer of it sends the client elsewhere.
func TestNoGatewaySendsElsewhere(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was asked elsewhere, with %q", r.Method, r.URL, r.Header.Get("Authorization"))
	}))
	t.Cleanup(elsewhere.Close)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(gateway.Close)
	var refused *RefusedError
	_, err := Pair(t.Context(), gateway.URL, PairOptions{Show: func(string, time.Time) {}})
	if !errors.As(err, &refused) || refused.Status != http.StatusTemporaryRedirect {
		t.Errorf("to pair: %v", err)
	}
	base, err := endpoint(gateway.URL)
	if err != nil {
		t.Fatal(err)
	}
	web := newWeb(base, nil)
	defer web.client.CloseIdleConnections()
	if _, err := web.sign(t.Context(), Credential{Token: "secret", DeviceID: "d-1"}); !errors.As(err, &refused) {
		t.Errorf("to sign: %v", err)
	}
}

// The ids of calls that are remembered are short: a gateway could else fill the device's memory with four thousand of
// them.
func TestLongIDsOfCallsAreNotRemembered(t *testing.T) {
	t.Parallel()
	var m mcpCalls
	for _, n := range []int{10, 1 << 20} {
		m.begin(fmt.Appendf(nil, "%q", strings.Repeat("x", n)))
	}
	if lost := m.end(); len(lost) != 1 {
		t.Errorf("%d calls are remembered", len(lost))
	}
}

// Calls that wait hold a bounded part of the device's memory, and only ids as long as a gateway's are kept.
func TestCallsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	const size = 4 << 20 // of a frame
	started, end := make(chan struct{}, maxPending), make(chan struct{})
	c, err := New("ws://127.0.0.1:1", WithTool(Tool{Name: "wait", Description: "x"},
		func(context.Context, Call) (any, error) {
			started <- struct{}{}
			<-end
			return nil, nil
		}), WithParallelism(maxPending))
	if err != nil {
		t.Fatal(err)
	}
	args, id := `{"a":"`+strings.Repeat("x", size)+`"}`, 0
	call := func(name string) {
		id++
		c.startCall(t.Context(), &received{ID: fmt.Sprint(name, id), Name: "wait", Args: []byte(args)})
	}
	for range 3 * maxPendingBytes / size {
		call("c")
	}
	c.calls.mu.Lock()
	n, held := len(c.calls.pending), c.calls.held
	c.calls.mu.Unlock()
	if held > maxPendingBytes || n < maxPendingBytes/size-1 {
		t.Errorf("%d calls wait, with %d bytes", n, held)
	}
	for range n {
		<-started
	}
	close(end)
	c.calls.done.Wait()
	if c.calls.held != 0 {
		t.Errorf("%d bytes are held without calls", c.calls.held)
	}
	args = `{"a":"` + strings.Repeat("x", 2*maxPendingBytes) + `"}`
	call("alone")
	c.calls.done.Wait()
	<-started // one that is larger than all may be runs when it is the only one
	args = "{}"
	call(strings.Repeat("x", maxCallID))
	c.calls.done.Wait()
	select {
	case <-started:
		t.Error("a call with a long id ran")
	default:
	}
	for id := range c.calls.answers.byID {
		if len(id) > maxCallID {
			t.Errorf("an id of %d bytes is kept", len(id))
		}
	}
}
