package api_test

import (
	"net/http"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestGrants(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"), confirmable("other"))
	always := func(who, path, args, body string) shownApproval {
		t.Helper()
		ended := f.call(who, path, args, 0)
		a := f.waiting("ann", 1)[0]
		got := decode[shownApproval](f.decide("ann", a.ID, body, 0), 200)
		if out := <-ended; out.status != 200 || got.Grant == nil {
			t.Fatalf("%s: %+v, the call ended with %d", body, got, out.status)
		}
		return got
	}
	asked := func(who, path, args string) bool {
		t.Helper()
		ended := f.call(who, path, args, 1)
		for {
			select {
			case out := <-ended:
				return out.status != 200
			case <-f.noted:
			}
			all := decode[struct{ Approvals []shownApproval }](f.as("ann", request{path: "/api/approvals"}), 200)
			if len(all.Approvals) > 0 {
				decode[shownApproval](f.decide("ann", all.Approvals[0].ID, deny, 1), 200)
			}
		}
	}
	args := always("agent", snap, `{"args":{"n":1}}`, `{"decision":"allow-always","expires_in_ms":60000}`)
	for body, want := range map[string]bool{`{"args":{"n":1}}`: false, `{"args":{"n":2}}`: true} {
		if asked("agent", snap, body) != want {
			t.Errorf("%s: asked %v", body, !want)
		}
	}
	always("agent", snap, `{"args":{"n":2}}`, `{"decision":"allow-always","scope":"tool"}`)
	if asked("agent", snap, `{"args":{"n":3}}`) {
		t.Error("asked although the tool was granted")
	}
	if !asked("agent", "/api/sessions/phone/tools/other/call", `{}`) {
		t.Error("the grant covers another tool")
	}
	f.connect(1, ofAnn("tablet"), echo, confirmable("camera_snap"))
	if !asked("agent", "/api/sessions/tablet/tools/camera_snap/call", `{"args":{"n":1}}`) {
		t.Error("the grant covers another session")
	}
	// The device changes what the tool is.
	changed := confirmable("camera_snap")
	changed.Description = "Takes a picture, and sends it away."
	changed, err := changed.Normalize()
	f.must(err)
	f.must(d.local.PutTools(t.Context(), []registry.ToolSpec{changed}, nil))
	if !asked("agent", snap, `{"args":{"n":1}}`) {
		t.Error("the grant covers a tool that has changed")
	}
	f.must(d.local.PutTools(t.Context(), []registry.ToolSpec{confirmable("camera_snap")}, nil))

	list := decode[struct{ Grants []struct{ ID, Tool string } }](f.as("anne", request{path: "/api/grants"}), 200)
	if len(list.Grants) != 2 || list.Grants[0].ID != args.Grant.ID {
		t.Fatalf("grants %+v", list)
	}
	if other := f.as("ben", request{path: "/api/grants"}); string(other.body) != "{\"grants\":[]}\n" {
		t.Errorf("ben sees %s", other.body)
	}
	for _, g := range list.Grants {
		revoke := request{method: http.MethodDelete, path: "/api/grants/" + g.ID}
		wantProblem(f.as("ben", revoke), 404, registry.CodeNotFound)
		if got := f.as("ann", revoke); got.status != 200 {
			t.Errorf("revoke: %d %s", got.status, got.body)
		}
		wantProblem(f.as("ann", revoke), 404, registry.CodeNotFound)
	}
	if !asked("agent", snap, `{"args":{"n":1}}`) {
		t.Error("a revoked grant holds")
	}
}

// TestGrantsAnswerTheirRulesOnly: what was always allowed to one person is asked about again where another rule asks.
func TestGrantsAnswerTheirRulesOnly(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders, policyFile: `
version: 1
tools: [{id: groups, names: camera_snap, approval: outside main}]
`})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	ended := f.call("agent", snap, `{}`, 0)
	a := f.waiting("ann", 1)[0]
	decode[shownApproval](f.decide("ann", a.ID, `{"decision":"allow-always","scope":"tool"}`, 0), 200)
	if out := <-ended; out.status != 200 {
		t.Fatalf("status %d %s", out.status, out.body)
	}
	if out := f.as("other", request{method: http.MethodPost, path: snap}); out.status != 200 {
		t.Errorf("the same person: status %d %s", out.status, out.body)
	}
	ended = f.call("group", snap, `{}`, 0)
	a = f.waiting("ann", 1)[0]
	decode[shownApproval](f.decide("ann", a.ID, deny, 0), 200)
	wantProblem(<-ended, 403, registry.CodeApprovalDenied)
}
