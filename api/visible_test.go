package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// people takes a token for the name of a user, or of an API key that names none; the usual one is anna's.
type people struct{}

func (people) Authenticate(_ context.Context, _ *http.Request, given string) (auth.Identity, error) {
	who := auth.Identity{Tenant: registry.DefaultTenant, Roles: auth.RoleCaller, User: given}
	switch {
	case given == token:
		who.User = "anna"
	case given == "root":
		who.User, who.Admin = "", true
	case strings.HasPrefix(given, "key:"):
		who.User, who.Credential = "", given
	}
	return who, nil
}

// oneBuiltin has one built-in tool.
type oneBuiltin struct{}

func (oneBuiltin) Specs() []registry.ToolSpec { return []registry.ToolSpec{clock{}.Spec()} }

func (oneBuiltin) Tool(policy.Context, string) agent.Tool { return clock{} }

func as(user string) http.Header { return http.Header{"Authorization": {"Bearer " + user}} }

// crowd has devices of anna, of ben and of nobody, which all offer t, and each a tool of its own.
func crowd(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.Builtins = people{}, oneBuiltin{} }})
	for _, d := range []struct{ id, user string }{{"b1", "ben"}, {"a1", "anna"}, {"free", ""}, {"b2", "ben"}} {
		s := session(d.id)
		s.UserID = d.user
		f.connect(0, s, echo, append(tools("only-"+d.id), tool("t", "as of "+d.user))...)
	}
	return f
}

// Lists hold what their reader may see, also in what they count, and each reader's have a tag of their own.
func TestListsOfUsers(t *testing.T) {
	f := crowd(t)
	for _, path := range []string{
		"/api/tools", "/api/tools?view=grouped", "/api/tools?format=openai", "/api/tools?format=mcp",
		"/api/tools?q=only", "/api/sessions", "/api/sessions?connected=true", "/api/tools?view=grouped&limit=1",
	} {
		tags := make(map[string]bool)
		for _, user := range []string{"anna", "ben", "root"} {
			seen := ""
			for next := path; next != ""; {
				r := f.send(request{path: next, header: as(user)})
				if r.status != 200 || tags[r.header.Get("Etag")] {
					t.Fatalf("%s of %s: %d, a tag that another has: %s", next, user, r.status, r.body)
				}
				tags[r.header.Get("Etag")] = true
				seen += string(r.body)
				next = ""
				if cursor := decode[struct {
					Next string `json:"next_cursor"`
				}](r, 200).Next; cursor != "" {
					next = path + "&cursor=" + cursor
				}
			}
			for mark, owner := range map[string]string{"a1": "anna", "b1": "ben", "b2": "ben", "free": ""} {
				want := user == "root" || owner == "" || owner == user
				if strings.Contains(seen, "only-"+mark) != want {
					t.Errorf("%s of %s: shows %s: %v: %s", path, user, mark, !want, seen)
				}
			}
		}
	}
	counts := func(user string) map[string]int {
		counted := make(map[string]int)
		r := f.send(request{path: "/api/tools?view=grouped", header: as(user)})
		for _, g := range decode[struct {
			Tools []struct {
				Name, Description string
				Sessions          int
			}
		}](r, 200).Tools {
			counted[g.Name+" "+g.Description] = g.Sessions
		}
		return counted
	}
	if c := counts("anna"); c["t as of anna"] != 1 || c["t as of "] != 1 || len(c) != 5 {
		t.Errorf("anna's groups: %v", c)
	}
	if c := counts("ben"); c["t as of ben"] != 2 || c["t as of anna"] != 0 {
		t.Errorf("ben's groups: %v", c)
	}
	if c := counts("root"); c["t as of ben"] != 2 || c["t as of anna"] != 1 {
		t.Errorf("the admin's groups: %v", c)
	}
}

