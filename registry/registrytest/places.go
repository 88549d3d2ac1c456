package registrytest

import (
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

var placeTests = []subtest{
	{name: "the first that asks owns a place, and all others hear so", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		first := f.place(a, "c", "browser")
		if first.Pod != a || first.Generation == 0 || first.Epoch == 0 || first.Before != 0 {
			f.Errorf("%+v", first)
		}
		for _, pod := range []string{a, b} {
			if again := f.place(pod, "c", "browser"); again != first {
				f.Errorf("%+v, then %+v", first, again)
			}
		}
		if other := f.place(b, "d", "browser"); other.Pod != b {
			f.Errorf("another place: %+v", other)
		}
	}},
	{name: "of many that ask at once one gets it", run: func(f *fixture) {
		var wg sync.WaitGroup
		got := make([]registry.Place, racers)
		for i := range racers {
			pod := f.pod(string(rune('a' + i)))
			wg.Go(func() { got[i] = f.place(pod, "c", "browser") })
		}
		wg.Wait()
		for _, p := range got {
			if p != got[0] {
				f.Errorf("%+v and %+v", got[0], p)
			}
		}
	}},
	{name: "identities have places, too, which are none of a conversation", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		identity := registry.PlaceKey{Tenant: f.tenant, Identity: "c"}
		conversation := f.place(a, "c", "browser")
		place, err := f.store.ClaimPlace(f.ctx, registry.PlaceClaim{Key: identity, Pod: b, Kind: "browser"})
		if f.must(err); place.Pod != b || place.Generation != 0 || place.Epoch == conversation.Epoch {
			f.Errorf("%+v", place)
		}
	}},
	{name: "a place that was given up is the next one's, who learns what is lost", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		first := f.place(a, "c", "browser")
		f.must(f.store.ReleasePlaces(f.ctx, []registry.Place{first}))
		for range 2 { // the reply to the first may be lost
			next := f.place(b, "c", "browser")
			if next.Pod != b || next.Epoch <= first.Epoch || next.Before != first.Epoch ||
				next.Generation != first.Generation {
				f.Errorf("%+v, then %+v", first, next)
			}
		}
		if other := f.place(a, "c", "workspace"); other.Before != 0 || other.Pod != b {
			f.Errorf("what was never kept: %+v", other)
		}
		f.must(f.store.ReleasePlaces(f.ctx, []registry.Place{first})) // late: no effect
		if still := f.place(a, "c", "browser"); still.Pod != b {
			f.Errorf("%+v", still)
		}
		gone, err := f.store.RefreshPlaces(f.ctx, []registry.Place{first})
		if f.must(err); len(gone) != 1 || gone[0] != first {
			f.Errorf("gone: %+v", gone)
		}
	}},
	{name: "nothing is lost with an owner that kept nothing", run: func(f *fixture) {
		claim := func(pod string, keep bool) registry.Place {
			f.Helper()
			p, err := f.store.ClaimPlace(f.ctx, registry.PlaceClaim{
				Key: placeOf(f.key("c")), Pod: pod, Kind: "browser", Keep: keep,
			})
			f.must(err)
			return p
		}
		a, b := f.pod("a"), f.pod("b")
		idle := claim(a, false)
		if other := claim(b, true); other != idle || other.Kept { // b does not own it
			f.Errorf("%+v, then %+v", idle, other)
		}
		f.must(f.store.ReleasePlaces(f.ctx, []registry.Place{idle}))
		if next := claim(b, false); next.Pod != b || next.Before != 0 || next.Kept {
			f.Errorf("after one that kept nothing: %+v", next)
		}
		kept := claim(b, true)
		if again := claim(a, false); !kept.Kept || kept.Before != 0 || again != kept {
			f.Errorf("kept %+v, then %+v", kept, again)
		}
		f.must(f.store.ReleasePlaces(f.ctx, []registry.Place{kept}))
		idle = claim(a, false)
		f.must(f.store.ReleasePlaces(f.ctx, []registry.Place{idle}))
		if last := claim(b, true); idle.Before != kept.Epoch || last.Before != kept.Epoch || !last.Kept {
			f.Errorf("kept %+v, then %+v and %+v", kept, idle, last)
		}
	}},
	{name: "the place of a dead pod is the next one's",
		limits: registry.Limits{PodLease: 300 * time.Millisecond}, run: func(f *fixture) {
			first := f.place(f.pod("a"), "c", "browser")
			b := "b-" + f.id
			f.eventually("another pod has it", func() bool {
				f.must(errOf(f.store.Heartbeat(f.ctx, b)))
				next := f.place(b, "c", "browser")
				return next.Pod == b && next.Before == first.Epoch && next.Generation == first.Generation
			})
		}},
	{name: "an erased conversation has another place", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		first := f.place(a, "c", "browser")
		f.must(errOf(f.store.EraseConversation(f.ctx, f.key("c"))))
		generations, err := f.store.PlaceGenerations(f.ctx, []registry.Key{f.key("unknown"), f.key("c")})
		if f.must(err); generations[0] != 0 || generations[1] <= first.Generation {
			f.Errorf("generations %v after %d", generations, first.Generation)
		}
		gone, err := f.store.RefreshPlaces(f.ctx, []registry.Place{first})
		if f.must(err); len(gone) != 1 {
			f.Error("the owner of before keeps it")
		}
		next := f.place(b, "c", "browser")
		if next.Pod != b || next.Generation != generations[1] || next.Before != 0 {
			f.Errorf("%+v", next)
		}
	}},
	{name: "erasing what there is not leaves nothing", run: func(f *fixture) {
		there, err := f.store.EraseConversation(f.ctx, f.key("c"))
		if f.must(err); there {
			f.Error("there was a conversation")
		}
		generations, err := f.store.PlaceGenerations(f.ctx, []registry.Key{f.key("c")})
		if f.must(err); generations[0] != 0 {
			f.Errorf("generation %d", generations[0])
		}
	}},
	{name: "a turn of an erased conversation gets no place of the next", run: func(f *fixture) {
		a := f.pod("a")
		claim := func(t registry.Turn) (registry.Place, error) {
			return f.store.ClaimPlace(f.ctx, registry.PlaceClaim{
				Key: placeOf(f.key("c")), Pod: a, Kind: "browser", Fence: t.Fence,
			})
		}
		for range 2 { // the place is unknown at first, then known
			old := f.begin("c", time.Minute)
			f.must(errOf(claim(old)))
			f.must(errOf(f.store.EraseConversation(f.ctx, f.key("c"))))
			if _, err := claim(old); !errors.Is(err, registry.ErrErased) {
				f.Errorf("the turn of before: %v", err)
			}
			next := f.begin("c", time.Minute)
			f.must(errOf(claim(next)))
			f.must(f.store.EndTurn(f.ctx, next))
		}
	}},
	{name: "a place lasts as long as it is used or refreshed, and one that was lost is written again",
		limits: registry.Limits{PlaceTTL: 3 * time.Second, PodLease: time.Minute}, run: func(f *fixture) {
			a, b := f.pod("a"), f.pod("b")
			held, left := f.place(a, "held", "browser"), f.place(a, "left", "browser")
			f.eventually("it is forgotten", func() bool {
				gone, err := f.store.RefreshPlaces(f.ctx, []registry.Place{held})
				f.must(err)
				if len(gone) > 0 {
					f.Fatalf("gone: %+v", gone)
				}
				generations, err := f.store.PlaceGenerations(f.ctx, []registry.Key{f.key("left")})
				f.must(err)
				return generations[0] == 0
			})
			gone, err := f.store.RefreshPlaces(f.ctx, []registry.Place{held, left})
			if f.must(err); len(gone) > 0 {
				f.Errorf("gone: %+v", gone)
			}
			again := f.place(b, "left", "browser")
			if again.Pod != a || again.Epoch != left.Epoch || again.Generation != left.Generation {
				f.Errorf("%+v, then %+v", left, again)
			}
		}},
}

func placeOf(key registry.Key) registry.PlaceKey {
	return registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
}

// place claims the place of a conversation to keep state there.
func (f *fixture) place(pod, session, kind string) registry.Place {
	f.Helper()
	p, err := f.store.ClaimPlace(f.ctx, registry.PlaceClaim{
		Key: placeOf(f.key(session)), Pod: pod, Kind: kind, Keep: true,
	})
	f.must(err)
	return p
}
