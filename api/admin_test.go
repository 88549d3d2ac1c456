package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// oneAdmin knows the admin by the common token, and takes everybody else for anna.
type oneAdmin struct{ admin auth.Authenticator }

func (o oneAdmin) Authenticate(ctx context.Context, r *http.Request, given string) (auth.Identity, error) {
	if given == "anna" {
		return auth.Identity{Tenant: registry.DefaultTenant, User: "anna", Roles: auth.RoleCaller}, nil
	}
	return o.admin.Authenticate(ctx, r, given)
}

var asAnna = http.Header{"Authorization": {"Bearer anna"}}

// adminFleet has a device with a tool for everybody and one for admins.
func adminFleet(t *testing.T) (*fleet, *device) {
	t.Helper()
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth = oneAdmin{c.Auth} }})
	specs := tools("look", "wipe")
	specs[1].SecurityLevel = registry.SecurityAdminOnly
	return f, f.connect(0, session("phone"), echo, specs...)
}

func TestOnlyAdminsCallWhatIsForAdmins(t *testing.T) {
	f, d := adminFleet(t)
	call := func(path, body string, who http.Header) reply {
		return f.send(request{method: http.MethodPost, path: path, body: body, header: who})
	}
	paths := []string{"/api/tools/wipe/call", "/api/sessions/phone/tools/wipe/call"}
	for _, path := range paths {
		for _, body := range []string{`{}`, `{"mode":"async"}`, `{"idempotency_key":"` + path + `"}`} {
			p := wantProblem(call(path, body, asAnna), 403, registry.CodeForbidden)
			if p.Dispatched != registry.DispatchedNo || !strings.Contains(p.Detail, "admin") {
				t.Errorf("%s %s: %+v", path, body, p)
			}
		}
	}
	if len(d.calls) != 0 {
		t.Errorf("the device was sent %+v", <-d.calls)
	}
	for _, path := range paths {
		if a := decode[answer](call(path, `{}`, nil), 200); !a.Success {
			t.Errorf("%s: %+v", path, a)
		}
	}
	if a := decode[answer](call("/api/tools/look/call", `{}`, asAnna), 200); !a.Success {
		t.Errorf("%+v", a)
	}
}

func TestToolsForAdminsAreEnabledForThem(t *testing.T) {
	f, _ := adminFleet(t)
	for _, path := range []string{"/api/tools?name=wipe", "/api/tools?name=wipe&view=grouped", "/api/sessions/phone"} {
		row := func(who http.Header) (reply, string) {
			r := f.send(request{path: path, header: who})
			all := decode[struct{ Tools []toolRow }](r, 200).Tools
			for _, one := range all {
				if one.Name == "wipe" {
					if one.Enabled {
						return r, "enabled"
					}
					return r, "not enabled"
				}
			}
			return r, "not there"
		}
		mine, admins := row(nil)
		if admins != "enabled" {
			t.Errorf("%s, for an admin: %s", path, admins)
		}
		theirs, users := row(asAnna)
		if users != "not enabled" {
			t.Errorf("%s, for a user: %s", path, users)
		}
		if mine.header.Get("ETag") == theirs.header.Get("ETag") {
			t.Errorf("%s: one tag for two answers", path)
		}
	}
	for _, format := range []string{"openai", "anthropic", "mcp"} {
		path := "/api/tools?format=" + format
		if body := string(f.get(path).body); !strings.Contains(body, `"wipe"`) {
			t.Errorf("%s, for an admin: %s", format, body)
		}
		if body := string(f.send(request{path: path, header: asAnna}).body); strings.Contains(body, `"wipe"`) ||
			!strings.Contains(body, `"look"`) {
			t.Errorf("%s, for a user: %s", format, body)
		}
	}
}

// A gateway whose credentials name no users says so to who asks for one, under the code of everything that is not
// there.
func TestUsersThatNoCredentialsName(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("phone"), echo, tools("look")...)
	for _, body := range []string{`{"target":{"user_id":"anna"}}`,
		`{"target":{"user_id":"anna","session_id":"phone"}}`} {
		p := wantProblem(f.post("/api/tools/look/call", body), 404, registry.CodeSessionNotFound)
		if !strings.Contains(p.Detail, "name no users") {
			t.Errorf("%s: %s", body, p.Detail)
		}
	}
	named := newFleet(t, setup{change: func(c *api.Config) { c.Auth = oneUser("anna") }})
	p := wantProblem(named.post("/api/tools/look/call", `{"target":{"user_id":"ben"}}`), 404,
		registry.CodeSessionNotFound)
	if strings.Contains(p.Detail, "name no users") {
		t.Errorf("%s", p.Detail)
	}
}
