package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// budgetPods returns pods on one store, as the store of a fleet.
func budgetPods(t *testing.T, n int, cfg PodConfig) []*Pod {
	t.Helper()
	store := memory.New(memory.Options{})
	var pods []*Pod
	for i := range n {
		cfg.ID, cfg.Store, cfg.Bus = fmt.Sprint("pod", i), store, &memory.Bus{}
		p, err := NewPod(cfg)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	return pods
}

func durableRecord(session string) registry.Record {
	r := registry.NewRecord(registry.NewCallID(), "t", "tool", nil)
	r.SessionID, r.TimeoutMS = session, 60_000
	return r
}

// Outputs beyond the budget are shortened, and say so; then calls are refused before they run, also those of another
// pod and a new connection. What is small, and what is there already, is not affected.
func TestOutputsAreKeptWithinABudget(t *testing.T) {
	const budget = 80 << 20
	ctx, pods := context.Background(), budgetPods(t, 2, PodConfig{CallBytes: budget})
	output := strings.Repeat("x", 1<<20)
	kept, shortened := 0, 0
	first := durableRecord("s1")
	first.IdempotencyKey, first.RequestDigest = "key", "digest"
	var refused *registry.Error
	for i := 0; i < 200 && refused == nil; i++ {
		calls, rec := pods[i%2].Calls.calls, durableRecord("s1")
		if i == 0 {
			rec = first
		}
		if _, _, err := calls.CreateCall(ctx, rec); err != nil {
			refused = registry.AsError(err)
			break
		}
		moved, err := calls.MoveCall(ctx, "t", rec.CallID, registry.EventSucceed,
			registry.Change{Session: registry.Key{Tenant: "t", Session: "s1"},
				Result: &registry.Result{Success: true, Output: output}})
		switch {
		case err != nil || !moved.Applied:
			t.Fatalf("answer %d: %+v, %v", i, moved, err)
		case moved.Record.Result.Output == output:
			kept += len(output)
		case strings.HasPrefix(moved.Record.Result.Output, "xxx") && len(moved.Record.Result.Output) < 1000 &&
			strings.Contains(moved.Record.Result.Output, "[1048576 bytes of output were not stored") &&
			moved.Record.State == registry.StateSucceeded:
			shortened++
		default:
			t.Fatalf("answer %d: %.200q", i, moved.Record.Result.Output)
		}
	}
	if kept < budget/32 || kept > budget/16 || shortened == 0 {
		t.Errorf("%d bytes kept of one session, %d outputs shortened", kept, shortened)
	}
	if refused == nil || refused.Code != registry.CodeRateLimited || refused.Dispatched != registry.DispatchedNo ||
		refused.RetryAfter < time.Second {
		t.Fatalf("no call was refused: %+v", refused)
	}
	again := durableRecord("s1")
	again.IdempotencyKey, again.RequestDigest = "key", "digest"
	if stored, created, err := pods[0].Calls.calls.CreateCall(ctx, again); err != nil || created ||
		stored.CallID != first.CallID {
		t.Errorf("the first request repeated: %+v, %v, %v", stored, created, err)
	}
	if _, _, err := pods[1].Calls.calls.CreateCall(ctx, durableRecord("s2")); err != nil {
		t.Errorf("a call of another session: %v", err)
	}
}

// An answer that the store does not take costs nothing: a device could use the budget up with answers to calls nobody
// made.
func TestForgedAnswersAreNotCharged(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: 16 << 20})[0]
	for range 100 {
		_, err := pod.Calls.calls.MoveCall(ctx, "t", registry.NewCallID(), registry.EventSucceed,
			registry.Change{Session: registry.Key{Tenant: "t", Session: "s1"},
				Result: &registry.Result{Success: true, Output: largeText}})
		if !registry.IsCallNotFound(err) {
			t.Fatal(err)
		}
	}
	rec := durableRecord("s1")
	if _, _, err := pod.Calls.calls.CreateCall(ctx, rec); err != nil {
		t.Fatal(err)
	}
	moved, err := pod.Calls.calls.MoveCall(ctx, "t", rec.CallID, registry.EventSucceed,
		registry.Change{Session: registry.Key{Tenant: "t", Session: "s1"},
			Result: &registry.Result{Success: true, Output: largeText}})
	if err != nil || moved.Record.Result.Output != largeText {
		t.Errorf("a real answer: %.100v, %v", moved.Record.Result, err)
	}
}

