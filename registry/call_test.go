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
