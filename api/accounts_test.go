package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// direct is an auditor that writes at once.
type direct struct{ *memory.Store }

func (d direct) Note(e registry.AuditEntry) {
	e.Pod = "pod-0"
	if e.At.IsZero() {
		e.At = time.Now()
	}
	_ = d.AppendAudit(context.Background(), []registry.AuditEntry{e}) // in memory it does not fail
}

// accountsFleet is a pod whose audit log and usage are in the store it returns.
func accountsFleet(t *testing.T) (*fleet, *memory.Store) {
	t.Helper()
	store := memory.New(memory.Options{})
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth, c.AuditLog, c.Usage, c.Audit = oneAdmin{c.Auth}, store, store, direct{store}
	}})
	return f, store
}

type auditPage struct {
	Lines []struct {
		ID, At, Pod, Action, Outcome, Code, Reason, Tool, Target string

		Actor      struct{ User, Credential, Source string }
		SessionID  string `json:"session_id"`
		DeviceID   string `json:"device_id"`
		CallID     string `json:"call_id"`
		ArgsDigest string `json:"args_digest"`
	} `json:"lines"`
	NextCursor string `json:"next_cursor"`
}

// What is done to sessions, turns and calls is in the audit log: by whom, from where, and how it went.
func TestActionsAreAudited(t *testing.T) {
	f, _ := accountsFleet(t)
	f.connect(0, session("phone"), silent, tools("look")...)
	running := decode[answer](f.post("/api/sessions/phone/tools/look/call", `{"mode":"async"}`), 202)
	for _, r := range []request{
		{method: http.MethodDelete, path: "/api/calls/" + running.CallID},
		{method: http.MethodDelete, path: "/api/calls/00000000-0000-0000-0000-000000000000", header: asAnna},
		{method: http.MethodPut, path: "/api/sessions/phone", body: `{"name":"Kitchen"}`},
		{method: http.MethodPost, path: "/api/sessions/phone/abort"},
		{method: http.MethodDelete, path: "/api/sessions/phone"},
	} {
		f.send(r)
	}
	var got []string
	for _, e := range decode[auditPage](f.get("/api/audit"), 200).Lines {
		if e.Actor.Source != "127.0.0.1" || e.Pod != "pod-0" || e.At == "" || e.ID == "" {
			t.Errorf("%+v", e)
		}
		about := e.SessionID
		if e.CallID == running.CallID {
			about = "the call"
		}
		got = append(got, strings.Join([]string{
			e.Actor.User + e.Actor.Credential, e.Action, about, e.Outcome, e.Code,
		}, " "))
	}
	slices.Reverse(got)
	want := []string{
		"token call.cancel the call allowed ", "anna call.cancel  failed call_not_found",
		"token session.rename phone ", "token turn.abort phone allowed ", "token session.kick phone allowed ",
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines: %q", len(got), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("line %d: %q, want %q", i, got[i], want[i])
		}
	}
}