// Records of light calls that are kept, because they were slow or failed, are bounded by the same budget.
func TestKeptRecordsAreWithinTheBudget(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: 8 << 20})[0]
	var ids []string
	for range 100 {
		var batch []registry.Record
		for range 50 {
			batch = append(batch, durableRecord("s1"))
			ids = append(ids, batch[len(batch)-1].CallID)
		}
		if err := pod.Calls.calls.KeepCalls(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, id := range ids {
		if _, err := pod.cfg.Store.ReadCall(ctx, "t", id); err == nil {
			n++
		}
	}
	if n < 20 || n > 150 {
		t.Errorf("%d records of one session in a budget of 512 KiB for it", n)
	}
}

// fullStore has stored what others than a full tenant sent.
type fullStore struct{ *memory.Store }

func (fullStore) KeepCalls(context.Context, []registry.Record) error {
	return registry.StoreFull("This tenant", "calls")
}

func (fullStore) AppendCallEvents(context.Context, []registry.CallEvent) error {
	return registry.StoreFull("This tenant", "logs of calls")
}

// Lines for which a tenant has no room are not tried again: the lines of others, which are stored, would be charged
// each time.
func TestLinesOfAFullTenantAreDropped(t *testing.T) {
	pod, err := NewPod(PodConfig{Store: fullStore{memory.New(memory.Options{})}, Bus: &memory.Bus{}})
	if err != nil {
		t.Fatal(err)
	}
	pod.rec.keepRunning(new(durableRecord("s1")))
	if _, err := pod.rec.flush(); err != nil || len(pod.rec.unwritten) != 0 {
		t.Errorf("%d records are to be written again, %v", len(pod.rec.unwritten), err)
	}
	event := registry.CallEvent{Tenant: "t", CallID: "c", Session: "s1", Type: registry.CallEventProgress}
	if err := pod.Calls.calls.AppendCallEvents(t.Context(), []registry.CallEvent{event}); err != nil {
		t.Error(err)
	}
}

// No output, however it is written, makes a call take more of the store than one may.
func TestOneCallKeepsNoMoreThanOneMay(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: 2 << 30})[0]
	for name, r := range map[string]registry.Result{
		"text":    {Output: strings.Repeat("x", 20<<20)},
		"escapes": {Output: strings.Repeat("\x01", 4<<20)},
		"error":   {Error: strings.Repeat("e", 20<<20)},
		"parts": {Output: strings.Repeat("x", 4<<20), Parts: []registry.Part{
			{Type: registry.PartImage, MIMEType: "image/png", Data: make([]byte, 1<<20), Size: 1 << 20}}},
		"structured": registry.NewResult(true, registry.MustJSON(`[`+strings.Repeat(`"x" , `, 1<<20)+`1]`), ""),
	} {
		rec := durableRecord("s1")
		if _, _, err := pod.Calls.calls.CreateCall(ctx, rec); err != nil {
			t.Fatal(err)
		}
		moved, err := pod.Calls.calls.MoveCall(ctx, "t", rec.CallID, registry.EventSucceed,
			registry.Change{Session: registry.Key{Tenant: "t", Session: "s1"}, Result: &r})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(moved.Record.Result)
		if err != nil {
			t.Fatal(err)
		}
		if name == "structured" { // stores keep such text once
			if r := moved.Record.Result; r.Output != r.Structured.String() || strings.Contains(r.Output, " ") {
				t.Errorf("%s: text and structured output differ", name)
			}
			text = moved.Record.Result.Structured.Raw()
		}
		for _, p := range moved.Record.Result.Parts {
			if p.Data != nil || p.Size != 1<<20 {
				t.Errorf("%s: a part of %d bytes has %d", name, p.Size, len(p.Data))
			}
		}
		if len(text) > maxKeptOutput {
			t.Errorf("%s: %d bytes are kept", name, len(text))
		}
	}
}

