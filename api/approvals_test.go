package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// deciders are the identities of these tests, by token.
var deciders = map[string]auth.Identity{
	token:     {Admin: true, Credential: "token"},
	"ann":     {User: "ann", Roles: auth.RoleApprover | auth.RoleCaller, Credential: "key:ann"},
	"anne":    {User: "ann", Roles: auth.RoleApprover, Credential: "key:anne"},
	"boss":    {User: "boss", Admin: true, Credential: "key:boss"},
	"agent":   {User: "ann", Roles: auth.RoleCaller, Credential: "key:agent"},
	"group":   {User: "ann", Roles: auth.RoleCaller, Credential: "key:group", Context: "group"},
	"other":   {User: "ann", Roles: auth.RoleCaller, Credential: "key:other"},
	"bot":     {User: "ben", Roles: auth.RoleCaller, Credential: "key:bot"},
	"ben":     {User: "ben", Roles: auth.RoleApprover | auth.RoleCaller, Credential: "key:ben"},
	"program": {User: "ann", Roles: auth.RoleApprover | auth.RoleCaller, Credential: "key:program", Person: true},
	"phone":   {User: "ann", Roles: auth.RoleDevice, Credential: "device:1"},
	"jwt":     {User: "ann", Roles: auth.RoleApprover | auth.RoleCaller, Credential: "jwt:1"},
	"renewed": {User: "ann", Roles: auth.RoleApprover | auth.RoleCaller, Credential: "jwt:2"},
	"acme":    {Tenant: "acme", Admin: true, Credential: "key:acme"},
}

// withDeciders lets those deciders in.
func withDeciders(cfg *api.Config) {
	cfg.Auth = auth.AuthenticatorFunc(func(_ context.Context, _ *http.Request, token string) (auth.Identity, error) {
		id, ok := deciders[token]
		if !ok {
			return id, registry.Errorf(registry.CodeUnauthenticated, "Who are you?")
		}
		return id, nil
	})
}

// as sends a request with somebody's token.
func (f *fleet) as(who string, r request) reply {
	f.Helper()
	r.header = http.Header{"Authorization": {"Bearer " + who}}
	if r.body != "" {
		r.header.Set("Content-Type", "application/json")
	}
	return f.send(r)
}

// shownApproval is an approval as a client reads it.
type shownApproval struct {
	ID        string
	CallID    string `json:"call_id"`
	Tool      string
	State     registry.ApprovalState
	Mode      string
	SessionID string `json:"session_id"`
	UserID    string `json:"user_id"`
	Rule      string
	Reason    string
	Args      json.RawMessage
	ArgsText  string `json:"args_text"`
	Remarks   []string
	DecidedBy string `json:"decided_by"`
	Scope     registry.ApprovalScope
	Decided   bool
	Grant     *struct{ ID string }
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Requester struct {
		UserID, Credential string
		Model              bool
	}
}

// confirmable is a tool that asks for consent.
func confirmable(name string) registry.ToolSpec {
	spec, err := registry.ToolSpec{
		Name: name, Description: "Takes a picture.", SecurityLevel: registry.SecurityUserConfirm,
	}.Normalize()
	if err != nil {
		panic(err)
	}
	return spec
}

// ofAnn is a session of ann's phone.
func ofAnn(id string) registry.Session {
	s := session(id)
	s.UserID = "ann"
	return s
}

// call begins a call of somebody and returns how it ends.
func (f *fleet) call(who, path, body string, pod int) <-chan reply {
	f.Helper()
	ended := make(chan reply, 1)
	go func() { ended <- f.as(who, request{method: http.MethodPost, path: path, body: body, pod: pod}) }()
	return ended
}

// waiting waits until somebody sees n approvals that wait, and returns them.
func (f *fleet) waiting(who string, n int) []shownApproval {
	f.Helper()
	deadline := time.After(testTimeout)
	for {
		all := decode[struct{ Approvals []shownApproval }](f.as(who, request{path: "/api/approvals"}), 200).Approvals
		if len(all) == n {
			return all
		}
		select {
		case <-f.noted:
		case <-deadline:
			f.Fatalf("%s sees %d approvals, want %d", who, len(all), n)
		}
	}
}

