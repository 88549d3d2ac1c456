package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

func TestTimeoutAtTheAskedTime(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	f.connect(1, session("s1"), silent, tools("t")...)
	for pod := range f.pods {
		start := time.Now()
		r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: `{"timeout_ms":2000}`, pod: pod})
		took := time.Since(start)
		p := wantProblem(r, 504, registry.CodeTimeout)
		if took < 1990*time.Millisecond || took > 15*time.Second || p.Dispatched != registry.DispatchedYes ||
			*p.Retryable {
			t.Errorf("pod %d: after %v: %+v", pod, took, p)
		}
	}
}

// A timeout nobody grants is cut, however absurd, and its write deadline does not overflow.
func TestAbsurdTimeoutIsClamped(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	for _, ms := range []string{"9223372036854775807", "99999999999999999999999999", "86400000"} {
		decode[answer](f.post("/api/tools/t/call", `{"timeout_ms":`+ms+`}`), 200)
		if sent := d.delivered(); sent.Timeout > time.Minute || sent.Timeout < 50*time.Second {
			t.Errorf("timeout_ms %s became %v", ms, sent.Timeout)
		}
	}
}

func TestBusy(t *testing.T) {
	f := newFleet(t, setup{maxInFlight: 1})
	release := make(chan struct{})
	d := f.connect(0, session("s1"), func(c routing.DeviceCall) (registry.Result, bool) {
		<-release
		return echo(c)
	}, tools("t")...)
	first := make(chan reply, 1)
	go func() {
		r, _ := f.try(request{method: http.MethodPost, path: "/api/tools/t/call"})
		first <- r
	}()
	d.delivered()
	r := f.post("/api/tools/t/call", "")
	p := wantProblem(r, 429, registry.CodeBusy)
	if r.header.Get("Retry-After") != "1" || p.Dispatched != registry.DispatchedNo || !*p.Retryable {
		t.Errorf("Retry-After %q, %+v", r.header.Get("Retry-After"), p)
	}
	close(release)
	decode[answer](<-first, 200)
}

func TestDeviceDisconnectsDuringCall(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	for pod := range f.pods {
		d := f.connect(1, session("s1"), silent, tools("t")...)
		result := make(chan reply, 1)
		go func() {
			r, _ := f.try(request{method: http.MethodPost, path: "/api/tools/t/call", pod: pod})
			result <- r
		}()
		d.delivered()
		d.gone()
		if p := wantProblem(<-result, 502, registry.CodeConnectionLost); p.Dispatched != registry.DispatchedYes {
			t.Errorf("problem %+v", p)
		}
	}
}

// finished is a hook that reports how calls ended.
type finished chan error

func (finished) Name() string { return "finished" }

func (f finished) After(_ context.Context, _ agent.Invocation, _ agent.Outcome, err error) { f <- err }

func TestCallerHangsUp(t *testing.T) {
	ended := make(finished, 1)
	f := newFleet(t, setup{hooks: []agent.Hook{ended}, maxInFlight: 1})
	d := f.connect(0, session("s1"), silent, tools("t")...)
	for range 3 { // more often than there are slots: each one is freed
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := f.try(request{method: http.MethodPost, path: "/api/tools/t/call", ctx: ctx, body: `{"args":{}}`})
			gone <- err
		}()
		d.delivered()
		cancel()
		select {
		case err := <-ended:
			e := registry.AsError(err)
			if e.Code != registry.CodeCancelled || e.Dispatched != registry.DispatchedYes {
				t.Fatalf("the call ended with %v", err)
			}
		case <-time.After(testTimeout):
			t.Fatal("the call goes on although its caller is gone")
		}
		if <-gone == nil {
			t.Error("the caller got an answer")
		}
	}
}

func TestManyCallsOnOneConnection(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	conn, err := net.Dial("tcp", f.pods[0].server.Listener.Addr().String())
	f.must(err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i := range 3 {
		_, err = fmt.Fprintf(conn,
			"POST /api/tools/t/call HTTP/1.1\r\nHost: x\r\nAuthorization: bearer %s\r\nContent-Length: 2\r\n\r\n{}",
			token)
		f.must(err)
		resp, err := http.ReadResponse(in, nil)
		f.must(err)
		var a answer
		f.must(json.NewDecoder(resp.Body).Decode(&a))
		resp.Body.Close()
		if resp.StatusCode != 200 || !a.Success {
			t.Fatalf("request %d: status %d", i, resp.StatusCode)
		}
	}
}

// Calls are served while the pod drains. Only readiness answers no.
func TestCallsWhileDraining(t *testing.T) {
	drained, drain := context.WithCancel(t.Context())
	drain()
	f := newFleet(t, setup{change: func(c *api.Config) { c.Draining = drained }})
	f.connect(0, session("s1"), echo, tools("t")...)
	decode[answer](f.post("/api/tools/t/call", ""), 200)
	r := f.get("/readyz")
	wantProblem(r, 503, registry.CodeDraining)
	if r.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
	}
}

// noticed is a log of calls that says when somebody begins to wait for one.
type noticed struct {
	api.Calls
	waits chan struct{}
}

func (n noticed) Wait(ctx context.Context, tenant, id string, wait time.Duration) (registry.Record, error) {
	n.waits <- struct{}{}
	return n.Calls.Wait(ctx, tenant, id, wait)
}

// A request that waits for a call is answered when its pod begins to stop, with what is known by then.
func TestWaitsEndWhenThePodDrains(t *testing.T) {
	draining, drain := context.WithCancel(t.Context())
	waits := make(chan struct{}, 64)
	f := newFleet(t, setup{change: func(c *api.Config) { c.Draining, c.Calls = draining, noticed{c.Calls, waits} }})
	f.connect(0, session("s1"), silent, tools("t")...)
	a, _ := f.start(0, `{"mode":"async"}`)
	answered := make(chan reply, 1)
	go func() {
		r, _ := f.try(request{path: "/api/calls/" + a.CallID + "?wait_ms=60000"})
		answered <- r
	}()
	await(t, "the request to wait", waits)
	drain()
	r := await(t, "the answer", answered)
	if rec := decode[record](r, 200); rec.State.Final() {
		t.Errorf("answered with %s", r.body)
	}
	if !r.last {
		t.Error("the connection stays open: its next request may meet a pod that is gone")
	}
}
