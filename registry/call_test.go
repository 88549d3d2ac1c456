package registry

import (
	"testing"

	"github.com/google/uuid"
)

func TestCallIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewCallID()
		if u, err := uuid.Parse(id); err != nil || u.String() != id || u.Version() != 4 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("%s: %v", id, err)
		}
		if seen[id] {
			t.Fatalf("%s for a second time", id)
		}
		seen[id] = true
	}
}

// A call is seen once for each claim of its session, for as long as many others come.
func TestSeenCalls(t *testing.T) {
	s := newSeenCalls()
	for _, tt := range []struct {
		id         string
		generation int64
		first      bool
	}{{"a", 1, true}, {"a", 1, false}, {"a", 2, true}, {"b", 1, true}, {"a", 2, false}} {
		if got := s.first(tt.id, tt.generation); got != tt.first {
			t.Errorf("%s of generation %d: first %v", tt.id, tt.generation, got)
		}
	}
	for range seenLimit {
		s.first(NewCallID(), 1)
	}
	if s.first("b", 1) {
		t.Error("a call is forgotten after fewer than the limit of others")
	}
	if n := len(s.current) + len(s.previous); n > 2*seenLimit {
		t.Errorf("%d calls are remembered", n)
	}
}