// decide decides an approval as somebody.
func (f *fleet) decide(who, id, body string, pod int) reply {
	f.Helper()
	return f.as(who, request{method: http.MethodPost, path: "/api/approvals/" + id, body: body, pod: pod})
}

const (
	allowOnce = `{"decision":"allow-once"}`
	deny      = `{"decision":"deny"}`
	snap      = "/api/sessions/phone/tools/camera_snap/call"
)

func TestACallWaitsForAPerson(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))

	ended := f.call("agent", snap, `{"args":{"lens":"front"}}`, 1)
	a := f.waiting("anne", 1)[0]
	if a.Tool != "camera_snap" || a.SessionID != "phone" || a.UserID != "ann" || a.State != "pending" ||
		a.Args != nil ||
		a.Rule == "" || a.Requester.Credential != "key:agent" || a.Requester.Model || a.Mode != "sync" {
		t.Errorf("listed %+v", a)
	}
	whole := decode[shownApproval](f.as("ann", request{path: "/api/approvals/" + a.ID, pod: 1}), 200)
	if string(whole.Args) != `{"lens":"front"}` || !strings.Contains(whole.ArgsText, `"lens": "front"`) {
		t.Errorf("shown %+v", whole)
	}
	select {
	case c := <-d.calls:
		t.Fatalf("call %s was not approved and reached the device", c.ID)
	default:
	}
	got := decode[shownApproval](f.decide("anne", a.ID, allowOnce, 0), 200)
	if got.State != "allowed" || !got.Decided || got.DecidedBy != "ann" || got.Scope != "once" {
		t.Errorf("decided %+v", got)
	}
	out := decode[answer](<-ended, 200)
	if out.CallID != a.CallID || out.Output != `{"lens":"front"}` {
		t.Errorf("answered %+v", out)
	}

	ended = f.call("agent", snap, `{}`, 1) // once is once
	a = f.waiting("ann", 1)[0]
	decode[shownApproval](f.decide("ann", a.ID, deny, 1), 200)
	p := wantProblem(<-ended, 403, registry.CodeApprovalDenied)
	if p.Dispatched != registry.DispatchedNo || !strings.Contains(p.Detail, "denied") {
		t.Errorf("problem %+v", p)
	}
	f.waiting("ann", 0)
}

// A person who may approve a call makes it without being asked: it is their own act. Fields of the body change nothing.
func TestWhoIsNotAsked(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	for _, who := range []string{token, "ann"} {
		decode[answer](<-f.call(who, snap, `{}`, 0), 200)
	}
	for _, body := range []string{
		`{"args":{},"approved":true}`, `{"args":{},"approval":"x"}`, `{"args":{},"approval_id":"aaaaaaaaaaaaaaaa"}`,
	} {
		wantProblem(<-f.call("agent", snap, body, 0), 400, registry.CodeInvalidRequest)
	}
	ended := f.call("agent", snap, `{"args":{"approved":true,"approval_id":"x","security_level":"safe"}}`, 0)
	a := f.waiting("ann", 1)[0]
	decode[shownApproval](f.decide("ann", a.ID, deny, 0), 200)
	wantProblem(<-ended, 403, registry.CodeApprovalDenied)
}

