package ws

import (
	"sync"
	"testing"
)

// TestIdleStacksAreBounded: however many functions ran at a time, no more than maxIdleStacks goroutines stay, and none
// when the pool is closed.
func TestIdleStacksAreBounded(t *testing.T) {
	const atOnce = 3 * maxIdleStacks
	var p stackPool
	var all, running sync.WaitGroup
	running.Add(atOnce)
	for range atOnce {
		all.Go(func() {
			p.run(func() { running.Done(); running.Wait() })
		})
	}
	all.Wait()
	if len(p.idle) != maxIdleStacks {
		t.Errorf("%d goroutines are idle, want %d", len(p.idle), maxIdleStacks)
	}
	p.close()
	p.ended.Wait()
}
