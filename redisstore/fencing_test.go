package redisstore

import (
	"context"
	"errors"
	"testing"

	"github.com/farhand/farhand/registry"
)

// TestStaleClaimsChangeNothing compares the whole keyspace around every write an old claim can attempt.
func TestStaleClaimsChangeNothing(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a", "b")
	old := claim(t, s, "s1", "a")
	putTools(t, s, old, spec(t, "camera", "old"))
	current := claim(t, s, "s1", "b")
	putTools(t, s, current, spec(t, "camera", "x"), spec(t, "other", "x"))

	olderSamePod := current
	olderSamePod.Generation--
	// The pod that reconnected to itself has the name right and only the generation wrong.
	for name, stale := range map[string]registry.Session{"another pod": old, "the same pod": olderSamePod} {
		notOwner := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, registry.ErrNotOwner) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		unchanged(t, s.conn, name+": update", func() {
			changed := stale
			changed.DeviceID = "stolen"
			notOwner("update", s.Update(ctx, changed))
		})
		unchanged(t, s.conn, name+": put tools", func() {
			// An equal set, because sets are written before ownership is known; they belong to nobody.
			notOwner("set", s.SetTools(ctx, stale, []registry.ToolSpec{spec(t, "camera", "old")}))
		})
		unchanged(t, s.conn, name+": release", func() {
			if ok := must[bool](t)(s.Release(ctx, stale, 0)); ok {
				t.Errorf("%s: released", name)
			}
		})
	}
	unchanged(t, s.conn, "restore", func() {
		_, err := s.Restore(ctx, registry.Entry{Session: old, Tools: []registry.ToolSpec{spec(t, "camera", "old")}})
		if !errors.Is(err, registry.ErrNotOwner) {
			t.Errorf("restore: %v", err)
		}
	})
	unchanged(t, s.conn, "refresh", func() {
		missing, lost, err := s.Refresh(ctx, []registry.Entry{{Session: old}})
		if err != nil || len(missing) != 0 || len(lost) != 1 {
			t.Errorf("refresh: %v, %v, %v", missing, lost, err)
		}
	})
	if got := listed(t, s, registry.Query{Tool: "other"}); got != "s1" {
		t.Errorf("listed %q", got)
	}
}

// TestLateIndexWritesYield replays what a slow pod does when its script ran before a newer claim and its index
// writes come after: the entries must not stay.
func TestLateIndexWritesYield(t *testing.T) {
	s := storeOn(t, Options{})
	heartbeat(t, s, "a", "b")
	old := claim(t, s, "s1", "a")
	current := claim(t, s, "s1", "b")
	putTools(t, s, current, spec(t, "new", "x"))
	unchanged(t, s.conn, "late index writes", func() {
		p := placement{session: old, add: attributeIndexes(old), upTo: old.Generation}
		p.add = append(p.add, membersIndex(tenant, "ghost"))
		p.removeSet(newToolSet([]registry.ToolSpec{spec(t, "new", "x")}).hash)
		if err := s.place(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRemovalsStopAtTheirGeneration(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	pipe := s.conn.Pipeline()
	s.enter(pipe, "index", "100", "m")
	s.enter(pipe, "index", "50", "m") // late: does not lower it
	score := pipe.Do("ZSCORE", "index", "m")
	if err := pipe.Exec(ctx); err != nil || score.Int() != 100 {
		t.Fatalf("score %d, %v", score.Int(), err)
	}
	for _, c := range []struct {
		upTo    int64
		removed int64
	}{{99, 0}, {100, 1}, {100, 0}} {
		pipe := s.conn.Pipeline()
		n := pipe.Eval(scriptZRemIf, []string{"index"}, "m", decimal(c.upTo), "absent", "100")
		if err := pipe.Exec(ctx); err != nil || n.Int() != c.removed {
			t.Errorf("up to %d: removed %d, %v", c.upTo, n.Int(), err)
		}
	}
}

func TestGenerationsGrowThroughClockTrouble(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	sess := claim(t, s, "s1", "a")
	const ahead = 1 << 52 // as if the clock had been far ahead when this claim was made
	if err := s.conn.Client().HSet(ctx, sessionKey(sess.Key), fieldGeneration, ahead).Err(); err != nil {
		t.Fatal(err)
	}
	second := claim(t, s, "s1", "a")
	if second.Generation != ahead+1 {
		t.Fatalf("generation %d, want %d", second.Generation, ahead+1)
	}
	must[bool](t)(s.Release(ctx, second, 0))
	if third := claim(t, s, "s1", "a"); third.Generation != ahead+2 {
		t.Errorf("generation %d after a release, want %d", third.Generation, ahead+2)
	}
}

// TestRestoreRules covers who may bring a session back.
func TestRestoreRules(t *testing.T) {
	ctx := context.Background()
	s := storeOn(t, Options{})
	heartbeat(t, s, "a", "b")
	older := claim(t, s, "s1", "a")
	newer := claim(t, s, "s1", "b")

	t.Run("of two pods, the newer claim wins whoever comes first", func(t *testing.T) {
		s.conn.Client().FlushAll(ctx)
		heartbeat(t, s, "a", "b")
		first := must[registry.Session](t)(s.Restore(ctx, registry.Entry{Session: older}))
		second := must[registry.Session](t)(s.Restore(ctx, registry.Entry{Session: newer}))
		if second.Generation <= first.Generation {
			t.Errorf("generations %d, then %d", first.Generation, second.Generation)
		}
		if _, lost, err := s.Refresh(ctx, []registry.Entry{{Session: first}}); err != nil || len(lost) != 1 {
			t.Errorf("the older claim was not told: %v, %v", lost, err)
		}
		if got := must[registry.Entry](t)(s.Entry(ctx, newer.Key)).Session.Pod; got != "b" {
			t.Errorf("owner %s", got)
		}
	})
	t.Run("a restore whose answer was lost may be repeated", func(t *testing.T) {
		s.conn.Client().FlushAll(ctx)
		first := must[registry.Session](t)(s.Restore(ctx, registry.Entry{Session: newer}))
		missing, lost, err := s.Refresh(ctx, []registry.Entry{{Session: newer}})
		if err != nil || len(missing) != 1 || len(lost) != 0 {
			t.Fatalf("refresh with the old generation: %v, %v, %v", missing, lost, err)
		}
		again := must[registry.Session](t)(s.Restore(ctx, registry.Entry{Session: newer}))
		if again.Generation != first.Generation {
			t.Errorf("generations %d, then %d", first.Generation, again.Generation)
		}
	})
	t.Run("not after a newer connection has come and gone", func(t *testing.T) {
		s.conn.Client().FlushAll(ctx)
		restored := must[registry.Session](t)(s.Restore(ctx, registry.Entry{Session: newer}))
		must[bool](t)(s.Release(ctx, restored, 0))
		if _, err := s.Restore(ctx, registry.Entry{Session: older}); !errors.Is(err, registry.ErrNotOwner) {
			t.Errorf("got %v", err)
		}
	})
}
