package routing

import (
	"testing"

	"github.com/farhand/farhand/registry"
)

// A call is seen once for each claim of its session, for as long as many others come.
func TestSeenCalls(t *testing.T) {
	s := newSeenCalls()
	for _, tt := range []struct {
		id         string
		generation int64
		first      bool
	}{{"a", 1, true}, {"a", 1, false}, {"a", 2, true}, {"b", 1, true}, {"a", 2, false}} {
		if got := s.add(tt.id, 0, tt.generation); got != tt.first {
			t.Errorf("%s of generation %d: first %v", tt.id, tt.generation, got)
		}
	}
	for range seenLimit {
		s.add(registry.NewCallID(), 0, 1)
	}
	if s.add("b", 0, 1) {
		t.Error("a call is forgotten after fewer than the limit of others")
	}
}