// A call by name goes to what its caller may see, and lists nothing else to choose from.
func TestTargetsOfUsers(t *testing.T) {
	f := crowd(t)
	call := func(user, tool, body string) reply {
		return f.send(request{method: http.MethodPost, path: "/api/tools/" + tool + "/call",
			body: body, header: as(user)})
	}
	p := wantProblem(call("anna", "t", `{}`), 409, registry.CodeAmbiguousTarget)
	if len(p.Candidates) != 2 {
		t.Errorf("anna may choose from %+v", p.Candidates)
	}
	for body, want := range map[string]string{
		`{"target":{"user_id":"anna"}}`: "a1", `{"select":"newest"}`: "a1", `{"select":"any"}`: "a1",
		`{"target":{"session_id":"free"}}`: "free",
	} {
		if a := decode[answer](call("anna", "t", body), 200); a.SessionID != want {
			t.Errorf("%s: went to %s, want %s", body, a.SessionID, want)
		}
	}
	for _, body := range []string{`{"target":{"user_id":"ben"}}`, `{"target":{"session_id":"b1"}}`} {
		wantProblem(call("anna", "t", body), 404, registry.CodeSessionNotFound)
	}
	wantProblem(call("anna", "only-b1", `{}`), 404, registry.CodeToolNotFound)
	if a := decode[answer](call("root", "only-b1", `{}`), 200); a.SessionID != "b1" {
		t.Errorf("the admin's call went to %s", a.SessionID)
	}
}

// Calls, their keys and their lines in the feed are their callers'.
func TestCallsOfUsers(t *testing.T) {
	f := crowd(t)
	annas := f.follow(0, "/api/events?type=call.finished", "")
	bens := f.followAs("ben", "/api/events?type=call.finished")
	run := func(user, body string) answer {
		return decode[answer](f.send(request{
			method: http.MethodPost, path: "/api/sessions/free/tools/t/call", body: body, header: as(user),
		}), 200)
	}
	const keyed = `{"idempotency_key":"k"}`
	ids := make(map[string]string)
	for _, user := range []string{"ben", "anna", "key:1", "key:2", "root"} {
		ids[user] = run(user, keyed).CallID
		if again := run(user, keyed).CallID; again != ids[user] {
			t.Errorf("%s: the key is not remembered: %s, %s", user, ids[user], again)
		}
		for other, id := range ids {
			if other != user && id == ids[user] {
				t.Errorf("%s has the call that %s made", user, other)
			}
		}
	}
	for _, path := range []string{"", "?wait_ms=10", "/events"} {
		for _, other := range []string{"ben", "root", "key:1"} {
			wantProblem(f.get("/api/calls/"+ids[other]+path), 404, registry.CodeCallNotFound)
			if r := f.send(request{path: "/api/calls/" + ids[other] + path, header: as("root")}); r.status != 200 {
				t.Errorf("the admin reads %s of %s: %d", path, other, r.status)
			}
		}
		if r := f.get("/api/calls/" + ids["anna"] + path); r.status != 200 {
			t.Errorf("anna reads her own %s: %d %s", path, r.status, r.body)
		}
	}
	wantProblem(f.send(request{method: http.MethodDelete, path: "/api/calls/" + ids["ben"]}), 404,
		registry.CodeCallNotFound)
	if c := read[activity](t, "Activity", annas.next()).Call; c.CallID != ids["anna"] {
		t.Errorf("anna's stream begins with %+v", c)
	}
	if c := read[activity](t, "Activity", bens.next()).Call; c.CallID != ids["ben"] {
		t.Errorf("ben's stream begins with %+v", c)
	}
	f.eventually("all calls to be listed", func() bool {
		all := decode[callList](f.send(request{path: "/api/calls", header: as("root")}), 200)
		return len(all.Calls) == len(ids)
	})
	if mine := decode[callList](f.get("/api/calls"), 200); len(mine.Calls) != 1 || mine.Calls[0].CallID != ids["anna"] {
		t.Errorf("anna's calls: %+v", mine)
	}
}

