package auth

import "testing"

// Kinds may name tenants, of which there may be any number.
func TestKindsOfLinesAreBounded(t *testing.T) {
	t.Parallel()
	l := NewLines[int]()
	for kind := range 2*maxLineKinds + 1 {
		if _, ok := l.May(kind); !ok {
			t.Fatalf("the first line of kind %d was left out", kind)
		}
	}
	if n := len(l.quotas.by); n > maxLineKinds {
		t.Errorf("%d kinds are remembered", n)
	}
}
