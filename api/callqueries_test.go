package api_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

func TestCallList(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	phone := session("s1")
	phone.DeviceID = "phone-1"
	f.connect(1, phone, echo, tools("t", "u")...)
	f.connect(0, session("s2"), func(routing.DeviceCall) (registry.Result, bool) {
		return registry.NewResult(false, registry.JSON{}, "no film"), true
	}, tools("t")...)
	var want []string // newest first
	call := func(pod int, path, body string) {
		t.Helper()
		r := f.send(request{method: http.MethodPost, path: path, body: body, pod: pod})
		want = slices.Insert(want, 0, r.header.Get("X-Farhand-Call-Id"))
		f.eventually("the call to be listed", func() bool { return len(f.calls("")) == len(want) })
	}
	call(0, "/api/sessions/s1/tools/t/call", "")
	call(1, "/api/sessions/s1/tools/u/call", "")
	call(0, "/api/sessions/s2/tools/t/call", "")
	call(1, "/api/tools/absent/call", "")
	call(0, "/api/sessions/s1/tools/t/call", `{"idempotency_key":"k"}`)
	for query, places := range map[string][]int{
		"": {0, 1, 2, 3, 4}, "tool=t": {0, 2, 4}, "session_id=s2": {2}, "device_id=phone-1": {0, 3, 4},
		"state=rejected": {1},
		"state=failed":   {2}, "tool=t&state=succeeded": {0, 4}, "state=running": nil, "limit=2": {0, 1},
		"device_id=nobody": nil,
	} {
		equal(t, query, idsOf(f.calls(query)), pick(want, places))
	}
	var paged []string
	for next := "/api/calls?limit=2&tool=t"; next != ""; {
		page := decode[callList](f.get(next), 200)
		paged = append(paged, idsOf(page.Calls)...)
		next = ""
		if page.NextCursor != "" {
			next = "/api/calls?limit=2&tool=t&cursor=" + page.NextCursor
		}
	}
	equal(t, "pages", paged, []string{want[0], want[2], want[4]})
	failed := f.calls("state=failed")[0]
	if *failed.Success || failed.Error != "no film" || failed.Output != nil || failed.Problem != nil {
		t.Errorf("failed: %+v", failed)
	}
	refused := f.calls("state=rejected")[0]
	if refused.Problem.Code != registry.CodeToolNotFound || refused.Dispatched != registry.DispatchedNo ||
		*refused.Retryable {
		t.Errorf("refused: %+v", refused)
	}
	for _, query := range []string{"state=over", "limit=0", "cursor=x", "session_id=%7B", "tool=a%20b", "user_id=x",
		"state="} {
		wantProblem(f.get("/api/calls?"+query), 400, registry.CodeInvalidRequest)
	}
}

// The filters by user, pod and time cover all stored calls; a user with a filter sees no more than without.
func TestCallsOfAUserAPodAndATime(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders})
	f.connect(1, session("s1"), echo, tools("t")...)
	var ids []string
	call := func(who string, pod int, path string) {
		t.Helper()
		r := f.as(who, request{method: http.MethodPost, path: path, pod: pod})
		ids = append(ids, r.header.Get("X-Farhand-Call-Id"))
		f.eventually("the call to be listed", func() bool { return len(f.calls("")) == len(ids) })
	}
	call("agent", 0, "/api/sessions/s1/tools/t/call") // ann's, from pod-0 to pod-1
	call("bot", 0, "/api/tools/absent/call")          // ben's, on pod-0
	cut := time.Now().Add(time.Millisecond).UTC().Truncate(time.Millisecond)
	f.eventually("the next millisecond", func() bool { return !time.Now().Before(cut) })
	call("bot", 1, "/api/sessions/s1/tools/t/call")
	at := cut.Format("2006-01-02T15:04:05.000Z07:00")
	for query, want := range map[string][]int{
		"user=ann": {0}, "user=ben": {2, 1}, "user=eve": nil, "pod=pod-0": {1, 0}, "pod=pod-1": {2, 0}, "pod=x": nil,
		"from=" + at: {2}, "to=" + at: {1, 0}, "from=" + at + "&to=" + at: nil, "to=" + at + "&user=ben": {1},
		"from=1970-01-01": {2, 1, 0}, "to=1970-01-01": nil, "to=9999-12-31": {2, 1, 0}, "from=9999-12-31": nil,
		"to=1970-01-01T00:00:00%2B10:00": nil,
	} {
		equal(t, query, idsOf(f.calls(query)), pick(ids, want))
	}
	for query, want := range map[string][]int{"": {0}, "?user=ann": {0}, "?user=ben": nil, "?pod=pod-0": {0}} {
		list := decode[callList](f.as("agent", request{path: "/api/calls" + query}), 200)
		equal(t, "ann's "+query, idsOf(list.Calls), pick(ids, want))
	}
	paged := decode[callList](f.get("/api/calls?limit=1&to="+at), 200)
	next := f.calls("limit=1&to=" + at + "&cursor=" + paged.NextCursor)
	equal(t, "pages", append(idsOf(paged.Calls), idsOf(next)...), pick(ids, []int{1, 0}))
	for _, query := range []string{"user=", "pod=", "from=yesterday", "to=1969-12-31", "since=2026-01-01"} {
		wantProblem(f.get("/api/calls?"+query), 400, registry.CodeInvalidRequest)
	}
}

