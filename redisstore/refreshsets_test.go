package redisstore

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// manySets are sessions of two tenants, of which each two offer the same, and all together more, sets and
// definitions, than is asked for in one go. Each set has definitions of the next.
func manySets(t *testing.T, s *Store) []registry.Entry {
	t.Helper()
	const sets, tools, apart = 30, 100, 75
	specs := distinctSpecs(t, sets*apart+tools)
	var all []registry.Entry
	for i := range 2 * sets {
		sess := registry.Session{Key: registry.Key{Tenant: tenant, Session: fmt.Sprintf("s%d", i)}, Pod: "a"}
		if i%sets%10 == 9 {
			sess.Tenant = "other"
		}
		c := must[registry.Claim](t)(s.Claim(context.Background(), sess))
		first := i % sets * apart
		all = append(all, putTools(t, s, c.Session, specs[first:first+tools]...))
	}
	return all
}

// A refresh asks for sets by their hashes, in memory of the refresh before. It notices each thing that was lost since.
func TestRefreshNoticesLostSetsAmongMany(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	all := manySets(t, s)
	refresh := func(what string, want ...string) {
		t.Helper()
		missing, lost, err := s.Refresh(ctx, all)
		var got []string
		for _, key := range missing {
			got = append(got, key.Session)
		}
		if err != nil || len(lost) != 0 || !slices.Equal(got, want) {
			t.Fatalf("%s: missing %v, want %v; lost %v, %v", what, got, want, lost, err)
		}
	}
	for i, e := range []registry.Entry{all[0], all[9], all[29]} { // of the first and the last that are asked for
		set, spec, place := newToolSet(e.Tools), e.Tools[50], e.Session.Tenant
		other := fmt.Sprintf("s%d", []int{30, 39, 59}[i])
		refresh("nothing was lost")
		kept, _ := keyspace(t, s.conn)

		delKeys(t, s, setKey(place, set.hash), specKey(place, spec.Hash()), definitionsIndex(place, spec.Name))
		refresh("a set, a definition and its age")
		if now, _ := keyspace(t, s.conn); now[setKey(place, set.hash)] != kept[setKey(place, set.hash)] ||
			now[specKey(place, spec.Hash())] != kept[specKey(place, spec.Hash())] {
			t.Errorf("a set or a definition is not as it was")
		} else if now[definitionsIndex(place, spec.Name)] == "" {
			t.Errorf("the age of a definition was not written again")
		}

		s.conn.Client().ZRem(ctx, offersIndex(place), offerMember(spec.Name, spec.Hash(), set.hash))
		refresh("an offer", e.Session.Key.Session, other)
		must[registry.Session](t)(s.Restore(ctx, e))
		s.conn.Client().HSet(ctx, sessionKey(e.Session.Key), fieldSet, "another")
		refresh("the set of a session", e.Session.Key.Session)
		must[registry.Session](t)(s.Restore(ctx, e))
	}
	refresh("all was restored")
}

// Every life is extended, however many sets there are.
func TestRefreshExtendsTheLivesOfManySets(t *testing.T) {
	s := storeOn(t, Options{})
	ctx := context.Background()
	heartbeat(t, s, "a")
	all := manySets(t, s)
	must[[]registry.Key](t)(func() ([]registry.Key, error) {
		missing, _, err := s.Refresh(ctx, all)
		return missing, err
	}())
	const soon = 15 * time.Second // a fraction of the session TTL
	_, before := keyspace(t, s.conn)
	for key := range before {
		s.conn.Client().Expire(ctx, key, soon)
	}
	heartbeat(t, s, "a")
	if missing, lost, err := s.Refresh(ctx, all); err != nil || len(missing)+len(lost) != 0 {
		t.Fatal(missing, lost, err)
	}
	_, after := keyspace(t, s.conn)
	short := 0
	for key, life := range after {
		if life <= soon && key != versionKey(tenant) && key != versionKey("other") {
			if short++; short < 5 {
				t.Errorf("%s ends in %v", key, life)
			}
		}
	}
	if short > 0 || len(after) < len(before) {
		t.Errorf("%d of %d keys end soon, of %d", short, len(after), len(before))
	}
}
