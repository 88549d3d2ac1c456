package farhand

import "testing"

func TestGauge(t *testing.T) {
	var n gauge
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	if !closed(n.none()) {
		t.Error("clients before any came")
	}
	for range 2 {
		n.add(1)
		n.add(1)
		first, second := n.none(), n.none()
		n.add(-1)
		if closed(first) || closed(second) {
			t.Fatal("a client is left")
		}
		n.add(-1)
		if !closed(first) || !closed(second) || !closed(n.none()) {
			t.Fatal("the last client has gone unnoticed")
		}
	}
}
