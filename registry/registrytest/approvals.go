package registrytest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

var approvalTests = []subtest{
	{name: "what is asked comes back", run: func(f *fixture) {
		want := f.approval(func(a *registry.Approval) {
			a.Args = registry.MustJSON(`{"text":"\u202e evil ünïcode","n":12345678901234567890}`)
			a.Arguments = []registry.ArgumentSource{{Pointer: "/text", Value: "evil", Source: "foreign"}}
			a.Owner, a.Turn, a.Conversation, a.Model = "ann", "t1", "phone", true
		})
		made := f.ask(want, time.Minute)
		if made.State != registry.ApprovalPending || made.ExpiresAt.Sub(made.CreatedAt) != time.Minute {
			f.Errorf("made %+v", made)
		}
		got, err := f.store.Approval(f.ctx, f.tenant, want.ID)
		f.must(err)
		if got.Args.String() != want.Args.String() || got.Verdict != made.Verdict ||
			!got.ExpiresAt.Equal(made.ExpiresAt) || !got.CreatedAt.Equal(made.CreatedAt) ||
			got.Requester != want.Requester || got.Owner != "ann" || got.Tool != want.Tool || !got.Model ||
			!slices.Equal(got.Arguments, want.Arguments) || got.Reason != want.Reason || got.Tenant != f.tenant {
			f.Errorf("got  %+v\nwant %+v", got, want)
		}
		_, err = f.store.Approval(f.ctx, f.tenant+"x", want.ID)
		f.wantNoApproval(err)
		_, err = f.store.Approval(f.ctx, f.tenant, registry.NewApprovalID())
		f.wantNoApproval(err)
	}},
	{name: "the first decision wins, and everybody is told the same", run: func(f *fixture) {
		for range 20 {
			a := f.ask(f.approval(), time.Minute)
			var winners atomic.Int32
			told := make([]registry.Verdict, 8)
			together(len(told), func(i int) {
				v := registry.Verdict{
					State: registry.ApprovalDenied, DecidedBy: fmt.Sprint("person ", i),
				}
				if i%2 == 0 {
					v.State, v.Scope = registry.ApprovalAllowed, registry.ScopeOnce
				}
				vote := registry.Vote{Person: v.DecidedBy}
				got, decided, err := f.store.DecideApproval(f.ctx, f.tenant, a.ID, vote, "", v)
				if err != nil {
					f.Error(err)
				}
				if decided {
					winners.Add(1)
				}
				told[i] = got.Verdict
			})
			if winners.Load() != 1 {
				f.Fatalf("%d decisions won", winners.Load())
			}
			for _, v := range told {
				if v != told[0] || v.DecidedBy == "" || v.DecidedAt.IsZero() {
					f.Fatalf("told %+v and %+v", v, told[0])
				}
			}
			verdicts, err := f.store.Verdicts(f.ctx, []registry.ApprovalRef{{Tenant: f.tenant, ID: "none"}, a.Ref()})
			f.must(err)
			if len(verdicts) != 2 || verdicts[0] != (registry.Verdict{}) || verdicts[1] != told[0] {
				f.Fatalf("verdicts %+v, want %+v", verdicts, told[0])
			}
		}
		_, _, err := f.store.DecideApproval(f.ctx, f.tenant, "none", registry.Vote{}, "",
			registry.Verdict{State: registry.ApprovalDenied})
		f.wantNoApproval(err)
	}},
	{name: "wrong answers are counted while an approval waits", run: func(f *fixture) {
		a := f.ask(f.approval(), time.Minute)
		for want := 1; want < 4; want++ {
			if n, err := f.store.CountWrongAnswer(f.ctx, f.tenant, a.ID); n != want || err != nil {
				f.Fatalf("counted %d, %v, want %d", n, err, want)
			}
		}
		f.decide(a, registry.ApprovalDenied)
		for _, id := range []string{a.ID, "none"} {
			if n, err := f.store.CountWrongAnswer(f.ctx, f.tenant, id); n != 0 || err != nil {
				f.Errorf("%s: counted %d, %v", id, n, err)
			}
		}
	}},
	{name: "two persons allow what two must, and one of them denies it", run: func(f *fixture) {
		allow := func(a registry.Approval, who string) (registry.Approval, bool) {
			vote := registry.Vote{Person: "user:" + who}
			got, counted, err := f.store.DecideApproval(f.ctx, f.tenant, a.ID, vote, "", registry.Verdict{
				State: registry.ApprovalAllowed, DecidedBy: who, Scope: registry.ScopeOnce,
			})
			f.must(err)
			return got, counted
		}
		byTwo := func(a *registry.Approval) { a.By, a.Deferred = registry.ApproveTwo, true }
		a := f.ask(f.approval(byTwo), time.Minute)
		for i, counts := range []bool{true, false, false} { // one person counts once
			got, counted := allow(a, "ann")
			if counted != counts || got.State != registry.ApprovalPending || got.AllowedBy != "ann" ||
				got.DecidedBy != "" {
				f.Fatalf("ann allows it the %d. time: %v, %+v", i+1, counted, got)
			}
		}
		f.wantPending(a.ID)
		if read, err := f.store.Approval(f.ctx, f.tenant, a.ID); err != nil || read.AllowedBy != "ann" {
			f.Errorf("%+v, %v", read, err)
		}
		if due := f.due(); len(due) > 0 {
			f.Errorf("due after one: %v", due)
		}
		got, counted := allow(a, "ben")
		if !counted || got.State != registry.ApprovalAllowed || got.DecidedBy != "ann, ben" {
			f.Errorf("ben: %v, %+v", counted, got)
		}
		if got, counted = allow(a, "eve"); counted || got.DecidedBy != "ann, ben" {
			f.Errorf("eve: %v, %+v", counted, got)
		}
		again := f.ask(f.approval(byTwo), time.Minute) // the first vote is revoked: the next one is the first
		vote := registry.Vote{Person: "user:ann", Voter: []byte("proof of ann")}
		for _, who := range []string{"ann", "ben", "eve"} {
			lapsed := ""
			if who != "eve" {
				lapsed = vote.Person
			}
			vote = registry.Vote{Person: "user:" + who, Voter: []byte("proof of " + who)}
			got, counted, err := f.store.DecideApproval(f.ctx, f.tenant, again.ID, vote, lapsed, registry.Verdict{
				State: registry.ApprovalAllowed, DecidedBy: who, Scope: registry.ScopeOnce,
			})
			f.must(err)
			switch final := who == "eve"; {
			case !counted || got.Final() != final:
				f.Fatalf("%s allows it: %v, %+v", who, counted, got)
			case final && got.DecidedBy != "ben, eve":
				f.Errorf("decided by %s", got.DecidedBy)
			case !final && (got.AllowedBy != who || got.First.Person != vote.Person ||
				string(got.First.Voter) != "proof of "+who):
				f.Errorf("the first is %+v", got)
			}
		}
		denied := f.ask(f.approval(byTwo), time.Minute)
		allow(denied, "ann")
		f.decide(denied, registry.ApprovalDenied)
		for range 20 { // of many concurrent votes, exactly two count
			a, counts := f.ask(f.approval(byTwo), time.Minute), atomic.Int32{}
			together(8, func(i int) {
				if _, counted := allow(a, fmt.Sprint("person ", i/2)); counted {
					counts.Add(1)
				}
			})
			if n := counts.Load(); n != 2 {
				f.Fatalf("%d decisions counted", n)
			}
		}
	}},
	{name: "silence is a denial that nothing changes", run: func(f *fixture) {
		a := f.ask(f.approval(), briefly)
		f.eventually("it expires", func() bool {
			got, err := f.store.Approval(f.ctx, f.tenant, a.ID)
			f.must(err)
			return got.State == registry.ApprovalExpired
		})
		got, decided, err := f.store.DecideApproval(f.ctx, f.tenant, a.ID, registry.Vote{Person: "late"}, "",
			registry.Verdict{State: registry.ApprovalAllowed, DecidedBy: "late"})
		f.must(err)
		if decided || got.State != registry.ApprovalExpired || got.DecidedBy != "" {
			f.Errorf("decided %v: %+v", decided, got)
		}
		f.wantPending()
		verdicts, err := f.store.Verdicts(f.ctx, []registry.ApprovalRef{a.Ref()})
		f.must(err)
		if verdicts[0].State != registry.ApprovalExpired {
			f.Errorf("verdict %+v", verdicts[0])
		}
	}},
	{name: "those that wait are listed without arguments", run: func(f *fixture) {
		late, soon := f.ask(f.approval(), time.Hour), f.ask(f.approval(), time.Minute)
		done := f.ask(f.approval(), time.Hour)
		f.decide(done, registry.ApprovalWithdrawn)
		f.wantPending(soon.ID, late.ID)
	}},
	{name: "of one requester, and of one tenant, so many may wait", run: func(f *fixture) {
		var first registry.Approval
		for i := range registry.MaxPending {
			a := f.approval(func(a *registry.Approval) {
				a.Requester.User = fmt.Sprint("user ", i/registry.MaxPendingOfOne)
			})
			made := f.ask(a, time.Minute)
			if i == 0 {
				first = made
			}
		}
		own := f.approval(func(a *registry.Approval) { a.Requester.User = "user 0" })
		_, err := f.store.CreateApproval(f.ctx, own, time.Minute, nil)
		f.wantCode(err, registry.CodeBusy, registry.DispatchedNo)
		other := f.approval(func(a *registry.Approval) { a.Requester.User = "another" })
		_, err = f.store.CreateApproval(f.ctx, other, time.Minute, nil)
		f.wantCode(err, registry.CodeBusy, registry.DispatchedNo)
		f.decide(first, registry.ApprovalDenied)
		f.ask(own, time.Minute)
	}},
	{name: "deferred ones are due once they are final, until they are settled", run: func(f *fixture) {
		deferred := func(a *registry.Approval) { a.Deferred = true }
		allowed, expiring, waits := f.approval(deferred), f.approval(deferred), f.approval(deferred)
		held := f.ask(f.approval(), time.Minute)
		for _, a := range []registry.Approval{allowed, waits} {
			f.must(errOf(f.store.CreateApproval(f.ctx, a, time.Minute, []byte("request of "+a.ID))))
		}
		f.must(errOf(f.store.CreateApproval(f.ctx, expiring, briefly, nil)))
		f.decide(allowed, registry.ApprovalAllowed)
		f.decide(held, registry.ApprovalAllowed)
		f.eventually("two are due", func() bool {
			due := f.due()
			return len(due) == 2 && slices.Contains(due, allowed.ID) && slices.Contains(due, expiring.ID)
		})
		got, request, err := f.store.ApprovalRequest(f.ctx, f.tenant, allowed.ID)
		f.must(err)
		if string(request) != "request of "+allowed.ID || got.State != registry.ApprovalAllowed || !got.Deferred {
			f.Errorf("request %q of %+v", request, got)
		}
		for _, a := range []registry.Approval{allowed, expiring} {
			f.must(f.store.SettleApproval(f.ctx, f.tenant, a.ID))
		}
		if due := f.due(); len(due) > 0 {
			f.Errorf("due %v", due)
		}
		if _, request, err := f.store.ApprovalRequest(f.ctx, f.tenant, allowed.ID); err != nil || len(request) > 0 {
			f.Errorf("request %q, %v: it is not needed any more", request, err)
		}
	}},
}