// New definitions are charged once, to whoever brings them, over whatever connection and pod. Known ones are free.
func TestNewDefinitionsAreWithinABudget(t *testing.T) {
	ctx, pods := context.Background(), budgetPods(t, 2, PodConfig{NewToolBytes: 8 << 20})
	list := func(n int) []registry.ToolSpec {
		var tools []registry.ToolSpec
		for i := range 10 {
			tools = append(tools,
				registry.ToolSpec{Name: fmt.Sprint("tool", i), Description: fmt.Sprint(n, largeText[:10<<10])})
		}
		return tools
	}
	accepted := 0
	var refused *registry.Error
	for i := range 100 {
		if err := pods[i%2].Hub.offers.admit(ctx, sessionNamed(fmt.Sprint("s", i)),
			list(i)); err != nil {
			refused = registry.AsError(err)
			break
		}
		accepted++
	}
	if accepted < 30 || accepted > 45 {
		t.Errorf("%d lists of 100 KB were accepted, half of 8 MiB may be at once", accepted)
	}
	if refused == nil || refused.Code != registry.CodeRateLimited || refused.RetryAfter <= 0 {
		t.Fatalf("nothing was refused: %+v", refused)
	}
	for i := range 500 {
		if err := pods[0].Hub.offers.admit(ctx, sessionNamed(fmt.Sprint("fleet", i)),
			list(0)); err != nil {
			t.Fatalf("device %d of a fleet that offers what is known: %v", i, err)
		}
	}

	one := budgetPods(t, 1, PodConfig{NewToolBytes: 8 << 20})[0]
	accepted = 0
	for i := range 20 {
		if one.Hub.offers.admit(ctx, sessionNamed("s1"), list(i)) == nil {
			accepted++
		}
	}
	if accepted < 3 || accepted > 6 {
		t.Errorf("%d lists of 100 KB were accepted of one session, half of 1 MiB may be at once", accepted)
	}
	if err := one.Hub.offers.admit(ctx, sessionNamed("s2"), list(50)); err != nil {
		t.Errorf("another session: %v", err)
	}
}

// sessionNamed returns a session of the tenant t.
func sessionNamed(id string) *registry.Session {
	return &registry.Session{Key: registry.Key{Tenant: "t", Session: id}}
}

// A device that its credential names, or a user, spends no more of the tenant's budget with more sessions.
func TestNewToolsOfADeviceAreWithinItsShare(t *testing.T) {
	ctx := context.Background()
	for name, of := range map[string]struct {
		session registry.Session
		most    int // lists of 100 KB, half of the share at once
	}{
		"a device":          {registry.Session{DeviceID: "lamp", Bound: true}, 6},
		"devices of a user": {registry.Session{DeviceID: "lamp", UserID: "ann"}, 22},
	} {
		pod := budgetPods(t, 1, PodConfig{NewToolBytes: 8 << 20})[0]
		accepted := 0
		for i := range 30 {
			s := of.session
			s.Key = registry.Key{Tenant: "t", Session: fmt.Sprint("s", i)}
			list := []registry.ToolSpec{{Name: "a", Description: fmt.Sprint(i, largeText[:100<<10])}}
			if pod.Hub.offers.admit(ctx, &s, list) == nil {
				accepted++
			}
		}
		if accepted < of.most/2 || accepted > of.most {
			t.Errorf("%s: %d lists of 30 sessions were accepted, want at most %d", name, accepted, of.most)
		}
		list := []registry.ToolSpec{{Name: "a", Description: largeText[:100<<10]}}
		if err := pod.Hub.offers.admit(ctx, sessionNamed("other"), list); err != nil {
			t.Errorf("%s: another session: %v", name, err)
		}
	}
}