// What happens to devices is told to those who may see them, from the feed and when a stream catches up.
func TestFeedOfUsers(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth = people{} }})
	all := f.followAs("root", "/api/events")
	annas := f.follow(0, "/api/events", "")
	for _, d := range []struct{ id, user string }{{"b1", "ben"}, {"a1", "anna"}, {"b2", "ben"}, {"free", ""}} {
		s := session(d.id)
		s.UserID = d.user
		f.connect(0, s, echo).gone()
	}
	first := all.next()
	behind := f.follow(0, "/api/events", first.id)
	for _, s := range []*following{annas, behind} {
		for _, want := range []string{"a1", "a1", "a1", "free"} {
			if a := read[activity](t, "Activity", s.next()); a.SessionID != want {
				t.Errorf("%s of %s, want %s", a.Type, a.SessionID, want)
			}
		}
	}
}

// What a request says of its sender changes nothing, and is refused where it could be taken for a filter.
func TestIdentityIsNotInRequests(t *testing.T) {
	f := crowd(t)
	for _, field := range []string{`"scopes":["admin"]`, `"role":"admin"`, `"tenant":"other"`, `"user_id":"ben"`,
		`"admin":true`} {
		for path, body := range map[string]string{
			"/api/sessions/free/tools/t/call": `{` + field + `}`, "/api/sessions/b1/tools/t/call": `{` + field + `}`,
			"/api/sessions/b1/messages": `{"content":"hi",` + field + `}`,
			"/api/tools/t/call":         `{"target":{"session_id":"free"},` + field + `}`,
		} {
			wantProblem(f.post(path, body), 400, registry.CodeInvalidRequest)
		}
	}
	for _, query := range []string{"tenant=other", "role=admin", "scopes=admin", "viewer=ben", "admin=true"} {
		wantProblem(f.get("/api/tools?"+query), 400, registry.CodeInvalidRequest)
		wantProblem(f.get("/api/sessions?"+query), 400, registry.CodeInvalidRequest)
	}
	if rows := decode[struct{ Sessions []any }](f.get("/api/sessions?user_id=ben"), 200); len(rows.Sessions) != 0 {
		t.Errorf("anna is shown ben's sessions: %v", rows)
	}
	for _, header := range []string{"X-Farhand-User", "X-User-Id", "X-Tenant", "X-Forwarded-User"} {
		r := f.send(request{path: "/api/sessions/b1", header: http.Header{header: {"ben"}}})
		wantProblem(r, 404, registry.CodeSessionNotFound)
	}
}

// A session of another user is unknown, whether it is connected or away, alone and with all that hangs on it.
func TestSessionsOfUsers(t *testing.T) {
	f := crowd(t)
	gone := session("gone")
	gone.UserID = "ben"
	f.connect(0, gone, echo).gone()
	for _, r := range []request{
		{path: "/api/sessions/ID"}, {path: "/api/sessions/ID/state"},
		{method: http.MethodDelete, path: "/api/sessions/ID"},
		{method: http.MethodPut, path: "/api/sessions/ID", body: `{"name":"x"}`},
		{method: http.MethodPost, path: "/api/sessions/ID/abort"},
		{method: http.MethodPost, path: "/api/sessions/ID/tools/t/call", body: `{}`},
	} {
		answer := func(id string) string {
			one := r
			one.path = strings.Replace(r.path, "ID", id, 1)
			p := wantProblem(f.send(one), 404, registry.CodeSessionNotFound)
			return p.Detail
		}
		unknown := answer("ghost")
		for _, id := range []string{"b1", "gone"} {
			if got := answer(id); got != unknown {
				t.Errorf("%s %s of %s: %q, and what does not exist %q", r.method, r.path, id, got, unknown)
			}
		}
	}
	wantProblem(f.send(request{path: "/api/sessions/gone/state", header: as("ben")}), 409, registry.CodeNotConnected)
}
