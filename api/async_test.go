package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// record is a call's record as a client reads it.
type record struct {
	CallID     string `json:"call_id"`
	ApprovalID string `json:"approval_id"`
	Tool       string
	SessionID  string `json:"session_id"`
	DeviceID   string `json:"device_id"`
	Mode       string
	State      registry.State
	Status     registry.Status
	TurnID     string `json:"turn_id"`
	Dispatched registry.Dispatched
	Retryable  *bool
	Late       bool
	Timeline   []struct{ State registry.State }
	TimeoutMS  int64  `json:"timeout_ms"`
	ArgsDigest string `json:"args_digest"`
	Pod, Owner string
	Success    *bool
	OutputKept *bool `json:"output_kept"`
	Output     *string
	Structured json.RawMessage
	Error      string
	Problem    *struct {
		Code   registry.Code
		Detail string
	}
}

func (r record) states() []registry.State {
	var all []registry.State
	for _, step := range r.Timeline {
		all = append(all, step.State)
	}
	return all
}

// gate is a device that answers when it is told to.
func gate() (answer func(routing.DeviceCall) (registry.Result, bool), open func()) {
	opened := make(chan struct{})
	return func(c routing.DeviceCall) (registry.Result, bool) {
		<-opened
		return echo(c)
	}, func() { close(opened) }
}

// start begins an asynchronous call on a pod.
func (f *fleet) start(pod int, body string) (answer, reply) {
	f.Helper()
	r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body, pod: pod})
	return decode[answer](r, 202), r
}

// record reads a call's record from a pod.
func (f *fleet) record(pod int, id, query string) record {
	f.Helper()
	return decode[record](f.send(request{path: "/api/calls/" + id + query, pod: pod}), 200)
}

func TestAsyncCall(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	s := session("s1")
	s.DeviceID = "phone-1"
	answers, open := gate()
	d := f.connect(1, s, answers, tools("t")...)
	a, r := f.start(0, `{"mode":"async","args":{"n":1},"timeout_ms":20000}`)
	if a.State != "accepted" || a.SessionID != "s1" || a.DeviceID != "phone-1" || a.CallID == "" ||
		r.header.Get("Location") != "/api/calls/"+a.CallID || r.header.Get("X-Farhand-Call-Id") != a.CallID {
		t.Fatalf("answer %s, headers %v", r.body, r.header)
	}
	if sent := d.delivered(); sent.ID != a.CallID {
		t.Fatalf("the device was sent %+v", sent)
	}
	// A wait that ends before the call does tells how it stands.
	if rec := f.record(1, a.CallID, "?wait_ms=10"); rec.State != registry.StateDelivered || rec.Retryable != nil ||
		rec.Success != nil {
		t.Fatalf("record %+v", rec)
	}
	waiting := make(chan reply, 1)
	go func() {
		r, _ := f.try(request{path: r.header.Get("Location") + "?wait_ms=30000", pod: 1})
		waiting <- r
	}()
	open()
	rec := decode[record](await(t, "the end of the call", waiting), 200)
	if rec.State != registry.StateSucceeded || !*rec.Success || *rec.Output != `{"n":1}` ||
		string(rec.Structured) != `{"n":1}` ||
		rec.Mode != "async" || rec.Dispatched != registry.DispatchedYes || rec.Late || rec.Pod != "pod-0" ||
		rec.Owner != "pod-1" ||
		rec.TimeoutMS != 20000 || len(rec.ArgsDigest) != 64 || rec.Problem != nil || rec.DeviceID != "phone-1" {
		t.Fatalf("record %+v", rec)
	}
	equal(t, "timeline", rec.states(), []registry.State{"accepted", "delivered", "succeeded"})
	// What is final is told at once, however long one would wait, and can be cached.
	again := f.send(request{path: "/api/calls/" + a.CallID + "?wait_ms=60000"})
	if tag := again.header.Get("ETag"); f.send(request{
		path: "/api/calls/" + a.CallID, header: http.Header{"If-None-Match": {tag}},
	}).status != http.StatusNotModified {
		t.Errorf("a record that has not changed is sent again, ETag %q", tag)
	}
}

