package api_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

func TestCallByNameAndBySession(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	s := session("s1")
	s.DeviceID = "phone-1"
	d := f.connect(1, s, echo, tools("camera.snap")...)
	for pod := range f.pods { // the device's own pod, and the other one
		for _, path := range []string{"/api/tools/camera.snap/call", "/api/sessions/s1/tools/camera.snap/call"} {
			r := f.send(request{method: http.MethodPost, path: path, pod: pod,
				body: `{"args":{"n":12345678901234567890.10}}`})
			a := decode[answer](r, 200)
			if a.SessionID != "s1" || a.DeviceID != "phone-1" || a.State != "succeeded" || !a.Success {
				t.Fatalf("answer %s", r.body)
			}
			if sent := d.delivered(); sent.ID != a.CallID || sent.Args.String() != `{"n":12345678901234567890.10}` {
				t.Fatalf("the device was sent %+v", sent)
			}
			if string(a.Structured) != `{"n":12345678901234567890.10}` {
				t.Fatalf("structured output %s", a.Structured)
			}
			if r.header.Get("X-Farhand-Call-Id") != a.CallID || r.header.Get("X-Farhand-Pod") != f.pods[pod].ID() {
				t.Fatalf("headers %v", r.header)
			}
		}
	}
}

func TestCallWithEmptyBody(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	for _, body := range []string{"", "  \n", "{}"} {
		decode[answer](f.post("/api/tools/t/call", body), 200)
		if sent := d.delivered(); sent.Args.String() != `{}` {
			t.Fatalf("body %q: the device was sent %s", body, sent.Args)
		}
	}
}

// A tool that ran and failed is an answer, not an error of the gateway.
func TestToolThatFailed(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), func(routing.DeviceCall) (registry.Result, bool) {
		return registry.NewResult(false, registry.JSON{}, "no film <left>"), true
	}, tools("t")...)
	r := f.post("/api/tools/t/call", "")
	a := decode[answer](r, 200)
	if a.Success || a.State != "failed" || a.Error != "no film <left>" || a.Output != "no film <left>" {
		t.Fatalf("answer %s", r.body)
	}
	if !strings.Contains(string(r.body), "<left>") {
		t.Fatalf("escaped for HTML, which nobody asked for: %s", r.body)
	}
}

func TestAmbiguousTarget(t *testing.T) {
	f := newFleet(t, setup{})
	for _, id := range []string{"s1", "s2", "s3"} {
		s := session(id)
		s.DeviceID, s.Labels = "phone-"+id, map[string]string{"room": id}
		if id != "s1" {
			s.UserID = "anna"
		}
		f.connect(0, s, echo, tools("t")...)
	}
	p := wantProblem(f.post("/api/tools/t/call", ""), 409, registry.CodeAmbiguousTarget)
	if len(p.Candidates) != 3 || p.Candidates[0].SessionID != "s1" || p.Candidates[0].DeviceID != "phone-s1" ||
		p.Dispatched != registry.DispatchedNo || *p.Retryable || p.CallID == "" {
		t.Fatalf("problem %+v", p)
	}
	p = wantProblem(f.post("/api/tools/t/call", `{"target":{"user_id":"anna"}}`), 409, registry.CodeAmbiguousTarget)
	if len(p.Candidates) != 2 {
		t.Fatalf("candidates %+v", p.Candidates)
	}
	for body, want := range map[string]string{
		`{"select":"newest"}`:                                                     "s3",
		`{"target":{"session_id":"s2"}}`:                                          "s2",
		`{"target":{"device_id":"phone-s2"}}`:                                     "s2",
		`{"target":{"labels":{"room":"s1"}}}`:                                     "s1",
		`{"target":{"user_id":"anna"},"select":"newest"}`:                         "s3",
		`{"target":{"user_id":"anna","labels":{"room":"s2"}}}`:                    "s2",
		`{"target":{"session_id":"s3","device_id":"phone-s3"},"select":"newest"}`: "s3",
	} {
		if a := decode[answer](f.post("/api/tools/t/call", body), 200); a.SessionID != want {
			t.Errorf("%s went to %s, want %s", body, a.SessionID, want)
		}
	}
	if a := decode[answer](f.post("/api/tools/t/call", `{"select":"any"}`), 200); a.SessionID == "" {
		t.Error("select any chose nobody")
	}
}

