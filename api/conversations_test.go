package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// kept is a fleet whose conversations a test writes itself.
type kept struct {
	erased *sync.Map // ids of sessions whose conversation was erased
	*fleet
	store registry.ConversationStore
}

func newKept(t *testing.T, s setup, auth auth.Authenticator) kept {
	k := kept{erased: new(sync.Map)}
	s.change = func(c *api.Config) {
		c.Ended = func(_ context.Context, key registry.Key) { k.erased.Store(key.Session, true) }
		k.store = c.Conversations.(registry.ConversationStore)
		if auth != nil {
			c.Auth = auth
		}
	}
	k.fleet = newFleet(t, s)
	return k
}

// begin begins a turn and says something in it.
func (k kept) begin(session string, owner registry.Owner) registry.Turn {
	k.Helper()
	key := registry.Key{Tenant: registry.DefaultTenant, Session: session}
	t, err := k.store.BeginTurn(k.Context(), key, time.Minute)
	k.must(err)
	k.must(k.store.SetOwner(k.Context(), t, owner))
	_, err = k.store.AppendMessages(k.Context(), t, json.RawMessage(`{"role":"user","content":"hi"}`))
	k.must(err)
	return t
}

func (k kept) talk(session string, owner registry.Owner) {
	k.Helper()
	k.must(k.store.EndTurn(k.Context(), k.begin(session, owner)))
	for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; { // lists are in the order of milliseconds
		runtime.Gosched()
	}
}

type conversationRow struct {
	sessionRow
	CreatedAt    string `json:"created_at"`
	LastActivity string `json:"last_activity"`
	MessageCount int    `json:"message_count"`
}

func (k kept) rows(pod int, query string) []conversationRow {
	k.Helper()
	var all []conversationRow
	for next := "/api/sessions?" + query; next != ""; {
		page := decode[struct {
			Sessions   []conversationRow
			NextCursor string `json:"next_cursor"`
		}](k.send(request{path: next, pod: pod}), 200)
		all = append(all, page.Sessions...)
		if next = ""; page.NextCursor != "" {
			next = "/api/sessions?" + query + "&cursor=" + page.NextCursor
		}
	}
	return all
}

func (k kept) listed(query string) []string {
	k.Helper()
	var ids []string
	for _, row := range k.rows(0, query) {
		ids = append(ids, fmt.Sprintf("%s %v", row.SessionID, row.Connected))
	}
	return ids
}

func TestSessionsThatAreOffline(t *testing.T) {
	k := newKept(t, setup{pods: 2}, nil)
	phone := k.connect(0, registry.Session{Key: registry.Key{Session: "phone"}, DeviceID: "d1"}, echo, tools("look")...)
	k.connect(1, session("silent"), echo)
	for _, s := range []string{"old", "phone", "new"} {
		k.talk(s, registry.Owner{DeviceID: "of-" + s})
	}
	connected, offline := []string{"phone true", "silent true"}, []string{"new false", "old false"}
	all := append(slices.Clone(connected), offline...)
	for query, want := range map[string][]string{
		"": all, "limit=1": all, "limit=2": all, "limit=3": all, "limit=4": all, "connected=true": connected,
		"connected=false": offline, "connected=false&limit=1": offline, "device_id=of-old": {"old false"},
		"device_id=d1": {"phone true"},
		"tool=look":    {"phone true"}, "label=a=b": nil,
	} {
		equal(t, query, k.listed(query), want)
	}
	for pod := range k.pods {
		rows := k.rows(pod, "")
		if r := rows[0]; r.MessageCount != 1 || r.CreatedAt == "" || r.LastActivity < r.CreatedAt ||
			r.ConnectedAt == "" {
			t.Errorf("connected: %+v", r)
		}
		if r := rows[1]; r.MessageCount != 0 || r.CreatedAt != r.ConnectedAt {
			t.Errorf("connected, and silent: %+v", r)
		}
		if r := rows[2]; r.MessageCount != 1 || r.DeviceID != "of-new" || r.CreatedAt == "" || r.ConnectedAt != "" ||
			r.Tools == nil {
			t.Errorf("offline: %+v", r)
		}
	}
	before := k.get("/api/sessions")
	phone.gone()
	equal(t, "after a device with a conversation has gone", k.listed(""),
		[]string{"silent true", "new false", "phone false", "old false"})
	if row := decode[conversationRow](k.get("/api/sessions/phone"), 200); row.Connected || row.MessageCount != 1 {
		t.Errorf("%+v", row)
	}
	tagged := func(tag string) int {
		return k.send(request{path: "/api/sessions", header: http.Header{"If-None-Match": {tag}}}).status
	}
	if s := tagged(before.header.Get("ETag")); s != 200 {
		t.Errorf("status %d for an old tag", s)
	}
	now := k.get("/api/sessions").header.Get("ETag")
	if s := tagged(now); s != 304 {
		t.Errorf("status %d for the current tag", s)
	}
	k.talk("old", registry.Owner{})
	if s := tagged(now); s != 200 {
		t.Errorf("status %d after somebody talked", s)
	}
}

