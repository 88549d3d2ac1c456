package memory

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/farhand/farhand/registry/documents"
)

// The count of an index is that of its members whose time is ahead, whatever happens to them and to the clock.
func TestIndexesKeepTheirCount(t *testing.T) {
	random, space := rand.New(rand.NewPCG(1, 2)), documents.Space{Tenant: "t", Kind: "k"}
	x := &index{times: make(map[string]time.Time)}
	s := &documentStore{indexes: map[documentKey]*index{{space, "i"}: x}}
	now := time.UnixMilli(0)
	for step := range 20_000 {
		switch member := documents.Weighed(random.Int64N(20), "m"); random.IntN(8) {
		case 0:
			x.remove(member)
		case 1:
			now = now.Add(time.Duration(random.IntN(20)) * time.Millisecond)
		case 2:
			now = now.Add(-time.Duration(random.IntN(5)) * time.Millisecond)
		default:
			x.set(member, now.Add(time.Duration(random.IntN(30)-5)*time.Millisecond))
		}
		except := documents.Weighed(random.Int64N(20), "m")
		n, sum := int64(0), int64(0)
		for member, at := range x.times {
			if !at.After(now) {
				continue
			}
			if member != except {
				n += 3
			}
			sum += weightIn(member)
		}
		if got := s.count(space, documents.Term{Index: "i", Weight: 3, Except: except}, now); got != n {
			t.Fatalf("step %d: %d, want %d", step, got, n)
		}
		if got := s.count(space, documents.Term{Index: "i"}, now); got != sum {
			t.Fatalf("step %d: a sum of %d, want %d", step, got, sum)
		}
	}
}

func BenchmarkQuota(b *testing.B) {
	m := New(Options{})
	space := documents.Space{Tenant: "t", Kind: "k"}
	for i := range 10_000 {
		id := strconv.Itoa(i)
		if _, err := documents.Commit(b.Context(), m.documents, space,
			documents.Join("i", id, time.Hour, 0)); err != nil {
			b.Fatal(err)
		}
	}
	quota := documents.AtMost(10_000, documents.Term{Index: "i", Weight: 1, Except: "1"})
	for b.Loop() {
		if _, err := documents.Commit(b.Context(), m.documents, space, quota); err != nil {
			b.Fatal(err)
		}
	}
}