func TestTargetsThatLeadNowhere(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	off := f.connect(0, session("off"), echo, tools("t")...)
	off.gone()
	for _, tt := range []struct {
		path, body string
		status     int
		code       registry.Code
	}{
		{"/api/tools/absent/call", "", 404, registry.CodeToolNotFound},
		{"/api/tools/a%20b%7B%7D/call", "", 404, registry.CodeToolNotFound},
		{"/api/tools/t/call", `{"target":{"session_id":"nobody"}}`, 404, registry.CodeSessionNotFound},
		{"/api/tools/t/call", `{"target":{"device_id":"nobody"}}`, 404, registry.CodeSessionNotFound},
		{"/api/tools/t/call", `{"target":{"session_id":"s1","user_id":"x"}}`, 404, registry.CodeSessionNotFound},
		{"/api/tools/t/call", `{"target":{"session_id":"off"}}`, 409, registry.CodeNotConnected},
		{"/api/sessions/off/tools/t/call", "", 409, registry.CodeNotConnected},
		{"/api/sessions/nobody/tools/t/call", "", 404, registry.CodeSessionNotFound},
		{"/api/sessions/%7Bs1%7D/tools/t/call", "", 404, registry.CodeSessionNotFound},
		{"/api/sessions/s1/tools/absent/call", "", 404, registry.CodeToolNotFound},
		{"/api/sessions/s1/tools/t/call", `{"target":{"session_id":"off"}}`, 400, registry.CodeInvalidRequest},
		{"/api/sessions/s1/tools/t/call", `{"target":{"device_id":"x"}}`, 400, registry.CodeInvalidRequest},
	} {
		p := wantProblem(f.post(tt.path, tt.body), tt.status, tt.code)
		if p.Dispatched != registry.DispatchedNo || *p.Retryable != (tt.code == registry.CodeNotConnected) {
			t.Errorf("%s %s: %+v", tt.path, tt.body, p)
		}
	}
	decode[answer](f.post("/api/sessions/s1/tools/t/call", `{"target":{"session_id":"s1"}}`), 200)
}

func TestInvalidArguments(t *testing.T) {
	f := newFleet(t, setup{})
	d := f.connect(0, session("s1"), echo, tool("t", "",
		`{"type":"object","required":["a"],"properties":{"b":{"type":"array","items":{"type":"integer"}}}}`))
	p := wantProblem(f.post("/api/tools/t/call", `{"args":{"b":[1,"x"]}}`), 422, registry.CodeInvalidArguments)
	var pointers []string
	for _, v := range p.Errors {
		pointers = append(pointers, v.Pointer)
		if v.Message == "" {
			t.Errorf("no message for %q", v.Pointer)
		}
	}
	slices.Sort(pointers)
	equal(t, "pointers", pointers, []string{"", "/b/1"})
	if p.Dispatched != registry.DispatchedNo || len(d.calls) != 0 {
		t.Fatalf("dispatched %s, %d calls delivered", p.Dispatched, len(d.calls))
	}
}

func TestPolicyAndHooksStopCalls(t *testing.T) {
	f := newFleet(t, setup{
		policy: agent.PolicyRules{CallDeny: []string{"danger.*"}},
		hooks:  []agent.Hook{veto{"stopped.tool"}, panicking{"panics"}},
	})
	d := f.connect(0, session("s1"), echo, tools("danger.zone", "stopped.tool", "panics", "fine")...)
	p := wantProblem(f.post("/api/tools/danger.zone/call", ""), 403, registry.CodePolicyDenied)
	if p.Dispatched != registry.DispatchedNo || p.CallID == "" {
		t.Errorf("problem %+v", p)
	}
	p = wantProblem(f.post("/api/tools/stopped.tool/call", ""), 403, registry.CodeHookCancelled)
	if !strings.Contains(p.Detail, "not today") {
		t.Errorf("the reason is missing: %s", p.Detail)
	}
	p = wantProblem(f.post("/api/tools/panics/call", ""), 500, registry.CodeInternal)
	if strings.Contains(p.Detail, "secret") {
		t.Errorf("the panic shows: %s", p.Detail)
	}
	decode[answer](f.post("/api/tools/fine/call", ""), 200)
	if sent := d.delivered(); sent.Tool != "fine" {
		t.Errorf("%s reached the device", sent.Tool)
	}
	if log := f.pods[0].log.String(); !strings.Contains(log, "secret of the hook") || strings.Contains(log, token) {
		t.Error("the log lacks the panic, or has the token")
	}
}

type veto struct{ tool string }

func (veto) Name() string { return "veto" }

func (v veto) Before(_ context.Context, inv agent.Invocation) (agent.Decision, error) {
	if inv.Spec.Name == v.tool {
		return agent.Cancel("not today"), nil
	}
	return agent.Pass(), nil
}

type panicking struct{ tool string }

func (panicking) Name() string { return "panicking" }

func (p panicking) Before(_ context.Context, inv agent.Invocation) (agent.Decision, error) {
	if inv.Spec.Name == p.tool {
		panic("secret of the hook")
	}
	return agent.Pass(), nil
}
