package api

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farhand/farhand/registry"
)

// Whatever sessions a reader may not see, and wherever its pages end: it gets each of its own once, and no cursor names
// another, unless a page has only hidden sessions of one generation.
func TestHiding(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		newest := random.IntN(2) == 0
		own, listed := make(map[string]bool), map[string]bool{}
		var all []registry.Cursor
		for i := range random.IntN(40) {
			session := fmt.Sprintf("%c%d", 'a'+rune(random.IntN(26)), i)
			at := registry.Cursor{Generation: 1 + random.Int64N(8), Session: session}
			all = append(all, at)
			own[at.Session] = random.IntN(3) == 0
		}
		compare := registry.Query{Newest: newest}.Compare
		slices.SortFunc(all, compare)
		from, most := registry.Cursor{}, 3+random.IntN(8)
		for pages := 0; ; pages++ {
			if pages > 100 {
				t.Fatalf("the list does not end: %v", from)
			}
			shown, at, oneGeneration, left := "", from, true, false
			for _, next := range all {
				if from != (registry.Cursor{}) && compare(next, from) <= 0 {
					continue
				}
				if most--; most < 0 {
					left = true
					break
				}
				oneGeneration = oneGeneration && (at == from || at.Generation == next.Generation)
				if at = next; own[at.Session] {
					if listed[at.Session] {
						t.Fatalf("%v is listed twice: %v", at, all)
					}
					shown, listed[at.Session] = at.Session, true
				}
			}
			if !left {
				break
			}
			before := from
			from, most = hiding(at, before, shown, newest), 3+random.IntN(8)
			key := registry.Key{Tenant: registry.DefaultTenant, Session: from.Session}
			known := own[from.Session] || from.Session == firstID || from.Session == lastID()
			if !known && !oneGeneration || key.Validate() != nil {
				t.Fatalf("the cursor is %v after %v: %v", from, at, all)
			}
		}
		for session, mine := range own {
			if mine != listed[session] {
				t.Fatalf("%s is listed: %v", session, !mine)
			}
		}
	}
}
