package usage

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
)

// flaky is a store that may be away.
type flaky struct {
	*memory.Store
	outage registrytest.Outage
}

func (f *flaky) AddUsage(ctx context.Context, rows []registry.UsageRow) error {
	if err := f.outage.Err(); err != nil {
		return err
	}
	return f.Store.AddUsage(ctx, rows)
}

func (f *flaky) sums(t *testing.T) (byTool map[string]registry.Usage, rows int) {
	t.Helper()
	list, err := f.ReadUsage(t.Context(), "t", registry.UsageDay(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	byTool = make(map[string]registry.Usage)
	for _, r := range list {
		byTool[r.Tool] = byTool[r.Tool].Plus(r.Usage)
	}
	return byTool, len(list)
}

func start() (*Recorder, *flaky) {
	store := &flaky{Store: memory.New(memory.Options{Limits: registry.Limits{UsageRows: 1 << 20}})}
	return New(store, slog.New(slog.DiscardHandler)), store
}

// Calls and turns add up, are written together, and what the store did not take is written when it is back.
func TestUsageAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := start()
		end := agent.CallEnd{
			Route: agent.RouteRemote, Outcome: agent.OutcomeSucceeded, Duration: 20 * time.Millisecond,
			Tenant: "t", User: "ann", Tool: "photo", BytesIn: 10, BytesOut: 100,
		}
		failed, unknown, replayed := end, end, end
		failed.Outcome = string(registry.CodeTimeout)
		unknown.Route, unknown.Outcome = agent.RouteNone, string(registry.CodeToolNotFound)
		replayed.Outcome = agent.OutcomeReplayed
		for range 100 {
			r.CallEnded(end)
			r.CallEnded(failed)
			r.CallEnded(unknown)
			r.CallEnded(replayed)
			r.TurnEnded(auth.Identity{Tenant: "t", User: "ann"}, 1000, 50)
		}
		store.outage.Set(true)
		time.Sleep(3 * interval)
		synctest.Wait()
		if sums, _ := store.sums(t); len(sums) != 0 {
			t.Errorf("%+v in a store that is away", sums)
		}
		store.outage.Set(false)
		r.CallEnded(end)
		time.Sleep(interval)
		synctest.Wait()
		sums, rows := store.sums(t)
		want := registry.Usage{Calls: 201, Failures: 100, Milliseconds: 4020, BytesIn: 2010, BytesOut: 20_100}
		if sums["photo"] != want || rows != 3 {
			t.Errorf("%d rows, got %+v, want %+v", rows, sums["photo"], want)
		}
		if u := sums[registry.UsageUnknown]; u.Calls != 100 || u.Failures != 100 {
			t.Errorf("unknown tools: %+v", u)
		}
		if u := sums[registry.UsageModels]; u.InputTokens != 100_000 || u.OutputTokens != 5000 || u.Calls != 0 {
			t.Errorf("tokens: %+v", u)
		}
		if store.outage.Asked() > 5 {
			t.Errorf("%d writes", store.outage.Asked())
		}
		r.CallEnded(end)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sums, _ := store.sums(t); sums["photo"].Calls != 202 {
			t.Errorf("after Close: %+v", sums["photo"])
		}
	})
}

// Whatever one tenant calls, the calls of another one have rows of their own.
func TestOneTenantDoesNotTakeAllRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := start()
		for i := range 2 * maxRows {
			r.CallEnded(agent.CallEnd{Route: agent.RouteLocal, Tenant: "hostile", User: strconv.Itoa(i), Tool: "x"})
		}
		for i := range 100 {
			tool := "photo" + strconv.Itoa(i)
			r.CallEnded(agent.CallEnd{Route: agent.RouteLocal, Tenant: "t", User: "ben", Tool: tool})
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		sums, _ := store.sums(t)
		for i := range 100 {
			if sums["photo"+strconv.Itoa(i)].Calls != 1 {
				t.Fatalf("call %d of the other tenant has no row", i)
			}
		}
	})
}

// The memory of a recorder is bounded, and calls that there is no row for are counted all the same.
func TestUsageIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, store := start()
		store.outage.Set(true)
		const n = 2 * maxRows
		for i := range n {
			r.CallEnded(agent.CallEnd{
				Route: agent.RouteLocal, Tenant: "t", User: strconv.Itoa(i) + strings.Repeat("u", 1000), Tool: "x",
			})
		}
		time.Sleep(3 * interval)
		synctest.Wait()
		for key := range r.rows {
			if len(key.user) > 128 {
				t.Fatalf("a name of %d bytes waits", len(key.user))
			}
		}
		if len(r.rows) > maxRows+1 || r.Other() < n-maxRows {
			t.Errorf("%d rows, %d of others", len(r.rows), r.Other())
		}
		store.outage.Set(false)
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var calls int64
		sums, _ := store.sums(t)
		for _, u := range sums {
			calls += u.Calls
		}
		if calls != n {
			t.Errorf("%d calls of %d", calls, n)
		}
	})
}