// approval returns a call that needs a decision.
func (f *fixture) approval(changes ...func(*registry.Approval)) registry.Approval {
	a := registry.Approval{
		ID: registry.NewApprovalID(), Tenant: f.tenant, CallID: registry.NewCallID(), Tool: "camera_snap",
		DefinitionHash: "d1", ArgsDigest: "a1", Args: registry.MustJSON(`{}`), SessionID: "phone",
		Requester: registry.Requester{Credential: "key:1"}, Rule: "security_level", Reason: "It asks for consent.",
	}
	for _, change := range changes {
		change(&a)
	}
	return a
}

func (f *fixture) ask(a registry.Approval, life time.Duration) registry.Approval {
	f.Helper()
	made, err := f.store.CreateApproval(f.ctx, a, life, nil)
	f.must(err)
	return made
}

func (f *fixture) decide(a registry.Approval, state registry.ApprovalState) {
	f.Helper()
	got, decided, err := f.store.DecideApproval(f.ctx, f.tenant, a.ID, registry.Vote{Person: "ann"}, "",
		registry.Verdict{State: state, DecidedBy: "ann"})
	f.must(err)
	if !decided || got.State != state {
		f.Fatalf("decided %v: %+v", decided, got)
	}
}

// due returns the due approvals of this subtest.
func (f *fixture) due() []string {
	f.Helper()
	refs, err := f.store.DueApprovals(f.ctx, 1000)
	f.must(err)
	var ids []string
	for _, ref := range refs {
		if ref.Tenant == f.tenant {
			ids = append(ids, ref.ID)
		}
	}
	return ids
}

// wantPending checks which approvals are pending.
func (f *fixture) wantPending(want ...string) {
	f.Helper()
	pending, err := f.store.PendingApprovals(f.ctx, f.tenant)
	f.must(err)
	ids := []string{}
	for _, a := range pending {
		ids = append(ids, a.ID)
		if !a.Args.IsZero() || a.Tool == "" || a.State != registry.ApprovalPending {
			f.Errorf("listed %+v", a)
		}
	}
	if !slices.Equal(ids, want) {
		f.Errorf("waiting %v, want %v", ids, want)
	}
}

// wantNoApproval checks that the error says that there is no such approval or grant.
func (f *fixture) wantNoApproval(err error) {
	f.Helper()
	f.wantCode(err, registry.CodeNotFound)
}
