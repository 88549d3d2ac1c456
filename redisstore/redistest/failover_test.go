package redistest

import (
	"strings"
	"testing"
)

// TestFailoversFollowEachOther: masters are killed and frozen by turns. Each time the other server takes over with what
// was written, and the old master follows it.
func TestFailoversFollowEachOther(t *testing.T) {
	s := Sentinel(t)
	for i, frozen := range []bool{false, false, true, false} {
		old := s.Masters[0]
		value := strings.Repeat("x", i+1)
		if out, err := old.Command("set", "key", value); err != nil || out != "OK" {
			t.Fatalf("round %d: set: %s, %v", i, out, err)
		}
		mustBecome(t, s.Replicas[0], value, "get", "key")
		back := old.Restart
		if frozen {
			old.Pause()
			back = old.Resume
		} else {
			old.Kill()
		}
		s.Promoted()
		back()
		s.Rejoin()
		if got := mustPrint(t, s.Replicas[0], "get", "key"); s.Replicas[0] != old || got != value {
			t.Fatalf("round %d: the old master has %q, want %q", i, got, value)
		}
	}
}
