package api_test

import (
	"net/http"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// deferred begins an asynchronous call and returns its record.
func (f *fleet) deferred(who, body string, pod int) record {
	f.Helper()
	r := f.as(who, request{method: http.MethodPost, path: snap, body: body, pod: pod})
	return decode[record](r, 202)
}

func (f *fleet) recordOf(id string, pod int) record {
	f.Helper()
	return decode[record](f.send(request{path: "/api/calls/" + id + "?wait_ms=9000", pod: pod}), 200)
}

func TestAsynchronousCallsWaitWithoutAPod(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders, redis: redistest.Single(t)})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	const body = `{"args":{"n":1},"mode":"async","idempotency_key":"k1"}`
	r := f.deferred("agent", body, 1)
	again := f.deferred("agent", body, 0) // joins
	a := f.waiting("ann", 1)[0]
	if r.State != "accepted" || again.CallID != r.CallID || a.CallID != r.CallID || a.Mode != "async" {
		t.Fatalf("accepted %+v, again %+v, waits %+v", r, again, a)
	}
	decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200)
	if got := f.recordOf(r.CallID, 1); got.State != "succeeded" || got.Output == nil || *got.Output != `{"n":1}` {
		t.Errorf("allowed: %+v", got)
	}

	r = f.deferred("agent", `{"mode":"async"}`, 0)
	decode[shownApproval](f.decide("ann", f.waiting("ann", 1)[0].ID, deny, 1), 200)
	if got := f.recordOf(r.CallID, 1); got.State != "rejected" || got.Problem == nil ||
		got.Problem.Code != registry.CodeApprovalDenied || got.Dispatched != registry.DispatchedNo {
		t.Errorf("denied: %+v", got)
	}

	r = f.deferred("agent", `{"mode":"async"}`, 0) // cancelled while it waits
	a = f.waiting("ann", 1)[0]
	got := decode[record](f.send(request{method: http.MethodDelete, path: "/api/calls/" + r.CallID, pod: 1}), 200)
	if got.State != "cancelled" {
		t.Errorf("cancelled: %+v", got)
	}
	f.waiting("ann", 0)
	if late := decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200); late.State != "withdrawn" {
		t.Errorf("of a cancelled call: %+v", late)
	}
}