// TestOwnCalls: an approver cannot allow a call of its own where the policy has another person decide, which it does by
// default for keys and JSON Web Tokens; it may always deny it. Two persons allow what two must.
func TestOwnCalls(t *testing.T) {
	for _, c := range []struct {
		by, asks string
		allows   map[string]int // the status of each who tries in this order
		order    []string
	}{
		{"", "ann", map[string]int{"ann": 403, "anne": 200}, []string{"ann", "anne"}},
		{"", "jwt", map[string]int{"jwt": 403, "renewed": 403, "ann": 200}, []string{"jwt", "renewed", "ann"}},
		{"", token, map[string]int{token: 200}, []string{token}},
		{"by: anyone", "ann", map[string]int{"ann": 200}, []string{"ann"}},
		{"by: other", "ann", map[string]int{"ann": 403, "anne": 403, token: 200}, []string{"ann", "anne", token}},
		{"by: other", token, map[string]int{token: 403, "boss": 200}, []string{token, "boss"}},
		{"by: two", "agent", map[string]int{"ann": 403, "boss": 200, token: 200}, []string{"ann", "boss", token}},
	} {
		t.Run(c.by+" asked by "+c.asks, func(t *testing.T) {
			f := newFleet(t, setup{pods: 2, change: withDeciders, policyFile: fmt.Sprintf(
				"version: 1\ntools:\n  - {id: own, names: snap, approval: {when: always, %s}, reason: Cameras are private.}\n",
				c.by)})
			d := f.connect(0, ofAnn("phone"), echo, confirmable("snap"))
			ended := f.call(c.asks, "/api/sessions/phone/tools/snap/call", `{}`, 1)
			a := f.waiting(token, 1)[0]
			if !strings.HasPrefix(a.Reason, "Cameras are private. ") {
				t.Errorf("asked with the reason %q", a.Reason)
			}
			for i, who := range c.order {
				got := f.decide(who, a.ID, allowOnce, i%2)
				if got.status != c.allows[who] {
					t.Fatalf("%s allows it: %d %s", who, got.status, got.body)
				}
				if got.status == 403 {
					wantProblem(got, 403, registry.CodeForbidden)
				}
				if i < len(c.order)-1 && len(d.calls) > 0 {
					t.Fatal("the tool ran")
				}
			}
			decode[answer](<-ended, 200)

			ended = f.call(c.asks, "/api/sessions/phone/tools/snap/call", `{"args":{"n":2}}`, 1)
			id := f.waiting(token, 1)[0].ID
			denies := c.asks
			if denies == "agent" { // has no role
				denies = "boss"
			}
			f.decide(denies, id, deny, 0).want(200)
			wantProblem(<-ended, 403, registry.CodeApprovalDenied)
		})
	}
}