// An asynchronous call goes on when its caller has gone, and is refused at once when it cannot begin.
func TestAsyncCallThatCannotBegin(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tool("t", "", `{"type":"object","required":["a"]}`))
	for body, want := range map[string]registry.Code{
		`{"mode":"async"}`: registry.CodeInvalidArguments,
		`{"mode":"async","target":{"session_id":"x"}}`:            registry.CodeSessionNotFound,
		`{"mode":"async","idempotency_key":"k","args":{"b":1}}`:   registry.CodeInvalidArguments,
		`{"mode":"async","idempotency_key":"a b","args":{"a":1}}`: registry.CodeInvalidRequest,
	} {
		r := f.post("/api/tools/t/call", body)
		if p := decode[problem](r, r.status); p.Code != want || p.Dispatched != registry.DispatchedNo ||
			r.header.Get("Location") != "" {
			t.Errorf("%s: %s", body, r.body)
		}
	}
}

func TestWaitIsChecked(t *testing.T) {
	f := newFleet(t, setup{})
	id := registry.NewCallID()
	for _, wait := range []string{"-1", "60001", "1.5", "x", "99999999999999999999", "+1", ""} {
		wantProblem(f.get("/api/calls/"+id+"?wait_ms="+wait), 400, registry.CodeInvalidRequest)
	}
	for _, wait := range []string{"0", "60000"} { // an unknown call is not waited for
		wantProblem(f.get("/api/calls/"+id+"?wait_ms="+wait), 404, registry.CodeCallNotFound)
	}
}

// The device's answer is kept although its caller has been told that there was none in time.
func TestLateResult(t *testing.T) {
	for _, body := range []string{`{"timeout_ms":2000}`, `{"timeout_ms":2000,"idempotency_key":"k"}`} {
		f := newFleet(t, setup{pods: 2})
		d := f.connect(1, session("s1"), silent, tools("t")...)
		p := wantProblem(f.post("/api/tools/t/call", body), 504, registry.CodeTimeout)
		rec := f.record(1, p.CallID, "?wait_ms=5000")
		if rec.State != registry.StateTimedOut || rec.Problem.Code != registry.CodeTimeout || rec.Late ||
			rec.Dispatched != registry.DispatchedYes || *rec.Retryable {
			t.Fatalf("%s: record %+v, %+v %v", body, rec, rec.Problem, *rec.Retryable)
		}
		f.eventually("the owning pod to forget the call", func() bool { return d.local.InFlight() == 0 })
		if !d.settle(p.CallID, registry.NewResult(true, registry.MustJSON(`"after all"`), "")) {
			t.Fatalf("%s: the late answer was ignored", body)
		}
		rec = f.record(0, p.CallID, "")
		if rec.State != registry.StateSucceeded || !rec.Late || *rec.Output != "after all" || rec.Problem != nil ||
			rec.Retryable != nil {
			t.Fatalf("%s: record %+v", body, rec)
		}
		if got := rec.states(); !slices.Equal(got[len(got)-2:], []registry.State{"timed_out", "succeeded"}) {
			t.Fatalf("%s: timeline %v", body, got)
		}
		if d.settle(p.CallID, registry.NewResult(true, registry.MustJSON(`"once more"`), "")) {
			t.Fatalf("%s: a second answer was taken", body)
		}
	}
}

func TestCancelFromEveryPod(t *testing.T) {
	for pod := range 3 {
		f := newFleet(t, setup{pods: 3})
		d := f.connect(1, session("s1"), silent, tools("t")...)
		a, _ := f.start(0, `{"mode":"async"}`)
		d.delivered()
		r := f.send(request{method: http.MethodDelete, path: "/api/calls/" + a.CallID, pod: pod})
		rec := decode[record](r, 200)
		if rec.State != registry.StateCancelled || rec.Problem.Code != registry.CodeCancelled ||
			rec.Dispatched == registry.DispatchedNo {
			t.Fatalf("from pod %d: %s", pod, r.body)
		}
		if id := d.cancelled(); id != a.CallID {
			t.Fatalf("the device was told of %s", id)
		}
		if again := decode[record](f.send(request{method: http.MethodDelete, path: "/api/calls/" + a.CallID}),
			200); again.State != rec.State ||
			len(again.Timeline) != len(rec.Timeline) {
			t.Errorf("cancelling twice changed the record: %+v", again)
		}
	}
}

