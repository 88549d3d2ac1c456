package approval_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/access/approval"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// asked asks a question that lives for a minute.
func asked(t *testing.T, k *approval.Service, change func(*registry.Approval)) registry.Approval {
	t.Helper()
	a := question(registry.NewApprovalID())
	if change != nil {
		change(&a)
	}
	a, err := k.Ask(t.Context(), a, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A decision on one pod reaches whoever waits on another: the caller, and who follows the question.
func TestVerdictsReachOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		here := approval.New(approval.Config{Store: store})
		there := approval.New(approval.Config{Store: store})
		defer here.Close()
		defer there.Close()
		a := asked(t, here, nil)
		ends := make(chan registry.Approval, 2)
		go func() {
			got, err := here.Await(t.Context(), a)
			if err != nil {
				t.Error(err)
			}
			ends <- got
		}()
		go func() {
			got, err := here.Wait(t.Context(), ann, a.ID, time.Minute)
			if err != nil {
				t.Error(err)
			}
			ends <- got
		}()
		synctest.Wait()
		if _, err := there.Decide(t.Context(), ann, a.ID, approval.Decision{Allow: true}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		for range 2 {
			if got := <-ends; got.State != registry.ApprovalAllowed || got.DecidedBy != "ann" {
				t.Errorf("told %+v", got.Verdict)
			}
		}
		if took := time.Since(begun); took > time.Second {
			t.Errorf("it took %v", took)
		}
		if got, err := here.Wait(t.Context(), ann, a.ID, time.Minute); err != nil || !got.Final() {
			t.Errorf("what is final is not waited for: %+v, %v", got, err)
		}
	})
}

// Who waits is told in time when nobody decides, when they give up, and when the pod stops.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(memory.Options{})
		k := approval.New(approval.Config{Store: store})
		a := asked(t, k, nil)
		got, err := k.Wait(t.Context(), ann, a.ID, time.Second)
		if err != nil || got.State != registry.ApprovalPending {
			t.Errorf("after a second: %+v, %v", got, err)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		giveUp()
		if got, err := k.Wait(ctx, ann, a.ID, time.Minute); err == nil && got.State != registry.ApprovalPending {
			t.Errorf("whoever gives up reading decides nothing: %+v", got)
		}
		if got, err := k.Await(ctx, a); !errors.Is(err, context.Canceled) || got.State != registry.ApprovalWithdrawn {
			t.Errorf("a caller that gives up: %+v, %v", got, err)
		}
		b := asked(t, k, nil)
		stopped := make(chan registry.Approval)
		go func() {
			got, err := k.Await(t.Context(), b)
			if err != nil {
				t.Error(err)
			}
			stopped <- got
		}()
		synctest.Wait()
		go k.Close()
		if got := <-stopped; got.State != registry.ApprovalWithdrawn {
			t.Errorf("a pod that stops: %+v", got)
		}
		synctest.Wait()
	})
}

// TestWithdraw: the question about a call that was cancelled is over, for the call too.
func TestWithdraw(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	a := asked(t, k, nil)
	k.Withdraw(t.Context(), "t", a.ID)
	answer, err := k.Decide(t.Context(), ann, a.ID, approval.Decision{Allow: true})
	if err != nil || answer.Decided || answer.Approval.State != registry.ApprovalWithdrawn {
		t.Errorf("%+v, %v", answer, err)
	}
	if got, err := k.Await(t.Context(), a); err != nil || got.State != registry.ApprovalWithdrawn {
		t.Errorf("the call hears %+v, %v", got, err)
	}
	k.Withdraw(t.Context(), "t", registry.NewApprovalID()) // of no call
}

// TestWhatADeviceIsShown: its own questions that wait, whole, and not too many at once.
func TestWhatADeviceIsShown(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	phone := registry.Session{Key: registry.Key{Tenant: "t", Session: "phone"}, DeviceID: "d1", UserID: "ann"}
	first := asked(t, k, nil)
	asked(t, k, func(a *registry.Approval) { a.SessionID = "laptop" })
	asked(t, k, func(a *registry.Approval) { a.Owner = "ben" })
	asked(t, k, func(a *registry.Approval) { a.Tenant = "x" })
	denied := asked(t, k, nil)
	if _, err := k.Decide(t.Context(), ann, denied.ID, approval.Decision{}); err != nil {
		t.Fatal(err)
	}
	got, err := k.WaitingAt(t.Context(), phone)
	if err != nil || len(got) != 1 || got[0].ID != first.ID || got[0].Args.String() != `{"pin":4711}` {
		t.Fatalf("shown %+v, %v", got, err)
	}
	for range 20 {
		asked(t, k, nil)
	}
	if got, err = k.WaitingAt(t.Context(), phone); err != nil || len(got) != 16 {
		t.Errorf("%d are shown, %v", len(got), err)
	}
}

// What may not be seen does not exist, whatever is done with it.
func TestUnknownApprovalsAndGrants(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	a := asked(t, k, nil)
	ben := auth.Identity{Tenant: "t", User: "ben", Roles: auth.RoleApprover}
	caller := auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleCaller}
	bound := auth.Identity{Tenant: "t", User: "ann", Roles: auth.RoleApprover, Device: "other"}
	phone := registry.Session{Key: registry.Key{Tenant: "t", Session: "phone"}, UserID: "ann"}
	for name, err := range map[string]error{
		"ben's":       second(k.Get(t.Context(), ben, a.ID)),
		"a caller's":  second(k.Wait(t.Context(), caller, a.ID, time.Second)),
		"a device's":  second(k.Decide(t.Context(), bound, a.ID, approval.Decision{})),
		"no id":       second(k.Get(t.Context(), ann, "../x")),
		"another id":  second(k.Get(t.Context(), ann, registry.NewApprovalID())),
		"at a device": second(k.DecideOnDevice(t.Context(), caller, phone, "../x", approval.Decision{})),
		"unknown": second(k.DecideOnDevice(t.Context(), caller, phone, registry.NewApprovalID(),
			approval.Decision{})),
		"grant": second(k.Revoke(t.Context(), ann, registry.NewApprovalID())),
	} {
		if !errors.Is(err, registry.CodeNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := k.Pending(t.Context(), ben); err != nil || len(got) > 0 {
		t.Errorf("ben sees %+v, %v", got, err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestGrantsLastAsLongAsTheyMay: what the person said, within what the rules allow.
func TestGrantsLastAsLongAsTheyMay(t *testing.T) {
	k := approval.New(approval.Config{Store: memory.New(memory.Options{})})
	defer k.Close()
	for _, c := range []struct{ said, rule, want time.Duration }{
		{0, 0, registry.MaxGrantLife}, {time.Hour, 0, time.Hour}, {time.Hour, time.Minute, time.Minute},
		{0, time.Minute, time.Minute},
	} {
		a := asked(t, k, func(a *registry.Approval) { a.GrantLimit, a.Tool = c.rule, c.said.String()+c.rule.String() })
		d := approval.Decision{Allow: true, Scope: registry.ScopeAlwaysArgs, GrantLife: c.said}
		answer, err := k.Decide(t.Context(), ann, a.ID, d)
		if err != nil || answer.Grant == nil {
			t.Fatal(answer, err)
		}
		if got := answer.Grant.ExpiresAt.Sub(answer.Grant.CreatedAt); got != c.want {
			t.Errorf("said %v, at most %v: %v", c.said, c.rule, got)
		}
	}
}
