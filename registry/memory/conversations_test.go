package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// storeWithClock returns a store and its clock, which only the test moves.
func storeWithClock() (*Store, *time.Time) {
	now := time.UnixMilli(1_700_000_000_000)
	return New(Options{Now: func() time.Time { return now }}), &now
}

func beginTurn(t *testing.T, m *Store, key registry.Key, lease time.Duration) registry.Turn {
	t.Helper()
	turn, err := m.BeginTurn(context.Background(), key, lease)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

func TestConversationLivesFromItsLastChange(t *testing.T) {
	ctx, key := context.Background(), registry.Key{Tenant: "t", Session: "s"}
	m, now := storeWithClock()
	turn := beginTurn(t, m, key, time.Minute)
	for i, write := range []func() error{
		func() error { return m.RenewTurn(ctx, turn, time.Minute) },
		func() error { _, err := m.AppendMessages(ctx, turn, json.RawMessage("1")); return err },
		func() error { return m.SaveDraft(ctx, turn, json.RawMessage("2")) },
		func() error { return m.SetTitle(ctx, turn, "title") },
		func() error { return m.TruncateMessages(ctx, turn, 1) },
		func() error { _, err := m.AppendTrail(ctx, key, "x", 5); return err },
		func() error { return m.EndTurn(ctx, turn) },
		func() error { _, err := m.BeginTurn(ctx, key, time.Minute); return err },
	} {
		*now = now.Add(registry.DefaultHistoryTTL - time.Millisecond)
		if err := write(); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	*now = now.Add(registry.DefaultHistoryTTL - time.Millisecond)
	if n, _ := m.CountMessages(ctx, key); n != 1 {
		t.Errorf("%d messages just before the end", n)
	}
	*now = now.Add(time.Millisecond) // neither of the two was a change
	if n, _ := m.CountMessages(ctx, key); n != 0 {
		t.Errorf("%d messages after the end", n)
	}
	if _, err := m.Sweep(ctx); err != nil || m.conversations.all.count != 0 {
		t.Errorf("%d conversations kept after a sweep, %v", m.conversations.all.count, err)
	}
}

func TestLeaseLapsesToTheMoment(t *testing.T) {
	ctx, key := context.Background(), registry.Key{Tenant: "t", Session: "s"}
	m, now := storeWithClock()
	first := beginTurn(t, m, key, time.Second)
	*now = now.Add(time.Second - time.Nanosecond)
	_, err := m.BeginTurn(ctx, key, time.Second)
	if !errors.Is(err, registry.CodeBusy) || registry.AsError(err).RetryAfter != time.Nanosecond {
		t.Errorf("just before the end: %v", err)
	}
	*now = now.Add(time.Nanosecond)
	if second := beginTurn(t, m, key, time.Second); second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
}

// TestFencesGrow: also of a conversation that was forgotten, and when the clock goes back.
func TestFencesGrow(t *testing.T) {
	m, now := storeWithClock()
	key := registry.Key{Tenant: "t", Session: "s"}
	var last int64
	for _, step := range []time.Duration{0, time.Minute, 2 * registry.DefaultHistoryTTL, -registry.DefaultHistoryTTL} {
		*now = now.Add(step)
		turn := beginTurn(t, m, key, time.Second)
		if turn.Fence <= last {
			t.Errorf("after %v: fence %d after %d", step, turn.Fence, last)
		}
		last = turn.Fence
		if err := m.EndTurn(context.Background(), turn); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIsBounded(t *testing.T) {
	ctx := context.Background()
	m, now := storeWithClock()
	m.conversations.all.most = 20
	for i := range 10 { // half of them: the share of a tenant that is alone
		beginTurn(t, m, registry.Key{Tenant: "t", Session: fmt.Sprint(i)}, time.Second)
	}
	for what, write := range map[string]func(registry.Key) error{
		"a turn":  func(k registry.Key) error { _, err := m.BeginTurn(ctx, k, time.Second); return err },
		"a trail": func(k registry.Key) error { _, err := m.AppendTrail(ctx, k, "x", 5); return err },
	} {
		err := write(registry.Key{Tenant: "t", Session: "one too many"})
		if !errors.Is(err, registry.CodeStoreUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	*now = now.Add(time.Minute)
	beginTurn(t, m, registry.Key{Tenant: "t", Session: "0"}, time.Second) // one that is known
	*now = now.Add(registry.DefaultHistoryTTL - time.Minute)
	beginTurn(t, m, registry.Key{Tenant: "t", Session: "new"}, time.Second) // there is room again without a sweep
	if n := m.conversations.all.count; n != 2 {
		t.Errorf("%d conversations kept", n)
	}
}