// A device with several sessions, or a user, stores no more of calls than its share: the tenant's other calls go on.
func TestCallsOfAnOwnerAreWithinItsShare(t *testing.T) {
	const budget = 32 << 20
	ctx := context.Background()
	for name, of := range map[string]struct {
		bound        bool
		user, caller string
		most         int // bytes; half of the share at once
	}{
		"a device":                  {true, "", "", budget / 16},
		"a user":                    {false, "ann", "ann", budget / 4},
		"a caller of others' tools": {false, "", "ann", budget / 4},
		"the fleet":                 {false, "", "", budget / 2},
	} {
		pod := budgetPods(t, 1, PodConfig{CallBytes: budget})[0]
		calls, kept := pod.Calls.calls, 0
		for i := range 40 {
			id := fmt.Sprint("s", i)
			connect(t, pod, deafConn{}, func(s *registry.Session) {
				s.Key.Session, s.DeviceID, s.Bound, s.UserID = id, "lamp", of.bound, of.user
			})
			for range 2 {
				rec := durableRecord(id)
				rec.UserID = of.caller
				if _, _, err := calls.CreateCall(ctx, rec); err != nil {
					continue
				}
				moved, err := calls.MoveCall(ctx, "t", rec.CallID, registry.EventSucceed, registry.Change{
					Session: registry.Key{Tenant: "t", Session: id},
					Result:  &registry.Result{Success: true, Output: strings.Repeat("x", 256<<10)},
				})
				if err != nil {
					t.Fatal(err)
				}
				kept += len(moved.Record.Result.Output)
			}
		}
		if kept > of.most+of.most/8 {
			t.Errorf("%s: %d bytes of 40 sessions are kept, want at most %d", name, kept, of.most)
		}
		_, _, err := calls.CreateCall(ctx, durableRecord("other"))
		if name != "the fleet" && err != nil {
			t.Errorf("%s: a call of another: %v", name, err)
		}
	}
}

// Lists of known definitions are new lists: a device that offers another part of its tools each time fills the indexes.
func TestNewListsAreWithinABudget(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{NewToolBytes: 2 << 20})[0]
	var tools []registry.ToolSpec
	for i := range 60 {
		tools = append(tools, registry.ToolSpec{Name: fmt.Sprint("tool", i)})
	}
	accepted := 0
	for i := range 60 {
		for j := range i {
			if pod.Hub.offers.admit(ctx, sessionNamed("s1"), tools[j:i]) == nil {
				accepted++
			}
		}
	}
	if accepted > 300 { // of 1,770; at once 100, and more as time passes
		t.Errorf("%d lists were accepted", accepted)
	}
}

// An output that is too long for any call is shortened, and what remains is charged like every other output.
func TestOutputsThatAreCutAreChargedToo(t *testing.T) {
	const budget = 80 << 20
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: budget})[0]
	output, kept := strings.Repeat("\x01", 1<<20), 0 // six times as long as JSON
	for range 40 {
		rec := durableRecord("s1")
		if _, _, err := pod.Calls.calls.CreateCall(ctx, rec); errors.Is(err, registry.CodeRateLimited) {
			break // the session has spent what it may
		} else if err != nil {
			t.Fatal(err)
		}
		moved, err := pod.Calls.calls.MoveCall(ctx, "t", rec.CallID, registry.EventSucceed,
			registry.Change{Session: registry.Key{Tenant: "t", Session: "s1"},
				Result: &registry.Result{Success: true, Output: output}})
		if err != nil || !moved.Applied {
			t.Fatalf("%+v, %v", moved, err)
		}
		kept += int(resultSize(moved.Record.Result))
	}
	if kept == 0 || kept > budget/sessionShare {
		t.Errorf("%d bytes kept of one session in a budget of %d", kept, budget/sessionShare)
	}
}

