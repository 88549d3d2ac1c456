package api_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

func TestCallEventsFromTheBeginning(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	answers, open := gate()
	d := f.connect(1, session("s1"), answers, tools("t")...)
	a, _ := f.start(0, `{"mode":"async"}`)
	s := f.follow(0, "/api/calls/"+a.CallID+"/events", "")
	var states []registry.State
	tell := func(want registry.State) {
		t.Helper()
		e := s.next()
		got := read[callEvent](t, "CallEvent", e)
		if got.State == registry.StateDelivered && want != got.State { // may be told, or left to what follows
			e = s.next()
			got = read[callEvent](t, "CallEvent", e)
		}
		if e.kind != registry.CallEventState || got.State != want || got.CallID != a.CallID || e.id == "" {
			t.Fatalf("event %+v %s, want %s", e, e.data, want)
		}
		states = append(states, got.State)
	}
	tell(registry.StateAccepted)
	d.delivered()
	half, whole := 0.5, 1.0
	d.local.Progress(a.CallID, nil, nil, "", "") // a bare receipt: the device has begun
	f.eventually("the device to be known to have begun", func() bool {
		return f.record(0, a.CallID, "").State == registry.StateRunning
	})
	tell(registry.StateRunning)
	d.local.Progress(a.CallID, &half, &whole, "half way", "chunk\nof two lines")
	e := s.next()
	if p := read[callEvent](t, "CallEvent", e); e.kind != "progress" || *p.Progress != half || *p.Total != whole ||
		p.Message != "half way" || p.Chunk != "chunk\nof two lines" || p.State != "" {
		t.Fatalf("event %s", e.data)
	}
	open()
	tell(registry.StateSucceeded)
	s.end()
}

// A stream goes on where it was, on another pod, as often as one likes.
func TestCallEventsResumeOnAnotherPod(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	answers, open := gate()
	d := f.connect(1, session("s1"), answers, tools("t")...)
	a, _ := f.start(0, `{"mode":"async"}`)
	path := "/api/calls/" + a.CallID + "/events"
	d.delivered()
	first := f.follow(0, path, "").next()
	open()
	f.record(0, a.CallID, "?wait_ms=5000")
	states, ids := f.follow(0, path, "").states()
	if len(ids) < 2 || ids[0] != first.id || states[len(states)-1] != registry.StateSucceeded {
		t.Fatalf("states %v, ids %v", states, ids)
	}
	for i, id := range ids[:len(ids)-1] {
		rest, _ := f.follow(1, path, id).states()
		equal(t, "behind "+id, rest, states[i+1:])
		byQuery, _ := f.follow(1, path+"?last_event_id="+id, "").states()
		equal(t, "by query behind "+id, byQuery, states[i+1:])
		header, _ := f.follow(1, path+"?last_event_id="+ids[0], id).states()
		equal(t, "by header, which is newer, behind "+id, header, states[i+1:])
	}
	// Whoever has seen the end is told that there is no more.
	r := f.send(request{path: path, pod: 1, header: http.Header{"Last-Event-Id": {ids[len(ids)-1]}}})
	if r.status != http.StatusNoContent {
		t.Errorf("behind the end: status %d", r.status)
	}
	all := parseEvents(t, bytesOf(f.get(path)))
	if len(all) != len(ids) {
		t.Errorf("%d events, then %d", len(ids), len(all))
	}
}

// A call that was over in no time has no log; its stream has one event all the same.
func TestCallEventsWithoutLog(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	a := decode[answer](f.post("/api/tools/t/call", ""), 200)
	path := "/api/calls/" + a.CallID
	f.eventually("the call to be recorded", func() bool { return f.get(path).status == 200 })
	all := parseEvents(t, bytesOf(f.get(path+"/events")))
	if len(all) != 1 || all[0].id != "0-1" || read[callEvent](t, "CallEvent", all[0]).State != registry.StateSucceeded {
		t.Fatalf("events %+v", all)
	}
	if r := f.get(path + "/events?last_event_id=0-1"); r.status != http.StatusNoContent {
		t.Errorf("behind the end: status %d", r.status)
	}
}

// Between its end and the answer of the device a call's stream is over; the answer can be seen by coming back.
func TestCallEventsOfLateAnswer(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), silent, tools("t")...)
	a, _ := f.start(0, `{"mode":"async","timeout_ms":2000}`)
	path := "/api/calls/" + a.CallID
	states, ids := f.follow(0, path+"/events", "").states()
	if states[len(states)-1] != registry.StateTimedOut {
		t.Fatalf("states %v", states)
	}
	f.eventually("the owning pod to forget the call", func() bool { return d.local.InFlight() == 0 })
	d.settle(a.CallID, registry.NewResult(true, registry.JSON{}, ""))
	states, _ = f.follow(0, path+"/events", ids[len(ids)-1]).states()
	equal(t, "states", states, []registry.State{registry.StateSucceeded})
}