func TestWhoMayDecide(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	ended := f.call("agent", snap, `{}`, 0)
	a := f.waiting("ann", 1)[0]
	for who, status := range map[string]int{"agent": 403, "other": 403, "phone": 403, "ben": 404, "acme": 404} {
		for _, r := range []request{
			{path: "/api/approvals/" + a.ID},
			{method: http.MethodPost, path: "/api/approvals/" + a.ID, body: allowOnce},
		} {
			if got := f.as(who, r); got.status != status {
				t.Errorf("%s %s %s: %d %s", who, r.method, r.path, got.status, got.body)
			}
		}
		if got := f.as(who, request{path: "/api/approvals"}); status == 404 &&
			string(got.body) != "{\"approvals\":[]}\n" {
			t.Errorf("%s sees %s", who, got.body)
		}
	}
	// What a page of elsewhere can make a browser send decides nothing.
	for _, h := range []http.Header{
		{"Authorization": {"Bearer ann"}, "Content-Type": {"text/plain"}},
		{"Authorization": {"Bearer ann"}, "Content-Type": {"application/x-www-form-urlencoded"}},
		{"Authorization": {"Bearer ann"}, "Content-Type": nil},
	} {
		r := f.send(request{method: http.MethodPost, path: "/api/approvals/" + a.ID, body: allowOnce, header: h})
		wantProblem(r, 415, registry.CodeUnsupportedMedia)
	}
	wantProblem(f.send(request{
		method: http.MethodPost, path: "/api/approvals/" + a.ID, body: allowOnce, header: http.Header{
			"Authorization": {"Bearer ann"}, "Content-Type": {"application/json"}, "Origin": {"https://evil.example"},
		},
	}), 403, registry.CodeForbidden)
	for _, body := range []string{
		`{}`, `{"decision":"yes"}`, `{"decision":"deny","scope":"tool"}`, `{"decision":"allow-once","expires_in_ms":5}`,
		`{"decision":"allow-always","expires_in_ms":0}`, `{"decision":"allow-always","scope":"all"}`, `[]`, ``,
		`{"decision":"allow-always","expires_in_ms":99999999999}`, `{"decision":"deny","state":"allowed"}`,
	} {
		if got := f.decide("ann", a.ID, body, 0); got.status != 400 && body != "" {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	wantProblem(f.decide("ann", "zzzzzzzzzzzzzzzz", allowOnce, 0), 404, registry.CodeNotFound)
	wantProblem(f.decide("ann", "..%2f", allowOnce, 0), 404, registry.CodeNotFound)
	f.waiting("ann", 1) // nothing of that was a decision
	decode[shownApproval](f.decide(token, a.ID, deny, 0), 200)
	wantProblem(<-ended, 403, registry.CodeApprovalDenied)
}

// TestTwoApproversAtOnce: two people press different buttons on two pods in the same instant.
func TestTwoApproversAtOnce(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders, redis: redistest.Single(t)})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	wins := map[registry.ApprovalState]int{}
	for round := range 100 {
		ended := f.call("agent", snap, `{}`, round%2)
		id := f.waiting("ann", 1)[0].ID
		told := make([]shownApproval, 2)
		var pressing sync.WaitGroup
		begin := make(chan struct{})
		for i, body := range []string{allowOnce, deny} {
			pressing.Go(func() {
				<-begin
				told[i] = decode[shownApproval](f.decide([]string{"ann", "anne"}[i], id, body, i), 200)
			})
		}
		close(begin)
		pressing.Wait()
		if told[0].State != told[1].State || told[0].Decided == told[1].Decided {
			t.Fatalf("round %d: told %+v and %+v", round, told[0], told[1])
		}
		if out := <-ended; (out.status == 200) != (told[0].State == "allowed") {
			t.Fatalf("round %d: %s, but the call ended with %d", round, told[0].State, out.status)
		}
		if told[0].State == "allowed" {
			d.delivered()
		}
		wins[told[0].State]++
	}
	t.Logf("who was first: %v", wins)
}

// TestAWaitingCallIsFoundAndCancelled: a synchronous call that waits for a person is no secret of its pod. Whoever
// cancels it ends the question, too.
func TestAWaitingCallIsFoundAndCancelled(t *testing.T) {
	f := newFleet(t, setup{pods: 2, change: withDeciders, redis: redistest.Single(t)})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	for _, c := range []struct {
		name, body string
		pod        int // that is told to cancel it; the call comes in at pod 1
	}{
		{"light, here", `{}`, 1}, {"light, elsewhere", `{}`, 0},
		{"keyed, here", `{"idempotency_key":"k1"}`, 1}, {"keyed, elsewhere", `{"idempotency_key":"k2"}`, 0},
	} {
		ended := f.call("agent", snap, c.body, 1)
		a := f.waiting("ann", 1)[0]
		path := request{path: "/api/calls/" + a.CallID, pod: c.pod}
		got := decode[record](f.as("agent", path), 200)
		if got.State != "accepted" || got.ApprovalID != a.ID || got.Dispatched != registry.DispatchedNo {
			t.Errorf("%s: found as %+v", c.name, got)
		}
		wantProblem(f.as("ben", path), 404, registry.CodeCallNotFound)
		path.method = http.MethodDelete
		wantProblem(f.as("ben", path), 404, registry.CodeCallNotFound)
		if got = decode[record](f.as("agent", path), 200); got.State != "cancelled" ||
			got.Dispatched != registry.DispatchedNo {
			t.Errorf("%s: cancelled as %+v", c.name, got)
		}
		p := wantProblem(<-ended, 409, registry.CodeCancelled)
		if p.Dispatched != registry.DispatchedNo {
			t.Errorf("%s: told %+v", c.name, p)
		}
		f.waiting("ann", 0)
		late := decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200)
		if late.State != "withdrawn" || late.Decided {
			t.Errorf("%s: decided late: %+v", c.name, late)
		}
		if got = f.recordOf(a.CallID, 0); got.State != "cancelled" {
			t.Errorf("%s: the record says %+v", c.name, got)
		}
	}
	ended := f.call("agent", snap, `{"args":{"n":1}}`, 1) // one that is allowed has one record
	a := f.waiting("ann", 1)[0]
	decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200)
	decode[answer](<-ended, 200)
	got := f.recordOf(a.CallID, 0)
	if got.State != "succeeded" || got.ApprovalID != a.ID || got.Timeline[0].State != "accepted" {
		t.Errorf("the record says %+v", got)
	}
	if d.delivered(); len(d.calls) > 0 {
		t.Error("a cancelled call reached the device")
	}
}