// A call that has ended cannot be cancelled; its record says how it ended.
func TestCancelWhatHasEnded(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(1, session("s1"), echo, tools("t")...)
	a, _ := f.start(0, `{"mode":"async"}`)
	before := f.record(0, a.CallID, "?wait_ms=5000")
	r := f.send(request{method: http.MethodDelete, path: "/api/calls/" + a.CallID, pod: 1})
	if rec := decode[record](r, 200); rec.State != registry.StateSucceeded ||
		len(rec.Timeline) != len(before.Timeline) || len(d.cancels) > 0 {
		t.Fatalf("record %s", r.body)
	}
}

// Whoever waits for a call that somebody else cancels is told so.
func TestCancelSynchronousCall(t *testing.T) {
	for _, body := range []string{`{}`, `{"idempotency_key":"k"}`} {
		for pod := range 2 {
			f := newFleet(t, setup{pods: 2})
			d := f.connect(1, session("s1"), silent, tools("t")...)
			result := make(chan reply, 1)
			go func() {
				r, _ := f.try(request{method: http.MethodPost, path: "/api/tools/t/call", body: body})
				result <- r
			}()
			sent := d.delivered()
			var r reply
			f.eventually("the call to be known", func() bool { // a plain one has a record once it has taken a moment
				r = f.send(request{method: http.MethodDelete, path: "/api/calls/" + sent.ID, pod: pod})
				return r.status == 200
			})
			if rec := decode[record](r, 200); rec.State != registry.StateCancelled {
				t.Errorf("%s: record %s", body, r.body)
			}
			if id := d.cancelled(); id != sent.ID {
				t.Errorf("%s: the device was told of %s", body, id)
			}
			p := wantProblem(await(t, "the answer", result), 409, registry.CodeCancelled)
			if p.CallID != sent.ID || p.Dispatched == registry.DispatchedNo {
				t.Errorf("%s: problem %+v", body, p)
			}
		}
	}
}

// eventually asks again and again until it is so.
func (f *fleet) eventually(what string, so func() bool) {
	f.Helper()
	deadline := time.NewTimer(testTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			f.Fatalf("waited in vain for %s", what)
		}
	}
}

// A caller that hangs up cancels its call, and the device is told; unless the call carries a key, because then the
// caller means to ask again.
func TestHangUp(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	answers, open := gate()
	d := f.connect(1, session("s1"), answers, tools("t")...)
	for _, body := range []string{`{}`, `{"idempotency_key":"k"}`} {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := f.try(request{method: http.MethodPost, path: "/api/tools/t/call", body: body, ctx: ctx})
			gone <- err
		}()
		sent := d.delivered()
		cancel()
		if await(t, "the caller to be gone", gone) == nil {
			t.Fatalf("%s: the caller got an answer", body)
		}
		if body == `{}` {
			if id := d.cancelled(); id != sent.ID {
				t.Fatalf("the device was told of %s", id)
			}
			continue
		}
		open()
		rec := f.record(1, sent.ID, "?wait_ms=5000")
		if rec.State != registry.StateSucceeded || len(d.cancels) > 0 {
			t.Fatalf("record %+v, the device was told %d times", rec, len(d.cancels))
		}
		r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body, pod: 1})
		if a := decode[answer](r, 200); a.CallID != sent.ID || r.header.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("asked again: %s, headers %v", r.body, r.header)
		}
	}
}

// Ids nobody ever made do not reach the store, and those of other tenants do not exist.
func TestUnknownCalls(t *testing.T) {
	f := newFleet(t, setup{})
	for _, id := range []string{
		"x", registry.NewCallID(), strings.ToUpper(registry.NewCallID()), registry.NewCallID() + "0", "%7B*%7D", "..",
		strings.ReplaceAll(registry.NewCallID(), "-", ""),
	} {
		path := "/api/calls/" + id
		for _, r := range []request{{path: path}, {path: path + "/events"}, {method: http.MethodDelete, path: path}} {
			if got := f.send(r); id != ".." {
				wantProblem(got, 404, registry.CodeCallNotFound)
			}
		}
	}
}
