package api_test

import (
	"net/http"
	"testing"

	"github.com/farhand/farhand/registry"
)

// Both pods get the same request at the same instant: the device sees one, and both callers its answer.
func TestSameKeyAtTheSameInstant(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	answers, open := gate()
	d := f.connect(1, session("s1"), answers, tools("t")...)
	const each = 8
	begin, replies := make(chan struct{}), make(chan reply, 2*each)
	for i := range 2 * each {
		go func() {
			<-begin
			r, _ := f.try(request{
				method: http.MethodPost, path: "/api/tools/t/call", body: `{"args":{"n":1},"idempotency_key":"k"}`,
				pod: i % 2,
			})
			replies <- r
		}()
	}
	close(begin)
	sent := d.delivered()
	open()
	var first reply
	for range 2 * each {
		r := await(t, "an answer", replies)
		if a := decode[answer](r, 200); a.CallID != sent.ID || a.Output != `{"n":1}` ||
			r.header.Get("X-Farhand-Call-Id") != sent.ID {
			t.Fatalf("answer %s", r.body)
		}
		if first.body == nil {
			first = r
		}
		if string(r.body) != string(first.body) {
			t.Errorf("answers differ: %s, %s", r.body, first.body)
		}
	}
	if len(d.calls) != 0 {
		t.Fatalf("the device saw %d more requests", len(d.calls))
	}
}

func TestReplay(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(1, session("s1"), echo, tools("t")...)
	var first reply
	for i := range 4 {
		r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", pod: i % 2,
			body: `{"args":{"a":1,"b":2}}`, header: http.Header{"Idempotency-Key": {"k"}}})
		decode[answer](r, 200)
		if replayed := r.header.Get("Idempotent-Replayed") == "true"; replayed != (i > 0) {
			t.Fatalf("request %d: replayed is %v", i, replayed)
		}
		if i == 0 {
			first = r
		} else if string(r.body) != string(first.body) ||
			r.header.Get("X-Farhand-Call-Id") != first.header.Get("X-Farhand-Call-Id") {
			t.Fatalf("request %d: %s, the first got %s", i, r.body, first.body)
		}
	}
	// Written differently, it is the same request.
	same := f.post("/api/sessions/s1/tools/t/call", `{"idempotency_key":"other","args":{}}`)
	again := f.post("/api/tools/t/call", `{"target":{"session_id":"s1"},"idempotency_key":"other"}`)
	if decode[answer](same, 200).CallID != decode[answer](again, 200).CallID {
		t.Errorf("%s, then %s", same.body, again.body)
	}
	d.delivered()
	d.delivered()
	if len(d.calls) != 0 {
		t.Fatalf("the device saw %d requests too many", len(d.calls))
	}
}

func TestReplayOfAsynchronousCall(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	answers, open := gate()
	d := f.connect(1, session("s1"), answers, tools("t")...)
	const body = `{"mode":"async","idempotency_key":"k"}`
	first, _ := f.start(0, body)
	d.delivered()
	joined, r := f.start(1, body)
	if joined.CallID != first.CallID || r.header.Get("Idempotent-Replayed") != "" ||
		r.header.Get("Location") != "/api/calls/"+first.CallID {
		t.Fatalf("while it runs: %s, headers %v", r.body, r.header)
	}
	open()
	f.record(1, first.CallID, "?wait_ms=5000")
	replayed, r := f.start(1, body)
	if replayed.CallID != first.CallID || replayed.State != "succeeded" ||
		r.header.Get("Idempotent-Replayed") != "true" {
		t.Fatalf("when it has ended: %s, headers %v", r.body, r.header)
	}
	if len(d.calls) != 0 {
		t.Fatalf("the device saw %d requests too many", len(d.calls))
	}
}

func TestKeyOfAnotherRequest(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(1, session("s1"), echo, append(tools("t"), tools("u")...)...)
	decode[answer](f.post("/api/tools/t/call", `{"args":{"a":1},"idempotency_key":"k"}`), 200)
	for i, tt := range []struct{ path, body string }{
		{"/api/tools/t/call", `{"args":{"a":2},"idempotency_key":"k"}`},
		{"/api/tools/u/call", `{"args":{"a":1},"idempotency_key":"k"}`},
		{"/api/tools/t/call", `{"args":{"a":1},"idempotency_key":"k","mode":"async"}`},
		{"/api/tools/t/call", `{"args":{"a":1},"idempotency_key":"k","timeout_ms":1000}`},
		{"/api/tools/t/call", `{"args":{"a":1},"idempotency_key":"k","target":{"session_id":"s1"}}`},
		{"/api/tools/absent/call", `{"args":{"a":1},"idempotency_key":"k"}`},
	} {
		r := f.send(request{method: http.MethodPost, path: tt.path, body: tt.body, pod: i % 2})
		p := wantProblem(r, 409, registry.CodeIdempotency)
		if p.Dispatched != registry.DispatchedNo || *p.Retryable || r.header.Get("Idempotent-Replayed") != "" ||
			p.CallID == "" {
			t.Errorf("%s %s: %s, headers %v", tt.path, tt.body, r.body, r.header)
		}
	}
	d.delivered()
	if len(d.calls) != 0 {
		t.Fatalf("the device saw %d requests too many", len(d.calls))
	}
}

// The stored end is told again even when the device has gone meanwhile, and a failure is an end too.
func TestReplayWithoutDevice(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(1, session("s1"), echo, tools("t")...)
	const body = `{"idempotency_key":"k"}`
	first := f.post("/api/tools/t/call", body)
	decode[answer](first, 200)
	d.delivered()
	d.gone()
	again := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: body, pod: 1})
	if decode[answer](again, 200); string(again.body) != string(first.body) {
		t.Errorf("%s, then %s", first.body, again.body)
	}

	mute := f.connect(1, session("s2"), silent, tools("t")...)
	const late = `{"idempotency_key":"late","timeout_ms":2000,"target":{"session_id":"s2"}}`
	p := wantProblem(f.post("/api/tools/t/call", late), 504, registry.CodeTimeout)
	r := f.send(request{method: http.MethodPost, path: "/api/tools/t/call", body: late, pod: 1})
	if again := wantProblem(r, 504, registry.CodeTimeout); again.CallID != p.CallID ||
		r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%+v, then %s", p, r.body)
	}
	mute.delivered()
	if len(mute.calls) != 0 {
		t.Error("the device saw the repetition")
	}
}

// A call that certainly reached no device gives its key back: asking again is what the answer advised.
func TestKeyIsGivenBack(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	d.gone()
	const body = `{"idempotency_key":"k","target":{"session_id":"s1"}}`
	if p := wantProblem(f.post("/api/tools/t/call", body), 409, registry.CodeNotConnected); !*p.Retryable {
		t.Fatalf("problem %+v", p)
	}
	f.connect(0, session("s1"), echo, tools("t")...)
	decode[answer](f.post("/api/tools/t/call", body), 200)
}