func TestSessionsAreRenamed(t *testing.T) {
	k := newKept(t, setup{pods: 1}, nil)
	labelled := session("labelled")
	labelled.Name = "from the URL"
	k.connect(0, labelled, echo)
	k.connect(0, session("plain"), echo)
	k.talk("gone", registry.Owner{})
	put := func(id, body string) reply {
		return k.send(request{method: http.MethodPut, path: "/api/sessions/" + id, body: body})
	}
	for _, id := range []string{"labelled", "plain", "gone"} {
		got := decode[map[string]string](put(id, `{"name":" Küche 1 "}`), 200)
		if got["session_id"] != id || got["name"] != "Küche 1" {
			t.Errorf("%s: %v", id, got)
		}
	}
	for _, row := range k.rows(0, "") {
		if row.Name != "Küche 1" {
			t.Errorf("%s is named %q", row.SessionID, row.Name)
		}
	}
	wantProblem(put("nobody", `{"name":"x"}`), 404, registry.CodeSessionNotFound)
	for _, body := range []string{``, `{}`, `{"name":""}`, `{"name":"  "}`, `{"name":1}`, `{"name":"a\u0007"}`,
		`{"title":"x"}`, `[]`} {
		wantProblem(put("gone", body), 400, registry.CodeInvalidRequest)
	}
}

// A user who names sessions, and erases conversations that never began, gets a share of what a tenant may store.
func TestNamesAndErasuresAreCounted(t *testing.T) {
	const records = 4 // of one identity at once
	for method, cost := range map[string]int64{http.MethodPut: 8 << 10, http.MethodDelete: 1 << 10} {
		t.Run(method, func(t *testing.T) {
			k := newKept(t, setup{history: 4 * records * cost}, byTenantAndUser{})
			as := func(user, method, id string) reply {
				return k.send(request{method: method, path: "/api/sessions/" + id, body: `{"name":"x"}`,
					header: http.Header{"Authorization": {"Bearer " + registry.DefaultTenant + "/" + user}}})
			}
			own := func(user, id string) (string, *device) {
				s := session(id)
				s.UserID = user
				return id, k.connect(0, s, echo)
			}
			for i := range records {
				id, _ := own("eve", fmt.Sprint("e", i))
				if r := as("eve", method, id); r.status >= 300 {
					t.Fatalf("record %d of eve: %d %s", i, r.status, r.body)
				}
			}
			id, more := own("eve", "more")
			r := as("eve", method, id)
			_, erased := k.erased.Load("more")
			wantProblem(r, 429, registry.CodeRateLimited)
			if method == http.MethodDelete {
				if cause := await(t, "the device to be closed", more.closed); cause != routing.CloseKicked || erased {
					t.Errorf("a session beyond the budget: closed as %s, erased %v", cause, erased)
				}
			}
			if id, _ := own("ann", "a"); as("ann", method, id).status >= 300 {
				t.Error("another user is refused")
			}
			k.talk("said", registry.Owner{UserID: "eve"})
			if r := as("eve", http.MethodDelete, "said"); r.status != 204 {
				t.Errorf("a stored conversation cannot be deleted: %d %s", r.status, r.body)
			}
		})
	}
}

func TestDeletingErasesWhatWasSaid(t *testing.T) {
	k := newKept(t, setup{pods: 2}, nil)
	phone := k.connect(1, session("phone"), echo)
	for _, s := range []string{"phone", "gone"} {
		k.talk(s, registry.Owner{})
	}
	turn := k.begin("busy", registry.Owner{})
	for _, id := range []string{"phone", "gone", "busy"} {
		r := k.send(request{method: http.MethodDelete, path: "/api/sessions/" + id})
		if r.status != 204 {
			t.Errorf("%s: %d %s", id, r.status, r.body)
		}
	}
	if cause := await(t, "the device to be closed", phone.closed); cause != routing.CloseKicked {
		t.Errorf("closed as %s", cause)
	}
	for _, id := range []string{"phone", "gone", "busy"} {
		if n, err := k.store.CountMessages(k.Context(), registry.Key{Tenant: registry.DefaultTenant,
			Session: id}); n != 0 || err != nil {
			t.Errorf("%s: %d messages, %v", id, n, err)
		}
	}
	if _, err := k.store.AppendMessages(k.Context(), turn, json.RawMessage(`1`)); err == nil {
		t.Error("the erased conversation goes on")
	}
	wantProblem(k.send(request{method: http.MethodDelete, path: "/api/sessions/gone"}), 404,
		registry.CodeSessionNotFound)
}