// A forged answer gives back no more than it took: it must not fill a budget that others have spent.
func TestForgedLongAnswersGiveNothingBack(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: 16 << 20})[0]
	calls, key := pod.Calls.calls, registry.Key{Tenant: "t", Session: "s1"}
	for calls.spend(ctx, key.Tenant, key.Session, 64<<10) == 0 { // all of the session's
	}
	_, err := calls.MoveCall(ctx, "t", registry.NewCallID(), registry.EventSucceed,
		registry.Change{Session: key,
			Result: &registry.Result{Success: true, Output: strings.Repeat("x", maxKeptOutput+1)}})
	if !registry.IsCallNotFound(err) {
		t.Fatal(err)
	}
	if calls.spend(ctx, key.Tenant, key.Session, 64<<10) == 0 {
		t.Error("an answer to no call filled the budget again")
	}
}

// A request that is repeated adds nothing, and so it costs nothing.
func TestRepeatedRequestsAreNotCharged(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: 1 << 20})[0]
	for i := range 200 {
		rec := durableRecord("s1")
		rec.IdempotencyKey, rec.RequestDigest = "key", "digest"
		if _, created, err := pod.Calls.calls.CreateCall(ctx, rec); err != nil || created != (i == 0) {
			t.Fatalf("request %d: %v, %v", i, created, err)
		}
	}
	if _, _, err := pod.Calls.calls.CreateCall(ctx, durableRecord("s1")); err != nil {
		t.Errorf("a new call: %v", err)
	}
}

// A session pays nothing for tools that its tenant's budget does not allow.
func TestRefusedDefinitionsAreNotCharged(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{NewToolBytes: 8 << 20})[0]
	b := pod.Hub.offers
	for b.spend(ctx, "t", "", 64<<10) == 0 {
	}
	for range 20 {
		if b.admit(ctx, sessionNamed("s1"),
			[]registry.ToolSpec{{Name: "a", Description: largeText[:60<<10]}}) == nil {
			t.Fatal("accepted beyond the budget")
		}
	}
	if wait := b.reserved.spent(b.accounts("t", "s1")[0]); wait > 0 {
		t.Errorf("the session's own part is spent for %v", wait)
	}
}

// A tenant's conversations take all they may grow by. Its turns are refused then, those of another tenant are not, and
// one identity leaves half to the others.
func TestHistoryOfATenantIsBounded(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{HistoryBytes: 16 << 20})[0]
	grow := func(user string) (n int) {
		for pod.History.Begin(ctx, share.Owner{Tenant: "hostile", Identity: user}, 64<<10) == nil {
			n += 64 << 10
		}
		return n
	}
	anna := grow("anna")
	all := anna + grow("ben") + grow("")
	if anna == 0 || anna > 5<<20 || all < 7<<20 || all > 9<<20 {
		t.Errorf("an identity adds %d bytes at once, and its tenant %d", anna, all)
	}
	err := pod.History.Begin(ctx, share.Owner{Tenant: "hostile"}, 64<<10)
	if !errors.Is(err, registry.CodeRateLimited) || registry.AsError(err).RetryAfter <= 0 {
		t.Errorf("refused with %v", err)
	}
	if err := pod.History.Begin(ctx, share.Owner{Tenant: "other", Identity: "anna"}, 64<<10); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

// What a running turn adds beyond the budget is not lost to it: later turns of its identity wait until it has come
// back, on every pod, and those of others do not.
func TestOverdrawnHistoryIsPaidLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget, over = 64 << 20, 64 * time.Second // so anna's share grows by a quarter of a mebibyte each second
		pods := budgetPods(t, 2, PodConfig{HistoryBytes: budget, Limits: registry.Limits{HistoryTTL: over}})
		anna, ben := share.Owner{Tenant: "t", Identity: "anna"}, share.Owner{Tenant: "t", Identity: "ben"}
		for pods[0].History.Begin(t.Context(), anna, 1<<20) == nil {
		}
		for range 4 {
			if !pods[0].History.Add(t.Context(), anna, 1<<20) {
				t.Error("what is overdrawn is not told")
			}
		}
		time.Sleep(10 * time.Second)
		for i, pod := range pods {
			if pod.History.Begin(t.Context(), anna, 1) == nil {
				t.Errorf("pod %d: a turn begins before what was overdrawn has come back", i)
			}
			if err := pod.History.Begin(t.Context(), ben, 1); err != nil {
				t.Errorf("pod %d: another identity: %v", i, err)
			}
		}
		time.Sleep(20 * time.Second)
		for i, pod := range pods {
			if err := pod.History.Begin(t.Context(), anna, 1); err != nil {
				t.Errorf("pod %d: after it has come back: %v", i, err)
			}
		}
		pods[0].History.GiveBack(ben, 1)
	})
}

