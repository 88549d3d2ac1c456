package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// countedStore counts how often it is asked, and may be away.
type countedStore struct {
	*memory.Store
	mu    sync.Mutex
	asked int
	away  bool
}

func (s *countedStore) Take(
	ctx context.Context, tenant string, windows []registry.Window,
) (time.Duration, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.away {
		return 0, 0, registry.StoreUnavailable("take", errors.New("away"))
	}
	return s.Store.Take(ctx, tenant, windows)
}

// notes is an auditor that keeps what it is told.
type notes struct {
	mu      sync.Mutex
	entries []registry.AuditEntry
}

func (n *notes) Note(e registry.AuditEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.entries = append(n.entries, e)
}

type limitedInvoker struct {
	*agent.Invoker
	store  *countedStore
	router *fakeRouter
	notes  *notes
	log    *bytes.Buffer
}

func newLimited(t *testing.T, open bool, limits ...policy.Limit) limitedInvoker {
	l := limitedInvoker{
		store:  &countedStore{Store: memory.New(memory.Options{})},
		router: &fakeRouter{spec: spec("t", ""), result: registry.Result{Success: true}},
		notes:  new(notes), log: new(bytes.Buffer),
	}
	log := slog.New(slog.NewTextHandler(l.log, nil))
	l.Invoker = agent.NewInvoker(agent.Config{
		Router: l.router, CallLog: newCallLog(t), Policy: newPolicy(t, agent.PolicyRules{CallDeny: []string{"denied"}}),
		Limits: agent.NewRateLimits(l.store, limits, open, log), Audit: l.notes, Log: log,
	})
	return l
}

func (l limitedInvoker) call(t *testing.T, who auth.Identity, tool string) error {
	t.Helper()
	who.Tenant = "default"
	l.router.spec = spec(tool, "")
	_, err := l.Invoke(t.Context(), agent.Request{
		Caller: who, Tool: tool, Args: registry.MustJSON(`{}`), Target: registry.Target{SessionID: "s1"},
	})
	return err
}

func perMinute(per policy.Per, calls int) policy.Limit {
	return policy.Limit{Rule: "r-" + string(per), Per: per, Calls: calls, Window: time.Minute}
}

// A call without a limit asks the store nothing; nor does one that policy denies.
func TestNoLimitNoRoundTrip(t *testing.T) {
	l := newLimited(t, false)
	if err := l.call(t, auth.Identity{User: "ann"}, "t"); err != nil {
		t.Fatal(err)
	}
	l = newLimited(t, false, perMinute(policy.PerIdentity, 1), perMinute(policy.PerTenant, 5))
	wantCode(t, l.call(t, auth.Identity{User: "ann"}, "denied"), registry.CodePolicyDenied)
	if l.store.asked != 0 {
		t.Errorf("the store was asked %d times", l.store.asked)
	}
	if err := l.call(t, auth.Identity{User: "ann"}, "t"); err != nil || l.store.asked != 1 {
		t.Errorf("%v: asked %d times for two limits", err, l.store.asked)
	}
}

// An identity is its user, otherwise its credential; a tenant and a device are counted over all of them. The error says
// when to come back, and which limit was reached.
func TestWhoseCallsAreCounted(t *testing.T) {
	ann, annsKey := auth.Identity{User: "ann"}, auth.Identity{User: "ann", Credential: "key:1"}
	bob := auth.Identity{User: "bob"}
	key1, key2 := auth.Identity{Credential: "key:1"}, auth.Identity{Credential: "key:2"}
	l := newLimited(t, false, perMinute(policy.PerIdentity, 2))
	for i, step := range []struct {
		who auth.Identity
		ok  bool
	}{
		{ann, true}, {annsKey, true}, {ann, false}, {annsKey, false}, {bob, true}, {key1, true}, {key1, true},
		{key1, false}, {key2, true}, {auth.Identity{User: "key:2"}, true}, {auth.Identity{}, true},
	} {
		err := l.call(t, step.who, "t")
		if (err == nil) != step.ok {
			t.Errorf("step %d: %v", i, err)
		}
		if err != nil {
			e := wantCode(t, err, registry.CodeRateLimited)
			if e.RetryAfter <= 0 || e.RetryAfter > time.Minute || e.Rule != "r-identity" ||
				!strings.Contains(e.Message, "r-identity") || e.Dispatched != registry.DispatchedNo {
				t.Errorf("%+v", e)
			}
		}
	}
	for _, per := range []policy.Per{policy.PerTenant, policy.PerDevice} {
		l := newLimited(t, false, perMinute(per, 2))
		for i, who := range []auth.Identity{ann, bob, key1} {
			if err := l.call(t, who, "t"); (err == nil) != (i < 2) {
				t.Errorf("%s, call %d: %v", per, i, err)
			}
		}
	}
}

