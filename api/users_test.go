package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// oneUser is an authenticator whose token is one user's.
type oneUser string

func (u oneUser) Authenticate(context.Context, *http.Request, string) (auth.Identity, error) {
	return auth.Identity{Tenant: registry.DefaultTenant, User: string(u), Roles: auth.RoleCaller}, nil
}

// fleetOf is a fleet of anna, whose agent is a, with sessions of anna, of ben, and of nobody.
func fleetOf(t *testing.T, a *scripted) *fleet {
	t.Helper()
	f := newFleet(t, setup{change: func(c *api.Config) { a.join(c); c.Auth = oneUser("anna") }})
	for id, user := range map[string]string{"a1": "anna", "b1": "ben", "free": "", "ben": "ben"} {
		s := session(id)
		s.UserID = user
		f.connect(0, s, echo, tools("t")...)
	}
	return f
}

// A user who is known does not talk to another user's device, nor read what was said there.
func TestConversationsOfOtherUsers(t *testing.T) {
	a := oneTurn()
	said := chat.Transcript{Messages: []provider.Message{{Role: provider.RoleUser, Content: "secret"}}}
	a.transcripts = map[string]chat.Transcript{"a1": said, "b1": said, "free": said}
	f := fleetOf(t, a)
	for _, id := range []string{"a1", "free"} {
		path := "/api/sessions/" + id + "/messages"
		if r := f.get(path); r.status != 200 || !strings.Contains(string(r.body), "secret") {
			t.Errorf("%s: %d %s", id, r.status, r.body)
		}
		if r := f.post(path, `{"content":"hi"}`); r.status != 200 {
			t.Errorf("%s: %d %s", id, r.status, r.body)
		}
		<-a.asked
	}
	for _, body := range []string{"", `{"content":"hi"}`, `{"content":"hi","stream":true}`, `{"regenerate":true}`} {
		r := request{path: "/api/sessions/b1/messages", body: body}
		if body != "" {
			r.method = http.MethodPost
		}
		wantProblem(f.send(r), 404, registry.CodeSessionNotFound)
	}
	if len(a.asked) != 0 {
		t.Errorf("asked %+v", <-a.asked)
	}
}

// Nor does such a user's client use another user's device.
func TestCompletionsWithSessionsOfOtherUsers(t *testing.T) {
	a := answering()
	f := fleetOf(t, a)
	for _, tt := range []struct {
		header, fields string
		status         int
		want           string // the session; or the code
	}{
		{"a1", ``, 200, "a1"},
		{"free", ``, 200, "free"},
		{"b1", ``, 404, "session_not_found"},
		{"b1", `,"tool_choice":"none"`, 404, "session_not_found"},
		{"", ``, 200, ""},
		{"", `,"user":"anna"`, 200, "a1"},
		{"", `,"user":"ben"`, 403, "forbidden"},
		{"", `,"user":"b1"`, 403, "forbidden"},
		{"", `,"user":"free"`, 403, "forbidden"},
		{"", `,"user":"ben","tool_choice":"none"`, 200, ""}, // it chooses nothing
		{"a1", `,"user":"ben"`, 200, "a1"},
	} {
		header := http.Header{}
		if tt.header != "" {
			header["X-Farhand-Session"] = []string{tt.header}
		}
		r := f.send(request{method: http.MethodPost, path: completionsPath, body: strings.TrimSuffix(hello, "}") +
			tt.fields + "}", header: header})
		if tt.status != 200 {
			if got := decode[failure](r, tt.status); got.Error.Code != tt.want ||
				strings.Contains(got.Error.Message, "b1") {
				t.Errorf("%+v: %s", tt, r.body)
			}
			continue
		}
		if r.status != 200 {
			t.Errorf("%+v: status %d: %s", tt, r.status, r.body)
			continue
		}
		if got := (<-a.completed).Key.Session; got != tt.want {
			t.Errorf("%+v: the tools of %q", tt, got)
		}
	}
}
