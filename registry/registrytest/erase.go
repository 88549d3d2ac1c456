package registrytest

import (
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// eraseTests are about what a store finds by a user. Users have characters that are special in patterns and keys.
var eraseTests = []subtest{
	{name: "a user is erased, and no other", run: func(f *fixture) {
		const ann, ben = "ann*[x]:{a}", "ann"
		day := time.Now().UTC().Format(time.DateOnly)
		for i, user := range []string{ann, ben} {
			for n := range 60 { // more than a page
				f.must(f.memorize(f.toolMemory("c"+string(rune('a'+n%26))+string(rune('a'+n/26)), user), "k", `1`))
			}
			f.must(f.memorize(f.toolMemory("", user), "large", `"`+strings.Repeat("x", 9<<10)+`"`))
			r := f.keyed([]string{"c1", "c2"}[i], "key of "+user)
			r.UserID = user
			f.create(r)
			f.must(f.store.AddUsage(f.ctx, []registry.UsageRow{
				{Tenant: f.tenant, Day: day, User: user, Tool: "t", Usage: registry.Usage{Calls: 1}},
				{Tenant: f.tenant, Day: day, User: user, Tool: "u", Usage: registry.Usage{Calls: 1}},
			}))
			f.must(f.store.SetDefaultDevice(f.ctx, f.tenant, user, "phone"))
			f.remember(registry.ContinuationsOf(f.tenant, user), "id", []byte("data"), time.Minute)
			f.must(f.store.SetWake(f.ctx, f.wake("phone of "+user, user)))
			for range 2 {
				f.ask(f.approval(func(a *registry.Approval) { a.Requester.User = user }), time.Minute)
				f.ask(f.approval(func(a *registry.Approval) { a.Owner = user }), time.Minute)
			}
			f.decide(f.ask(f.approval(func(a *registry.Approval) {
				a.Requester.User, a.Deferred = user, true
			}), time.Minute), registry.ApprovalDenied)
		}
		f.ask(f.approval(func(a *registry.Approval) { a.Requester.User, a.Owner = ben, ann }), time.Minute)
		want := map[registry.PersonalKind]int{
			registry.PersonalApprovals: 6, registry.PersonalCalls: 1, registry.PersonalContinuations: 1,
			registry.PersonalMemories: 61, registry.PersonalUsage: 2, registry.PersonalWakes: 1,
			registry.PersonalDefault: 1,
		}
		for round := range 2 {
			for _, kind := range registry.PersonalKinds() {
				n, err := f.store.EraseOf(f.ctx, f.tenant, ann, kind)
				f.must(err)
				if n != want[kind]*(1-round) {
					f.Errorf("round %d: erased %d %s, want %d", round, n, kind, want[kind]*(1-round))
				}
			}
		}
		f.wantMemory(f.toolMemory("caa", ann), `{}`)
		f.wantMemory(f.toolMemory("caa", ben), `{"k":1}`)
		f.wantCode(errOf(f.store.ReadCall(f.ctx, f.tenant, "c1")), registry.CodeCallNotFound)
		f.wantCode(errOf(f.store.CallByKey(f.ctx, f.tenant, "key of "+ann)), registry.CodeCallNotFound)
		f.must(errOf(f.store.CallByKey(f.ctx, f.tenant, "key of "+ben)))
		f.wantKept(registry.ContinuationsOf(f.tenant, ann), 100, nil, "id")
		f.wantKept(registry.ContinuationsOf(f.tenant, ben), 100, map[string]string{"id": "data"}, "id")
		rows, err := f.store.ReadUsage(f.ctx, f.tenant, day)
		f.must(err)
		if len(rows) != 2 || slices.ContainsFunc(rows, func(r registry.UsageRow) bool { return r.User != ben }) {
			f.Errorf("usage %+v", rows)
		}
		pending, err := f.store.PendingApprovals(f.ctx, f.tenant)
		f.must(err)
		if len(pending) != 4 {
			f.Errorf("%d approvals are pending, want 4", len(pending))
		}
	}},
}
