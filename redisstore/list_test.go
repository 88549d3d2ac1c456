package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// TestIndexPagesAreExact reads random indexes with many equal scores, from random places that need not exist, and
// compares with sorting in memory.
func TestIndexPagesAreExact(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	random := rand.New(rand.NewPCG(7, 7))
	alphabet := []string{"a", "B", "b", "-", "_", ".", "0", "Z"}
	name := func() string {
		var b strings.Builder
		for range 1 + random.IntN(4) {
			b.WriteString(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 200 {
		s.conn.Client().Del(ctx, "index0", "index1", "index2")
		indexes := []string{"index0", "index1", "index2"}[:1+random.IntN(3)]
		scores := make(map[string]int64)
		for range random.IntN(40) {
			scores[name()] = 1<<50 + int64(random.IntN(3))
		}
		var all []registry.Cursor
		for member, score := range scores {
			all = append(all, registry.Cursor{Generation: score, Session: member})
			index := indexes[random.IntN(len(indexes))]
			s.conn.Client().ZAdd(ctx, index, redis.Z{Score: float64(score), Member: member})
			if random.IntN(8) == 0 { // a session that is changing its set is in two
				s.conn.Client().ZAdd(ctx, indexes[0], redis.Z{Score: float64(score), Member: member})
			}
		}
		sortCursors(all)
		newest := random.IntN(2) == 0
		if newest {
			slices.Reverse(all)
		}
		after := registry.Cursor{Generation: 1<<50 + int64(random.IntN(3)), Session: name()}
		if random.IntN(5) == 0 {
			after = registry.Cursor{}
		}
		limit := 1 + random.IntN(10)
		var want []registry.Cursor
		for _, c := range all {
			before := after != registry.Cursor{} && (c == after || less(c, after) != newest)
			if !before && len(want) < limit {
				want = append(want, c)
			}
		}
		var got []registry.Cursor
		for _, p := range must[[]place](t)(s.readPlaces(ctx, &source{indexes: indexes}, after, limit, newest)) {
			got = append(got, p.Cursor)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("after %v, newest %v, limit %d of %v:\ngot  %v\nwant %v", after, newest, limit, all, got, want)
		}
	}
}

func less(a, b registry.Cursor) bool {
	return a.Generation < b.Generation || a.Generation == b.Generation && a.Session < b.Session
}

func sortCursors(all []registry.Cursor) {
	slices.SortFunc(all, func(a, b registry.Cursor) int {
		if less(a, b) {
			return -1
		}
		return 1
	})
}

func TestListingRemovesWhatLeadsNowhere(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	for _, name := range []string{"s1", "s2", "s3"} {
		putTools(t, s, claim(t, s, name, "a"), spec(t, "camera", "x"))
	}
	delKeys(t, s, sessionKey(registry.Key{Tenant: tenant, Session: "s1"}))
	s.conn.Client().ZIncrBy(ctx, sessionsIndex(tenant), -5, "s3") // as if an older claim had left it
	if got := listed(t, s, registry.Query{}); got != "s2" {
		t.Errorf("listed %q", got)
	}
	if n := s.conn.Client().ZCard(ctx, sessionsIndex(tenant)).Val(); n != 1 {
		t.Errorf("%d entries left in the index, want 1", n)
	}
	if got := listed(t, s, registry.Query{Tool: "camera"}); got != "s2 s3" {
		t.Errorf("by tool: %q", got)
	}
}

func TestOneListingLooksAtABoundedPart(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	pipe := s.conn.Client().Pipeline()
	for i := range maxScan + 500 { // entries of sessions that are gone
		pipe.ZAdd(ctx, sessionsIndex(tenant), redis.Z{Score: float64(i + 1), Member: fmt.Sprintf("ghost%d", i)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	claim(t, s, "real", "a")
	page, next, err := s.List(ctx, registry.Query{Tenant: tenant, Limit: maxPage})
	if err != nil || len(page) != 0 || next == nil {
		t.Fatalf("%d entries, next %v, %v", len(page), next, err)
	}
	if next.Generation != maxScan {
		t.Errorf("stopped at %d, want %d", next.Generation, maxScan)
	}
	page, next, err = s.List(ctx, registry.Query{Tenant: tenant, After: *next})
	if err != nil || len(page) != 1 || next != nil {
		t.Errorf("%d entries, next %v, %v", len(page), next, err)
	}
}

func TestGroupsForgetStaleEntries(t *testing.T) {
	s := storeOn(t, Options{})
	s.staleCheck.every = 0
	ctx := context.Background()
	heartbeat(t, s, "a")
	e := putTools(t, s, claim(t, s, "s1", "a"), spec(t, "camera", "x"))
	index := membersIndex(tenant, newToolSet(e.Tools).hash)
	s.conn.Client().ZAdd(ctx, index, redis.Z{Score: 5, Member: "ghost"})
	if got := grouped(t, s); got != "camera:1" {
		t.Errorf("groups %q", got)
	}
	must[bool](t)(s.Release(ctx, e.Session, 0))
	if got := grouped(t, s); got != "" {
		t.Errorf("groups after release: %q", got)
	}
	if n := s.conn.Client().ZCard(ctx, offersIndex(tenant)).Val(); n != 0 {
		t.Errorf("%d tools left in the index", n)
	}
}

func TestGroupPages(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	sess := claim(t, s, "s1", "a")
	putTools(t, s, sess, spec(t, "ab", "x"), spec(t, "a.b", "x"), spec(t, "a", "x"), spec(t, "abc", "x"))
	other := claim(t, s, "s2", "a")
	putTools(t, s, other, spec(t, "ab", "y"))
	for name, want := range map[string]string{"": "a a.b ab ab abc", "ab": "ab ab", "a": "a", "zzz": ""} {
		q := registry.OfferedToolQuery{Tenant: tenant, Name: name, Limit: 1}
		var got []string
		for {
			page, next, err := s.OfferedTools(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range page {
				got = append(got, g.Spec.Name)
			}
			if next == "" {
				break
			}
			if strings.ContainsAny(next, "\x00 ") {
				t.Errorf("cursor %q is not fit for a URL", next)
			}
			q.After = next
		}
		if strings.Join(got, " ") != want {
			t.Errorf("name %q: %v, want %s", name, got, want)
		}
	}
}