func TestStateAndRunningSessions(t *testing.T) {
	k := newKept(t, setup{pods: 2}, nil)
	k.connect(0, session("fresh"), echo)
	k.talk("idle", registry.Owner{})
	turn := k.begin("busy", registry.Owner{})
	type state struct {
		State         string
		TurnStartedAt string `json:"turn_started_at"`
	}
	for pod := range k.pods {
		for id, want := range map[string]string{"fresh": "idle", "idle": "idle", "busy": "running"} {
			s := decode[state](k.send(request{path: "/api/sessions/" + id + "/state", pod: pod}), 200)
			if s.State != want || (s.TurnStartedAt != "") != (want == "running") {
				t.Errorf("%s: %+v", id, s)
			}
		}
		running := decode[sessionList](k.send(request{path: "/api/sessions/running", pod: pod}), 200)
		equal(t, "running", ids(running), []string{"busy"})
	}
	wantProblem(k.get("/api/sessions/nobody/state"), 404, registry.CodeSessionNotFound)
	k.must(k.store.EndTurn(k.Context(), turn))
	equal(t, "running", ids(decode[sessionList](k.get("/api/sessions/running"), 200)), nil)
	if h := decode[map[string]string](k.send(request{path: "/health", header: http.Header{"Authorization": nil}}),
		200); h["status"] != "ok" || h["version"] == "" {
		t.Errorf("health %v", h)
	}
}

// A turn is aborted from whatever pod is asked, and has ended when that answers.
func TestAbortFromEveryPod(t *testing.T) {
	k := newKept(t, setup{pods: 3}, nil)
	key := registry.Key{Tenant: registry.DefaultTenant, Session: "s1"}
	for pod := range k.pods {
		turn := k.begin("s1", registry.Owner{})
		asked := make(chan struct{}, 16)
		k.pods[1].Turns.Serve(func(which registry.Key) bool {
			if which != key {
				return false
			}
			asked <- struct{}{}
			go func() { // as an engine does: not at once
				ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
				defer cancel()
				_ = k.store.EndTurn(ctx, turn)
			}()
			return true
		})
		abort := func() string {
			return decode[map[string]string](k.send(request{method: http.MethodPost, path: "/api/sessions/s1/abort",
				body: "{}", pod: pod}), 200)["status"]
		}
		if s := abort(); s != "aborted" || len(asked) == 0 {
			t.Errorf("pod %d: %s", pod, s)
		}
		if info, err := k.store.DescribeConversations(k.Context(), key); err != nil || !info[0].Turn.IsZero() {
			t.Errorf("pod %d: the turn goes on: %+v, %v", pod, info, err)
		}
		if s := abort(); s != "no_active_response" {
			t.Errorf("pod %d, again: %s", pod, s)
		}
	}
	wantProblem(k.post("/api/sessions/nobody/abort", ""), 404, registry.CodeSessionNotFound)
	wantProblem(k.post("/api/sessions/s1/abort", `{"now":true}`), 400, registry.CodeInvalidRequest)
}

// A conversation is its owner's also when the device has gone: for other users it does not exist.
func TestConversationsHaveOwners(t *testing.T) {
	a := oneTurn()
	k := newKept(t, setup{pods: 1}, nil)
	f := newFleet(t, setup{change: func(c *api.Config) {
		a.join(c)
		c.Auth = oneUser("anna")
		k.store = c.Conversations.(registry.ConversationStore)
	}})
	k.fleet = f
	said := chat.Transcript{Messages: nil, Title: "secret"}
	a.transcripts = map[string]chat.Transcript{"bens": said, "annas": said, "anybodys": said}
	for id, user := range map[string]string{"bens": "ben", "annas": "anna", "anybodys": ""} {
		k.talk(id, registry.Owner{UserID: user})
	}
	for _, r := range []request{
		{path: "/api/sessions/bens"}, {path: "/api/sessions/bens/messages"}, {path: "/api/sessions/bens/state"},
		{path: "/api/sessions/bens/messages", method: http.MethodPost, body: `{"content":"hi"}`},
		{path: "/api/sessions/bens/abort", method: http.MethodPost},
		{path: "/api/sessions/bens", method: http.MethodPut, body: `{"name":"mine"}`},
		{path: "/api/sessions/bens", method: http.MethodDelete},
	} {
		wantProblem(k.send(r), 404, registry.CodeSessionNotFound)
	}
	var mine []string
	for _, row := range k.rows(0, "") {
		mine = append(mine, row.SessionID)
	}
	slices.Sort(mine)
	equal(t, "listed", mine, []string{"annas", "anybodys"})
	if r := k.post("/api/sessions/annas/messages", `{"content":"hi"}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if ask := <-a.asked; ask.Owner.UserID != "anna" {
		t.Errorf("asked for %+v", ask.Owner)
	}
}