func TestSilenceIsDenial(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	ended := f.call("agent", snap, `{"timeout_ms":1500}`, 0)
	a := f.waiting("ann", 1)[0]
	if life := a.ExpiresAt.Sub(a.CreatedAt); life <= 0 || life > 1500*time.Millisecond {
		t.Errorf("the question outlives its caller: %v", life)
	}
	p := wantProblem(<-ended, 403, registry.CodeApprovalDenied)
	if !strings.Contains(p.Detail, "without an answer") || !strings.Contains(p.Detail, "farhand approve") {
		t.Errorf("told %q", p.Detail)
	}
	late := decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200)
	if late.State != "expired" || late.Decided {
		t.Errorf("a late decision: %+v", late)
	}
	if len(d.calls) > 0 {
		t.Error("the call reached the device")
	}

	ctx, hangUp := context.WithCancel(t.Context()) // whoever asks hangs up
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = f.try(request{
			method: http.MethodPost, path: snap, body: `{}`, ctx: ctx,
			header: http.Header{"Authorization": {"Bearer agent"}, "Content-Type": {"application/json"}},
		})
	}()
	a = f.waiting("ann", 1)[0]
	hangUp()
	<-gone
	f.waiting("ann", 0)
	if got := decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200); got.State != "withdrawn" {
		t.Errorf("of a caller that is gone: %+v", got)
	}
}

// TestWhatIsApprovedIsWhatRuns: while the person thinks, the device changes its tool.
func TestWhatIsApprovedIsWhatRuns(t *testing.T) {
	f := newFleet(t, setup{change: withDeciders})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	ended := f.call("agent", snap, `{}`, 0)
	a := f.waiting("ann", 1)[0]
	changed := confirmable("camera_snap")
	changed.Description = "Deletes all pictures."
	changed, err := changed.Normalize()
	f.must(err)
	f.must(d.local.PutTools(t.Context(), []registry.ToolSpec{changed}, nil))
	decode[shownApproval](f.decide("ann", a.ID, allowOnce, 0), 200)
	p := wantProblem(<-ended, 403, registry.CodeApprovalDenied)
	if !strings.Contains(p.Detail, "changed") || len(d.calls) > 0 {
		t.Errorf("%+v, %d calls reached the device", p, len(d.calls))
	}
}

// A device that answers nothing and a store that is away allow nothing.
func TestNoStoreNoApproval(t *testing.T) {
	server := redistest.Start(t)
	f := newFleet(t, setup{change: withDeciders, redis: server.URL()})
	d := f.connect(0, ofAnn("phone"), echo, confirmable("camera_snap"))
	ended := f.call("agent", snap, `{"timeout_ms":3000}`, 0)
	f.waiting("ann", 1)
	server.Pause()
	out := <-ended
	if out.status == 200 || len(d.calls) > 0 {
		t.Errorf("%d %s; %d calls reached the device", out.status, out.body, len(d.calls))
	}
	out = <-f.call("agent", snap, `{"timeout_ms":1000}`, 0)
	if out.status == 200 || len(d.calls) > 0 {
		t.Errorf("%d %s; %d calls reached the device", out.status, out.body, len(d.calls))
	}
	server.Resume()
}
