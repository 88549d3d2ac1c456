package farhand

import "sync"

// gauge counts what is there now, and notifies when nothing is. It is safe for concurrent use.
type gauge struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when nothing is there; nil while nobody waits for that
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += n
	if g.n == 0 && g.zero != nil {
		close(g.zero)
		g.zero = nil
	}
}

// none returns a channel that is closed as soon as nothing is there.
func (g *gauge) none() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	zero := g.zero
	if zero == nil {
		zero = make(chan struct{})
		g.zero = zero
	}
	if g.n == 0 {
		close(zero)
		g.zero = nil
	}
	return zero
}
