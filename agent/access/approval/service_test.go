package approval_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitLimit = testkit.Limit

// starter notes which calls it was told to carry on with. Of several it starts each once.
type starter struct {
	mu    sync.Mutex
	done  map[string]bool
	begun chan registry.Approval
}

func (s *starter) StartDeferred(_ context.Context, a registry.Approval, request []byte) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.done[a.CallID]
	if s.done[a.CallID] = true; first && string(request) == "request" {
		s.begun <- a
	}
	return first, nil
}

// journal is an Auditor.
type journal struct {
	mu    sync.Mutex
	lines []registry.AuditEntry
}

func (j *journal) Note(e registry.AuditEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, e)
}

var ann = auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleApprover, Credential: "key:ann"}

func question(id string) registry.Approval {
	return registry.Approval{
		ID: id, Tenant: "t", CallID: "call-" + id, Tool: "snap", Args: registry.MustJSON(`{"pin":4711}`),
		SessionID: "phone", Owner: "ann", Rule: "r1", Reason: "Why.",
		Requester: registry.Requester{Credential: "key:agent"},
	}
}

// TestADeciderThatDies: the decision is in the store, and the pod that took it is gone. Another pod starts the call,
// and of several pods only one does.
func TestADeciderThatDies(t *testing.T) {
	store := memory.New(memory.Options{})
	s := &starter{done: make(map[string]bool), begun: make(chan registry.Approval, 10)}
	id := registry.NewApprovalID()
	a := question(id)
	a.Deferred = true
	if _, err := store.CreateApproval(t.Context(), a, time.Minute, []byte("request")); err != nil {
		t.Fatal(err)
	}
	v := registry.Verdict{State: registry.ApprovalAllowed, DecidedBy: "ann"}
	if _, first, err := store.DecideApproval(t.Context(), "t", id, registry.Vote{Person: "user:ann"}, "",
		v); err != nil || !first {
		t.Fatal(first, err)
	}
	for range 3 {
		k := approval.New(approval.Config{Store: store})
		defer k.Close()
		k.Serve(s)
	}
	select {
	case got := <-s.begun:
		if got.ID != id || got.State != registry.ApprovalAllowed {
			t.Errorf("begun %+v", got)
		}
	case <-time.After(waitLimit):
		t.Fatal("nobody started the call")
	}
}