// A large request that is refused keeps no small one from what is there.
func TestSmallRequestsFitWhereALargeOneDoesNot(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{HistoryBytes: 16 << 20})[0]
	by := share.Owner{Tenant: "t"}
	if pod.History.Begin(ctx, by, 7<<20) != nil || pod.History.Begin(ctx, by, 2<<20) == nil {
		t.Fatal("the budget is another one")
	}
	if err := pod.History.Begin(ctx, by, 1<<10); err != nil {
		t.Errorf("a kilobyte of the mebibyte that is left: %v", err)
	}
}

// Any number of holders, of this tenant or another one, take nothing of what is reserved for a tenant.
func TestManyHoldersTakeNoReservations(t *testing.T) {
	pod := budgetPods(t, 1, PodConfig{HistoryBytes: 64 << 20})[0]
	honest := share.Owner{Tenant: "honest"}
	for turn := range 100 {
		for i := range 400 {
			for _, tenant := range []string{"hostile", "honest"} {
				by := share.Owner{Tenant: tenant, Identity: fmt.Sprint(turn, "-", i)}
				_ = pod.History.Begin(t.Context(), by, 1)
			}
		}
		if err := pod.History.Begin(t.Context(), honest, 2000); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
	}
}

// A tenant asks approvers until it is refused; another one asks all the same.
func TestApprovalsOfATenantAreBounded(t *testing.T) {
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{})[0]
	asked := 0
	for user := range 4 {
		by := share.Owner{Tenant: "hostile", Identity: fmt.Sprint(user)}
		for pod.Asked.Begin(ctx, by, 1<<20) == nil {
			asked++
		}
	}
	if most := registry.MaxApprovalBytes / 2 >> 20; asked < most-8 || asked > most+1 {
		t.Errorf("a tenant has %d MiB of approvals", asked)
	}
	if err := pod.Asked.Begin(ctx, share.Owner{Tenant: "other", Identity: "0"}, 1<<20); err != nil {
		t.Error(err)
	}
}

// The logs of a user's calls to any devices, and to tools of the gateway, take no more than the user's share.
func TestLogsOfACallerAreWithinItsShare(t *testing.T) {
	const budget = 32 << 20
	ctx, pod := context.Background(), budgetPods(t, 1, PodConfig{CallBytes: budget})[0]
	calls, kept := pod.Calls.calls, 0
	add := func(session, user string) int {
		id := registry.NewCallID()
		err := calls.AppendCallEvents(ctx, []registry.CallEvent{{
			Tenant: "t", Session: session, UserID: user, CallID: id, Type: registry.CallEventProgress,
			Chunk: strings.Repeat("x", 256<<10),
		}})
		if err != nil {
			t.Fatal(err)
		}
		events, err := calls.CallEvents(ctx, "t", id, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(events) * 256 << 10
	}
	for i := range 80 {
		kept += add([]string{"", fmt.Sprint("s", i)}[i%2], "ann")
	}
	if most := budget / 4; kept == 0 || kept > most+most/8 {
		t.Errorf("%d bytes of one user's logs are kept, want at most %d", kept, most)
	}
	if add("other", "ben") == 0 {
		t.Error("the log of another user was not kept")
	}
	rec := durableRecord("s0")
	rec.UserID = "ann"
	report := pod.Calls.localReport("t", "ann", "tool", rec.CallID)
	report.add(registry.Report{Chunk: "x"})
	if pod.Calls.calls.logSpent(registry.Key{Tenant: "t"}, "ann") == 0 || !report.full {
		t.Error("the user's share is spent, and a tool's report was taken")
	}
}
