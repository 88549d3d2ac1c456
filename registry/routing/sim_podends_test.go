package routing_test

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// What can happen to a pod.

// stop has the pod stand still for some time.
func (p *simPod) stop(lasts time.Duration) {
	p.mu.Lock()
	select {
	case <-p.running:
		p.running = make(chan struct{})
	default: // it does already
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	from := time.Now()
	p.sim.note(&p.sim.book.stops, span{from: from, to: from.Add(lasts), pod: p.id})
	p.sim.work.Go(func() {
		timer := time.NewTimer(lasts)
		defer timer.Stop()
		select {
		case <-timer.C:
			p.resume()
		case <-p.killed:
		}
	})
}

// resume has the pod go on, and works off what has come meanwhile.
func (p *simPod) resume() {
	p.mu.Lock()
	close(p.running)
	p.releasing = true
	p.mu.Unlock()
	p.sim.trace("%s goes on", p.id)
	for {
		p.mu.Lock()
		if len(p.held) == 0 || p.dead {
			p.releasing = false
			p.mu.Unlock()
			return
		}
		next := p.held[0]
		p.held = p.held[1:]
		p.mu.Unlock()
		next()
		time.Sleep(p.sim.fateOf("released", p.id).span(10*time.Microsecond, 100*time.Microsecond))
	}
}

// kill ends the process without a word.
func (p *simPod) kill() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	p.dead = true
	conns := slices.Clone(p.conns)
	p.held = nil // frames among them are lost
	p.mu.Unlock()
	p.sim.note(&p.sim.book.kills, span{from: time.Now(), to: time.Now(), pod: p.id})
	close(p.killed)
	p.sim.unslot(p)
	for _, c := range conns {
		c.cut(0)
		time.AfterFunc(p.sim.fates.of("broken", c.id).span(time.Millisecond, 2*time.Second),
			func() { c.device.lose(c, 0) })
	}
	p.end(registry.ErrAbandoned)
	p.sim.work.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.pod.Close(ctx) // as it has no store any more, it fails
		_ = p.bus.Close(context.Background())
	})
}

// drain ends the process as an operator does.
func (p *simPod) drain() {
	f := p.sim.fateOf("drain", p.id)
	p.pass(f)
	p.mu.Lock()
	if p.dead || p.closing {
		p.mu.Unlock()
		return
	}
	p.closing = true
	p.mu.Unlock()
	began := time.Now()
	for {
		if !p.pass(f) {
			return
		}
		p.mu.Lock()
		conns, busy := slices.Clone(p.conns), p.releasing
		p.mu.Unlock()
		if len(conns) == 0 && !busy {
			break
		}
		for _, c := range conns {
			c.sendAway(time.Since(began) > simDrain*3/4, time.Since(began) > simDrain)
		}
		time.Sleep(f.span(40*time.Millisecond, 60*time.Millisecond))
	}
	requests := make(chan struct{})
	go func() {
		p.calls.Wait()
		close(requests)
	}()
	select {
	case <-requests:
	case <-time.After(max(0, simDrain-time.Since(began)) + f.span(0, time.Millisecond)):
		p.end(registry.ErrDraining)
		<-requests
	}
	time.Sleep(f.span(time.Millisecond, 2*time.Millisecond)) // the recorder has what there is to write
	p.mu.Lock()
	p.ending = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = p.pod.Close(ctx) // the store may be away
	p.mu.Lock()
	died := p.dead
	p.dead = true
	p.mu.Unlock()
	p.sim.unslot(p)
	_ = p.bus.Close(context.Background())
	if !died {
		p.sim.note(&p.sim.book.ends, span{from: time.Now(), to: time.Now(), pod: p.id})
		close(p.killed)
	}
}
