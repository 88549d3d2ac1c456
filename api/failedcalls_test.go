package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// Whatever keeps a call from being made, its answer names the call and says that nothing ran, or that nobody knows.
func TestEveryFailedCallHasAnID(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.MaxBody = 1000 }})
	header := func(name, value string) http.Header { return http.Header{name: {value}} }
	for name, tt := range map[string]struct {
		request
		code registry.Code
	}{
		"no token":  {request{header: http.Header{"Authorization": nil}}, registry.CodeUnauthenticated},
		"foreign":   {request{header: header("Origin", "https://evil.example")}, registry.CodeForbidden},
		"bad JSON":  {request{body: "{"}, registry.CodeInvalidRequest},
		"query":     {request{path: "/api/tools/t/call?x=1"}, registry.CodeInvalidRequest},
		"too large": {request{body: strings.Repeat(" ", 1001)}, registry.CodePayloadTooLarge},
		"form": {request{body: "a=b", header: header("Content-Type", "application/x-www-form-urlencoded")},
			registry.CodeUnsupportedMedia},
		"no tool":     {request{}, registry.CodeToolNotFound},
		"no name":     {request{path: "/api/tools/%20/call"}, registry.CodeToolNotFound},
		"no session":  {request{path: "/api/sessions/x/tools/t/call"}, registry.CodeSessionNotFound},
		"bad session": {request{path: "/api/sessions/%20/tools/t/call"}, registry.CodeSessionNotFound},
	} {
		if tt.method = http.MethodPost; tt.path == "" {
			tt.path = "/api/tools/t/call"
		}
		r := f.send(tt.request)
		p := decode[problem](r, r.status)
		if p.Code != tt.code || p.Dispatched != registry.DispatchedNo || p.Retryable == nil ||
			uuid.Validate(p.CallID) != nil ||
			r.header.Get("X-Farhand-Call-Id") != p.CallID {
			t.Errorf("%s: %s, headers %v", name, r.body, r.header)
		}
	}
}

type panickingAuth struct{}

func (panickingAuth) Authenticate(context.Context, *http.Request, string) (auth.Identity, error) {
	panic("out of luck")
}

// After a panic nobody knows how far the call had come. What is no call says nothing about one.
func TestPanic(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth = panickingAuth{} }})
	p := wantProblem(f.post("/api/tools/t/call", ""), 500, registry.CodeInternal)
	if p.Dispatched != registry.DispatchedUnknown || p.Retryable == nil || *p.Retryable ||
		uuid.Validate(p.CallID) != nil {
		t.Errorf("problem %+v", p)
	}
	if p := wantProblem(f.get("/api/tools"), 500, registry.CodeInternal); p.Dispatched != "" || p.CallID != "" ||
		p.Retryable != nil {
		t.Errorf("problem %+v", p)
	}
}