// What was decided of devices and keys is in the audit log, not only that something was.
func TestDecisionsAboutDevicesAndKeysAreAudited(t *testing.T) {
	store := memory.New(memory.Options{})
	pairings, err := pairing.New(pairing.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.Auth, c.AuditLog, c.Audit, c.Pairing = oneAdmin{c.Auth}, store, direct{store}, pairings
		c.Credentials = store
	}})
	for i, rest := range []string{
		`}`, `,"decision":"approve","user":"ann","tools":["photo"]}`, `,"decision":"reject"}`,
	} {
		asked := decode[struct{ Code string }](f.post("/pair", fmt.Sprintf(`{"device_id":"cam%d"}`, i)), 201)
		f.post("/api/pairings", `{"code":"`+asked.Code+`"`+rest)
	}
	f.post("/api/keys", `{"roles":["caller"],"user_id":"ben","tools":"torch"}`)
	var got []string
	for _, e := range decode[auditPage](f.get("/api/audit"), 200).Lines {
		if e.Target == "" {
			t.Errorf("%+v", e)
		}
		got = append(got, strings.Join([]string{e.Action, e.DeviceID, e.Outcome, e.Reason}, " "))
	}
	slices.Reverse(got)
	want := []string{
		"pair.look cam0 seen ",
		"pair.decide cam1 allowed approved; tools: photo; user: ann",
		"pair.decide cam2 denied rejected",
		"key.create  allowed roles: caller; user: ben; tools: torch",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// fillAudit writes numbered lines about calls of ann and ben.
func fillAudit(t *testing.T, store *memory.Store, tenant string, n int) {
	t.Helper()
	var lines []registry.AuditEntry
	for i := range n {
		lines = append(lines, registry.AuditEntry{
			Tenant: tenant, At: time.Now(), Action: registry.AuditCall, Outcome: registry.AuditAllowed,
			Target: fmt.Sprint(i), Actor: registry.AuditActor{User: []string{"ann", "ben"}[i%2]},
			Args: registry.MustJSON(`{"pin":"4711"}`),
		})
	}
	if err := store.AppendAudit(t.Context(), lines); err != nil {
		t.Fatal(err)
	}
}

// The log is for admins of its tenant; its pages and its export have every line once, and filters restrict them.
func TestReadingTheAuditLog(t *testing.T) {
	f, store := accountsFleet(t)
	fillAudit(t, store, registry.DefaultTenant, 2500)
	fillAudit(t, store, "other", 10)
	wantProblem(f.send(request{path: "/api/audit", header: asAnna}), 403, registry.CodeForbidden)
	read := func(query string) (targets []string) {
		for cursor := ""; ; {
			page := decode[auditPage](f.get("/api/audit?limit=700&"+query+cursor), 200)
			for _, e := range page.Lines {
				targets = append(targets, e.Target)
				if len(e.ArgsDigest) != 64 {
					t.Fatalf("%+v", e)
				}
			}
			if page.NextCursor == "" {
				return targets
			}
			cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
		}
	}
	all := read("")
	if len(all) != 2500 || all[0] != "2499" || all[2499] != "0" {
		t.Fatalf("%d lines, from %s", len(all), all[0])
	}
	if n := len(read("user=ben&outcome=allowed&action=call")); n != 1250 {
		t.Errorf("%d lines of ben", n)
	}
	if n := len(read("to=2020-01-01")) + len(read("outcome=denied")); n != 0 {
		t.Errorf("%d lines of the past, or denied", n)
	}
	for _, r := range []request{{path: "/api/audit?format=jsonl"},
		{path: "/api/audit", header: http.Header{"Accept": {"application/x-ndjson"}}}} {
		got := f.send(r)
		lines := bytes.Split(bytes.TrimSpace(got.body), []byte("\n"))
		if got.status != 200 || got.header.Get("Content-Type") != "application/x-ndjson" || len(lines) != 2500 {
			t.Fatalf("%d %v: %d lines", got.status, got.header, len(lines))
		}
		for i, line := range lines {
			var e struct{ Target string }
			if err := json.Unmarshal(line, &e); err != nil || e.Target != all[i] {
				t.Fatalf("line %d: %s", i, line)
			}
		}
		if bytes.Contains(got.body, []byte("4711")) {
			t.Error("the log has arguments")
		}
	}
	some := f.get("/api/audit?format=jsonl&limit=3")
	if lines := strings.Split(strings.TrimSpace(string(some.body)), "\n"); len(lines) != 4 ||
		!strings.HasPrefix(lines[3], `{"next_cursor":"`) {
		t.Errorf("%s", some.body)
	}
	for _, bad := range []string{
		"action=x", "outcome=x", "format=xml", "from=yesterday", "to=1", "cursor=x", "limit=0", "session_id=/", "x=1",
	} {
		wantProblem(f.get("/api/audit?"+bad), 400, registry.CodeInvalidRequest)
	}
}

type usagePage struct {
	From, To string
	Usage    []struct {
		Day, Tool   string
		User        *string
		Calls       int64
		InputTokens int64 `json:"input_tokens"`
	}
	NextCursor string `json:"next_cursor"`
}

// Usage is added up by what is asked for; callers that are users see their own, admins that of their tenant.
func TestReadingUsage(t *testing.T) {
	f, store := accountsFleet(t)
	var rows []registry.UsageRow
	for _, day := range []string{"2026-11-20", "2026-11-21"} {
		for _, user := range []string{"", "anna", "ben"} {
			for _, tool := range []string{"look", registry.UsageModels} {
				u := registry.Usage{Calls: 1}
				if tool == registry.UsageModels {
					u = registry.Usage{InputTokens: 100}
				}
				rows = append(rows, registry.UsageRow{
					Tenant: registry.DefaultTenant, Day: day, User: user, Tool: tool, Usage: u,
				})
			}
		}
	}
	rows = append(rows, registry.UsageRow{Tenant: "other", Day: "2026-11-20", User: "anna", Tool: "look"})
	f.must(store.AddUsage(t.Context(), rows))
	read := func(query string, who http.Header) string {
		var lines []string
		for cursor := ""; ; {
			path := "/api/usage?from=2026-11-01&to=2026-11-30&" + query + cursor
			page := decode[usagePage](f.send(request{path: path, header: who}), 200)
			for _, r := range page.Usage {
				user := "-"
				if r.User != nil {
					user = *r.User
				}
				lines = append(lines, fmt.Sprintf("%s|%s|%s|%d|%d", r.Day, user, r.Tool, r.Calls, r.InputTokens))
			}
			if page.NextCursor == "" {
				return strings.Join(lines, " ")
			}
			cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
		}
	}
	for _, c := range []struct {
		query string
		who   http.Header
		want  string
	}{
		{"by=tool&limit=1", nil, "|-|(models)|0|600 |-|look|6|0"},
		{"by=user&tool=look&limit=2", nil, "|||2|0 |anna||2|0 |ben||2|0"},
		{"by=day&user=ben", nil, "2026-11-20|-||1|100 2026-11-21|-||1|100"},
		{"user=anna&tool=look&limit=1", nil, "2026-11-20|anna|look|1|0 2026-11-21|anna|look|1|0"},
		{"by=user", asAnna, "|anna||2|200"},
		{"by=user&user=anna", asAnna, "|anna||2|200"},
		{"by=user&user=ben", asAnna, ""},
	} {
		if got := read(c.query, c.who); got != c.want {
			t.Errorf("%s: got %q, want %q", c.query, got, c.want)
		}
	}
	if page := decode[usagePage](f.get("/api/usage"), 200); len(page.Usage) == 0 && page.From >= page.To {
		t.Errorf("%+v", page)
	}
	for _, bad := range []string{"by=pod", "by=day,,user", "from=2026-01-02&to=2026-01-01", "from=2020-01-01",
		"user=", "x=1", "limit=1001", "cursor=x"} {
		wantProblem(f.get("/api/usage?"+bad), 400, registry.CodeInvalidRequest)
	}
}