func TestApprovalsAreAudited(t *testing.T) {
	j := &journal{}
	k := approval.New(approval.Config{Store: memory.New(memory.Options{}), Audit: j})
	defer k.Close()
	a, err := k.Ask(t.Context(), question(registry.NewApprovalID()), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := k.Decide(t.Context(), ann, a.ID, approval.Decision{Allow: true, Scope: registry.ScopeAlwaysTool})
	if err != nil || answer.Grant == nil {
		t.Fatal(answer, err)
	}
	if _, err := k.Decide(t.Context(), ann, a.ID, approval.Decision{}); err != nil { // too late: no line
		t.Fatal(err)
	}
	if _, err := k.Revoke(t.Context(), ann, answer.Grant.ID); err != nil {
		t.Fatal(err)
	}
	silent, err := k.Ask(t.Context(), question(registry.NewApprovalID()), time.Millisecond, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := k.Await(t.Context(), silent); err != nil || got.State != registry.ApprovalExpired {
		t.Fatal(got, err)
	}
	var got []string
	for _, l := range j.lines {
		got = append(got, l.Action+" "+l.Actor.User+l.Actor.Credential+" "+l.Outcome)
		if l.Tenant != "t" || l.Target == "" || l.Tool != "snap" {
			t.Errorf("line %+v", l)
		}
	}
	want := []string{
		"approval.ask key:agent allowed", "approval.decide annkey:ann allowed", "grant.revoke annkey:ann allowed",
		"approval.ask key:agent allowed", "approval.decide  denied",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

// livePods are the pods that live.
type livePods []string

func (l livePods) Live(context.Context) ([]string, error) { return l, nil }

// TestNobodyAllowsInVain: the pod of a synchronous caller has died. Whoever would allow the call is told so, and the
// question is over. It can still be denied, and a deferred call is held by no pod.
func TestNobodyAllowsInVain(t *testing.T) {
	j := &journal{}
	k := approval.New(approval.Config{
		Store: memory.New(memory.Options{}), Pods: livePods{"pod-b"}, Audit: j,
	})
	defer k.Close()
	for name, c := range map[string]struct {
		pod      string
		deferred bool
		allow    bool
		want     registry.ApprovalState
	}{
		"its pod lives":         {"pod-b", false, true, registry.ApprovalAllowed},
		"its pod died":          {"pod-a", false, true, registry.ApprovalWithdrawn},
		"its pod died, denied":  {"pod-a", false, false, registry.ApprovalDenied},
		"no pod has a deferred": {"", true, true, registry.ApprovalAllowed},
	} {
		a := question(registry.NewApprovalID())
		a.Pod, a.Deferred = c.pod, c.deferred
		a, err := k.Ask(t.Context(), a, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := approval.Decision{Allow: c.allow, Scope: registry.ScopeAlwaysTool}
		answer, err := k.Decide(t.Context(), ann, a.ID, d)
		if err != nil || answer.Approval.State != c.want ||
			answer.Decided != (c.want != registry.ApprovalWithdrawn) ||
			(answer.Grant != nil) != (c.want == registry.ApprovalAllowed) {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		if waiting, err := k.Pending(t.Context(), ann); err != nil || len(waiting) > 0 {
			t.Errorf("%s: %d still wait, %v", name, len(waiting), err)
		}
	}
	others := func(l registry.AuditEntry) bool { return l.Reason != "withdrawn" }
	if n := len(slices.DeleteFunc(j.lines, others)); n != 1 {
		t.Errorf("%d lines about questions withdrawn", n)
	}
}

// With its own credential a device decides what it will do itself, and nothing else.
func TestDecisionsOnDevices(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	phone := registry.Session{Key: registry.Key{Tenant: "t", Session: "phone"}, DeviceID: "d1", UserID: "ann"}
	other := registry.Session{Key: registry.Key{Tenant: "t", Session: "other"}, UserID: "ann"}
	foreign := registry.Session{Key: registry.Key{Tenant: "x", Session: "phone"}, UserID: "ann"}
	taken := registry.Session{Key: phone.Key, DeviceID: "d1", UserID: "ben"}
	shared := registry.Session{Key: phone.Key, DeviceID: "d1"}
	device := auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleDevice, Credential: "device:1"}
	for name, c := range map[string]struct {
		who     auth.Identity
		session registry.Session
		ok      bool
	}{
		"its own":              {device, phone, true},
		"another session's":    {device, other, false},
		"another tenant's":     {device, foreign, false},
		"a person at a socket": {ann, other, true},
		"that is ben's by now": {device, taken, false},
		"that is nobody's now": {device, shared, false},
	} {
		a, err := k.Ask(t.Context(), question(registry.NewApprovalID()), time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := k.DecideOnDevice(t.Context(), c.who, c.session, a.ID, approval.Decision{Allow: true})
		if (err == nil) != c.ok || c.ok && answer.Approval.State != registry.ApprovalAllowed {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

// A session id that was forgotten is another device's now. That device decides nothing that is asked about the former
// one, whoever made the call: what it allowed, and for how long, would hold for the former one when it is back.
func TestDecisionsOnDevicesThatFoundAnID(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	key := registry.Key{Tenant: "t", Session: "phone"}
	device := auth.Identity{Tenant: "t", Roles: auth.RoleDevice, Credential: "device:1"}
	for name, c := range map[string]struct {
		unowned bool // the device that is asked about
		session registry.Session
		ok      bool
	}{
		"ann's device":           {false, registry.Session{Key: key, DeviceID: "d1", UserID: "ann"}, true},
		"nobody's instead":       {false, registry.Session{Key: key, DeviceID: "d1"}, false},
		"nobody's device":        {true, registry.Session{Key: key, DeviceID: "d1"}, true},
		"another one of nobody":  {true, registry.Session{Key: key, DeviceID: "d2"}, false},
		"another one without id": {true, registry.Session{Key: key}, false},
	} {
		a := question(registry.NewApprovalID())
		a.Requester, a.DeviceID, a.Unowned = registry.Requester{User: "ann"}, "d1", c.unowned
		a, err := k.Ask(t.Context(), a, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		waiting, err := k.WaitingAt(t.Context(), c.session)
		if err != nil || (len(waiting) == 1) != c.ok {
			t.Errorf("%s: %d questions are shown, %v", name, len(waiting), err)
		}
		_, err = k.DecideOnDevice(t.Context(), device, c.session, a.ID, approval.Decision{Allow: true})
		if (err == nil) != c.ok || err != nil && !errors.Is(err, registry.ErrNoApproval) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := k.Decide(t.Context(), ann, a.ID, approval.Decision{}); err != nil { // for the next turn
			t.Fatal(err)
		}
	}
}

// An approver whose credential is restricted to some tools decides about those only, wherever they are.
func TestApproversDecideWithinTheirTools(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	phone := registry.Session{Key: registry.Key{Tenant: "t", Session: "other"}, UserID: "ann"}
	for tools, ok := range map[string]bool{"": true, "torch sn*": true, "torch": false} {
		who := ann
		who.Tools = tools
		pending := func() int {
			all, err := k.Pending(t.Context(), who)
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		for range 2 {
			if _, err := k.Ask(t.Context(), question(registry.NewApprovalID()), time.Minute, nil); err != nil {
				t.Fatal(err)
			}
		}
		all, err := k.Pending(t.Context(), ann)
		if err != nil || len(all) != 2 {
			t.Fatalf("pending: %d, %v", len(all), err)
		}
		if seen := pending(); (seen == 2) != ok || (seen == 0) == ok {
			t.Errorf("tools %q: %d are seen", tools, seen)
		}
		always := approval.Decision{Allow: true, Scope: registry.ScopeAlwaysTool}
		_, err = k.Decide(t.Context(), who, all[0].ID, always)
		_, onDevice := k.DecideOnDevice(t.Context(), who, phone, all[1].ID, always)
		if (err == nil) != ok || (onDevice == nil) != ok {
			t.Errorf("tools %q: %v, on a device: %v", tools, err, onDevice)
		}
		grants, err := k.Grants(t.Context(), who)
		if err != nil || (len(grants) > 0) != ok {
			t.Errorf("tools %q: %d grants, %v", tools, len(grants), err)
		}
		for _, a := range all { // for the next turn
			if _, err := k.Decide(t.Context(), ann, a.ID, always); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fullOfGrants is a store with no room for a grant.
type fullOfGrants struct{ *memory.Store }

func (fullOfGrants) PutGrant(context.Context, registry.Grant, time.Duration) (registry.Grant, error) {
	return registry.Grant{}, registry.ErrManyGrants
}

// Whoever allows for good where no grant can be stored is told that the call runs all the same.
func TestAllowedWithoutAGrant(t *testing.T) {
	k := approval.New(approval.Config{Store: fullOfGrants{memory.New(memory.Options{})}})
	defer k.Close()
	a, err := k.Ask(t.Context(), question(registry.NewApprovalID()), time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := k.Decide(t.Context(), ann, a.ID, approval.Decision{Allow: true, Scope: registry.ScopeAlwaysTool})
	if !errors.Is(err, registry.CodeBusy) || !strings.Contains(err.Error(), "allowed and runs") ||
		!strings.Contains(err.Error(), "Revoke some") || !answer.Decided ||
		answer.Approval.State != registry.ApprovalAllowed {
		t.Errorf("%+v, %v", answer, err)
	}
}

// What only came from outside is granted with its arguments, whatever was said of the tool.
func TestGrantsOfForeignArguments(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	always := func(a registry.Approval) registry.Approval {
		t.Helper()
		asked, err := k.Ask(t.Context(), a, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := approval.Decision{Allow: true, Scope: registry.ScopeAlwaysTool}
		answer, err := k.Decide(t.Context(), ann, asked.ID, d)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Approval
	}
	granted := func(a registry.Approval) bool {
		t.Helper()
		ok, err := k.Granted(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	plain := question(registry.NewApprovalID())
	always(plain)
	poisoned := question(registry.NewApprovalID())
	poisoned.ExactArgs, poisoned.ArgsDigest = true, "a2"
	if !granted(plain) || granted(poisoned) {
		t.Errorf("granted: plain %v, poisoned %v", granted(plain), granted(poisoned))
	}
	if got := always(poisoned); got.Scope != registry.ScopeAlwaysArgs || !granted(poisoned) {
		t.Errorf("scope %s", got.Scope)
	}
	if poisoned.ArgsDigest = "a3"; granted(poisoned) {
		t.Error("other foreign arguments are granted")
	}
}
