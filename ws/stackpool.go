package ws

import "sync"

// stackPool runs functions on stacks that all connections share. The runtime doubles a goroutine's stack when a call
// needs more, and halves it only at a collection that finds less than a quarter in use. A reader lives as long as its
// device is connected, and its wait takes more than a quarter of 8 KB, so a stack that once grew to 8 KB stays so.
// Decoding a frame takes more than 4 KB. With frames handled here, an idle session takes 11.0 KB in place of 15.4; a
// frame costs half a microsecond more.
type stackPool struct {
	mu     sync.Mutex
	idle   []*pooledStack // the one that was used last is used next
	closed bool
	ended  sync.WaitGroup
}

// maxIdleStacks is how many goroutines wait for the next function; more than run at a time, unless many devices connect
// at once.
const maxIdleStacks = 64

// pooledStack is a goroutine that waits for functions.
type pooledStack struct {
	work chan func()
	done chan struct{}
}

// run calls f on a pooled stack and returns when it has returned.
func (p *stackPool) run(f func()) {
	s := p.get()
	s.work <- f
	<-s.done
	p.put(s)
}

func (p *stackPool) get() *pooledStack {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s
	}
	s := &pooledStack{work: make(chan func()), done: make(chan struct{})}
	p.ended.Go(func() {
		for f := range s.work {
			f()
			s.done <- struct{}{}
		}
	})
	return s
}

func (p *stackPool) put(s *pooledStack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdleStacks {
		close(s.work)
		return
	}
	p.idle = append(p.idle, s)
}

// close ends the goroutines: those that are idle now, the others once their function has returned.
func (p *stackPool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, s := range p.idle {
		close(s.work)
	}
	p.idle = nil
}