// The feed tells in order what one pod after the other did, and goes on behind an event on any of them.
func TestFeed(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	s := f.follow(0, "/api/events", "")
	var all []event
	tell := func(kind, sessionID string) activity {
		t.Helper()
		e := s.next()
		a := read[activity](t, "Activity", e)
		if e.kind != kind || a.Type != kind || a.SessionID != sessionID || e.id == "" {
			t.Fatalf("event %s %s, want %s of %s", e.kind, e.data, kind, sessionID)
		}
		all = append(all, e)
		return a
	}
	phone := session("s1")
	phone.DeviceID = "phone-1"
	d := f.connect(1, phone, echo, tools("t")...)
	if a := tell("session.connected", "s1"); a.Pod != "pod-1" || a.DeviceID != "phone-1" || a.Tools != nil {
		t.Errorf("connected: %+v", a)
	}
	if a := tell("session.tools", "s1"); len(a.Tools) != 1 || a.Tools[0] != "t" {
		t.Errorf("tools: %+v", a)
	}
	called := decode[answer](f.post("/api/tools/t/call", `{"args":{"secret":"opensesame"}}`), 200)
	if c := tell("call.finished", "s1").Call; c.CallID != called.CallID || c.State != registry.StateSucceeded ||
		!*c.Success ||
		c.Output != nil || c.Structured != nil || c.Tool != "t" || c.Pod != "pod-0" {
		t.Errorf("call: %+v", c)
	}
	f.must(d.local.PutTools(t.Context(), nil, []string{"t"}))
	if a := tell("session.tools", "s1"); a.Tools == nil || len(a.Tools) != 0 {
		t.Errorf("no tools left: %+v", a)
	}
	d.gone()
	tell("session.disconnected", "s1")

	for i := range all[:len(all)-1] {
		again := f.follow(i%2, "/api/events", all[i].id)
		for _, want := range all[i+1:] {
			if e := again.next(); e.id != want.id || e.kind != want.kind || string(e.data) != string(want.data) {
				t.Fatalf("behind %s: %+v, want %+v", all[i].id, e, want)
			}
		}
		again.disconnect()
	}
	some := f.follow(1, "/api/events?type=call.finished&type=session.disconnected", all[0].id)
	if a, b := some.next(), some.next(); a.id != all[2].id || b.id != all[4].id {
		t.Errorf("filtered: %+v, %+v", a, b)
	}
	// Who does not say where it was begins with what happens next.
	fresh := f.follow(0, "/api/events", "")
	f.connect(0, session("s2"), echo)
	if a := read[activity](t, "Activity", fresh.next()); a.Type != "session.connected" || a.SessionID != "s2" {
		t.Errorf("a fresh stream begins with %+v", a)
	}
}

// activity is an entry of the feed as a client reads it.
type activity struct {
	Type, Pod string
	SessionID string `json:"session_id"`
	DeviceID  string `json:"device_id"`
	Tools     []string
	Call      *record
}

func TestStreamRequestsAreChecked(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	a, _ := f.start(0, `{"mode":"async"}`)
	for _, path := range []string{"/api/events", "/api/calls/" + a.CallID + "/events"} {
		for _, id := range []string{"x", "1", "1-", "-1", "1-1-1", "$", "1-99999999999999999999"} {
			r := f.send(request{path: path, header: http.Header{"Last-Event-Id": {id}}})
			wantProblem(r, 400, registry.CodeInvalidRequest)
			wantProblem(f.get(path+"?last_event_id="+id), 400, registry.CodeInvalidRequest)
		}
		if r := f.send(request{method: http.MethodHead, path: path}); r.status != 200 ||
			r.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("HEAD %s: status %d", path, r.status)
		}
	}
	wantProblem(f.get("/api/events?type=session.exploded"), 400, registry.CodeInvalidRequest)
	wantProblem(f.get("/api/events?type=pod.died&type="), 400, registry.CodeInvalidRequest)
}

func TestStreamLimit(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.MaxStreams = 4 }}) // half of them of a tenant
	first := f.follow(0, "/api/events", "")
	f.follow(0, "/api/events", "")
	for range 3 { // being refused costs nobody a place
		r := f.get("/api/events")
		if wantProblem(r, 429, registry.CodeBusy); r.header.Get("Retry-After") != "5" {
			t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
		}
	}
	first.disconnect()
	first.end()
	f.eventually("the place to be free", func() bool {
		return f.send(request{method: http.MethodHead,
			path: "/api/events"}).status == 200
	})
	f.follow(0, "/api/events", "")
}

func TestStreamsEndWhenThePodDrains(t *testing.T) {
	draining, drain := context.WithCancel(t.Context())
	f := newFleet(t, setup{change: func(c *api.Config) { c.Draining = draining }})
	f.connect(0, session("s1"), silent, tools("t")...)
	a, _ := f.start(0, `{"mode":"async","timeout_ms":500}`)
	feed, call := f.follow(0, "/api/events", ""), f.follow(0, "/api/calls/"+a.CallID+"/events", "")
	drain()
	for _, s := range []*following{feed, call} {
		for e := range s.events { // ends by itself
			_ = e
		}
	}
	r := f.get("/api/events")
	if wantProblem(r, 503, registry.CodeDraining); r.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After %q", r.header.Get("Retry-After"))
	}
}