func pick(ids []string, places []int) (picked []string) {
	for _, place := range places {
		picked = append(picked, ids[place])
	}
	return picked
}

type callList struct {
	Calls      []record
	NextCursor string `json:"next_cursor"`
}

func (f *fleet) calls(query string) []record {
	f.Helper()
	return decode[callList](f.get("/api/calls?"+query), 200).Calls
}

func idsOf(records []record) []string {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.CallID)
	}
	return ids
}

// byToken takes the token for the name of the tenant.
type byToken struct{}

func (byToken) Authenticate(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
	return auth.Identity{Tenant: token, Roles: auth.RoleCaller}, nil
}

// What belongs to one tenant does not exist for another.
func TestCallsOfAnotherTenant(t *testing.T) {
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth = byToken{} }})
	d := f.connect(0, session("s1"), silent, tools("t")...)
	as := func(tenant string, r request) reply {
		t.Helper()
		r.header = http.Header{"Authorization": {"Bearer " + tenant}}
		return f.send(r)
	}
	started := decode[answer](as(registry.DefaultTenant, request{
		method: http.MethodPost, path: "/api/tools/t/call", body: `{"mode":"async","idempotency_key":"k"}`,
	}), 202)
	d.delivered()
	path := "/api/calls/" + started.CallID
	for _, r := range []request{
		{path: path}, {path: path + "?wait_ms=1000"}, {path: path + "/events"}, {method: http.MethodDelete, path: path},
	} {
		wantProblem(as("stranger", r), 404, registry.CodeCallNotFound)
	}
	wantProblem(as("stranger", request{ // nor is a key taken for one because another has it
		method: http.MethodPost, path: "/api/tools/t/call", body: `{"mode":"async","idempotency_key":"k"}`,
	}), 404, registry.CodeToolNotFound)
	r := as(registry.DefaultTenant, request{method: http.MethodDelete, path: path})
	if rec := decode[record](r, 200); rec.State != registry.StateCancelled || bytes.Contains(r.body, []byte("tenant")) {
		t.Fatalf("record %s", r.body)
	}
	var mine, theirs callList
	f.eventually("the call to be listed", func() bool {
		mine = decode[callList](as(registry.DefaultTenant, request{path: "/api/calls"}), 200)
		theirs = decode[callList](as("stranger", request{path: "/api/calls"}), 200)
		return len(mine.Calls) == 1 && len(theirs.Calls) == 1
	})
	if mine.Calls[0].CallID != started.CallID || theirs.Calls[0].State != registry.StateRejected {
		t.Errorf("lists %+v, %+v", mine, theirs)
	}
}

func bytesOf(r reply) io.Reader { return bytes.NewReader(r.body) }

// The record of a short call does not have what its tool returned, and says so instead of showing nothing.
func TestOutputThatWasNotKept(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("s1"), echo, tools("t")...)
	for _, kept := range []bool{false, true} {
		body := `{"args":{"text":"hello"}}`
		if kept {
			body = `{"args":{"text":"hello"},"idempotency_key":"k"}`
		}
		made := decode[answer](f.post("/api/tools/t/call", body), 200)
		var got reply
		f.eventually("the call to be in the feed", func() bool {
			got = f.get("/api/calls/" + made.CallID)
			return got.status == 200
		})
		rec := decode[record](got, 200)
		said := rec.OutputKept != nil && !*rec.OutputKept && rec.Output == nil
		if !rec.State.Final() || rec.Success == nil || !*rec.Success || said == kept || kept && rec.Output == nil {
			t.Errorf("kept %v: %s", kept, got.body)
		}
	}
}