// A device id that nobody has paired is anybody's to say: a device of one user uses up nothing of another's.
func TestDevicesOfUsersAreCountedApart(t *testing.T) {
	l := newLimited(t, false, perMinute(policy.PerDevice, 1))
	for i, step := range []struct {
		user, device string
		ok           bool
	}{
		{"bob", "phone", true}, {"bob", "phone", false}, {"ann", "phone", true}, {"ann", "phone", false},
		{"", "phone", true}, {"", "annphone", true}, {"an", "nphone", true},
	} {
		l.router.user, l.router.device = step.user, step.device
		if err := l.call(t, auth.Identity{User: "eve", Admin: true}, "t"); (err == nil) != step.ok {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// A call is counted once although it is admitted twice, and one that a limit refuses is not counted by the others.
func TestACallIsCountedOnce(t *testing.T) {
	l := newLimited(t, false, perMinute(policy.PerIdentity, 2))
	remembered := spec("t", `{"type":"object","maxProperties":5}`)
	l.router.spec, l.router.remembered, l.router.owner = spec("t", ""), &remembered, &l.router.spec
	call := func() error {
		_, err := l.Invoke(t.Context(), agent.Request{
			Caller: auth.Identity{Tenant: "default", User: "ann"}, Tool: "t", Target: registry.Target{SessionID: "s1"},
		})
		return err
	}
	for range 2 {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	if l.router.refreshed < 2 {
		t.Fatalf("the truth was asked for %d times: nothing was admitted twice", l.router.refreshed)
	}
	wantCode(t, call(), registry.CodeRateLimited)
}

// While the store is away, calls that have a limit are refused or pass, as the operator has set, and it is told which.
func TestLimitsWithoutAStore(t *testing.T) {
	closed := newLimited(t, false, perMinute(policy.PerIdentity, 2))
	closed.store.away = true
	e := wantCode(t, closed.call(t, auth.Identity{User: "ann"}, "t"), registry.CodeStoreUnavailable)
	if !strings.Contains(e.Message, "FARHAND_LIMITS_FAIL=closed") || len(closed.router.called()) != 0 {
		t.Errorf("%+v", e)
	}
	open := newLimited(t, true, perMinute(policy.PerIdentity, 2))
	open.store.away = true
	if err := open.call(t, auth.Identity{User: "ann"}, "t"); err != nil ||
		!strings.Contains(open.log.String(), "FARHAND_LIMITS_FAIL=open") {
		t.Errorf("%v, log %s", err, open.log)
	}
}

// Every call has one line in the audit log, with the code and the rule that decided.
func TestCallsAreAudited(t *testing.T) {
	l := newLimited(t, false, perMinute(policy.PerIdentity, 1))
	ann := auth.Identity{User: "ann", Credential: "key:1", Roles: auth.RoleCaller}
	_ = l.call(t, ann, "t")
	_ = l.call(t, ann, "t")
	_ = l.call(t, ann, "denied")
	var got []string
	for _, e := range l.notes.entries {
		if e.Tenant != "default" || e.Action != registry.AuditCall || e.Actor.User != "ann" || e.CallID == "" ||
			e.Actor.Credential != "key:1" || fmt.Sprint(e.Actor.Roles) != "[caller]" || e.SessionID != "s1" {
			t.Errorf("%+v", e)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Tool, e.Outcome, e.Code, e.Rule))
	}
	if len(got) != 3 || got[0] != "t allowed  " || got[1] != "t denied rate_limited r-identity" ||
		!strings.HasPrefix(got[2], "denied denied policy_denied ") {
		t.Errorf("%q", got)
	}
}

// A limit beyond what one window keeps is spread over the minute, and holds in each part of it.
func TestLargeLimitsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t, false, perMinute(policy.PerIdentity, 2*registry.MaxWindowLimit))
		ann := auth.Identity{User: "ann"}
		for range 3 {
			for i := range registry.MaxWindowLimit {
				if err := l.call(t, ann, "t"); err != nil {
					t.Fatalf("call %d: %v", i, err)
				}
			}
			err := registry.AsError(l.call(t, ann, "t"))
			if err.Code != registry.CodeRateLimited || err.RetryAfter > 30*time.Second ||
				!strings.Contains(err.Message, "20000 calls in 1m0s") {
				t.Fatalf("beyond it: %+v", err)
			}
			time.Sleep(err.RetryAfter)
		}
	})
}
