package redistest

import (
	"testing"
	"time"
)

// Eventually polls until ok returns true. It fails the test when that takes longer than any machine needs.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("did not come true within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}
