package routing_test

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// simBus is the bus as one pod reaches it. Messages take time; between two pods their order is kept, unless the network
// is bad. While the store is away the bus is, too.
type simBus struct {
	sim   *simulation
	pod   *simPod
	inner *memory.Bus
}

var _ registry.Bus = (*simBus)(nil)

func (b *simBus) Listen(ctx context.Context, pod string, h registry.BusHandler) error {
	return b.inner.Listen(ctx, pod, h)
}

func (b *simBus) Healthy() error { return nil }

func (b *simBus) Close(ctx context.Context) error { return b.inner.Close(ctx) }

// Send implements registry.Bus.
func (b *simBus) Send(ctx context.Context, pod string, e registry.Envelope) error {
	f := b.sim.fateOf("send", b.pod.id, pod, string(e.Kind), e.Session, nameOf(e.CallID), askerOf(ctx))
	if !b.pod.pass(f) {
		return registry.StoreUnavailable("send", errDead).With(registry.DispatchedUnknown)
	}
	leave := time.NewTimer(f.span(50*time.Microsecond, time.Millisecond))
	defer leave.Stop()
	select {
	case <-leave.C:
	case <-ctx.Done():
		return registry.StoreUnavailable("send", ctx.Err()).With(registry.DispatchedNo)
	}
	return b.leave(f, pod, e)
}

// SendAsync implements registry.Bus.
func (b *simBus) SendAsync(
	ctx context.Context, pod string, e registry.Envelope, s registry.SendCallback,
) (registry.PendingSend, error) {
	f := b.sim.fateOf("post", b.pod.id, pod, string(e.Kind), e.Session, nameOf(e.CallID))
	p := &simPosted{callback: s}
	wait := f.span(50*time.Microsecond, time.Millisecond)
	if time.Now().Before(b.sim.weather().slow) {
		wait += f.span(0, time.Second)
	}
	go func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			p.leave(func() error { return registry.StoreUnavailable("send", ctx.Err()).With(registry.DispatchedNo) })
			return
		}
		if b.pod.pass(f) {
			p.leave(func() error { return b.leave(f, pod, e) })
		}
	}()
	return p, nil
}

// simPosted is a message that waits to leave.
type simPosted struct {
	callback registry.SendCallback

	mu   sync.Mutex
	over bool // it has left, or was taken back
}

// leave sends the message and tells what came of it, unless the message was taken back. Whoever takes it back at the
// same instant finds either all of that done or nothing.
func (p *simPosted) leave(send func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over = true
		p.callback.Sent(send())
	}
}

// Cancel implements registry.PendingSend.
func (p *simPosted) Cancel() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := !p.over
	p.over = true
	return waiting
}

// leave sends an envelope that is about to leave.
func (b *simBus) leave(f *fate, pod string, e registry.Envelope) error {
	deliver := func() { _ = b.inner.Send(context.Background(), pod, e) } // a pod that has gone gets nothing
	if now, d := time.Now(), b.sim.weather(); now.Before(d.away) || now.Before(d.frozen) ||
		now.Before(d.unsure) && f.chance(0.2) {
		switch f.pick(3) {
		case 0:
			b.carry(f, pod, "envelope", string(e.Kind)+" "+nameOf(e.CallID), true, deliver)
			fallthrough
		case 1:
			return registry.StoreUnavailable("send", errAway).With(registry.DispatchedUnknown)
		default:
			return registry.StoreUnavailable("send", errAway).With(registry.DispatchedNo)
		}
	}
	if !b.sim.listens(pod) {
		return registry.ErrNoReceiver
	}
	b.carry(f, pod, "envelope", string(e.Kind)+" "+nameOf(e.CallID), true, deliver)
	return nil
}

// pushesFor is how long an answer that cannot be pushed is tried again.
const pushesFor = 5 * time.Second

// Reply implements registry.Bus. What says that nothing was dispatched never comes twice.
func (b *simBus) Reply(pod string, r registry.Reply) error {
	f := b.sim.fateOf("reply", b.pod.id, pod, nameOf(r.CallID), what(r))
	if b.pod.isDead() {
		return registry.StoreUnavailable("reply", errDead)
	}
	d := b.sim.weather()
	wait := time.Duration(0)
	for _, until := range []time.Time{d.away, d.frozen} {
		wait = max(wait, time.Until(until))
	}
	if wait > pushesFor {
		return nil
	}
	push := func() {
		once := r.Err != nil && r.Err.Dispatched == registry.DispatchedNo
		b.carry(f, pod, "reply", what(r)+" "+nameOf(r.CallID), !once, func() { _ = b.inner.Reply(pod, r) }) // as above
	}
	send := func() {
		if wait <= 0 {
			push()
			return
		}
		time.AfterFunc(wait+f.span(0, 50*time.Millisecond), func() {
			if !b.pod.isDead() {
				push()
			}
		})
	}
	if b.pod.isRunning() {
		send()
		return nil
	}
	go func() {
		if b.pod.pass(f) {
			send()
		}
	}()
	return nil
}

func what(r registry.Reply) string {
	switch {
	case r.Result != nil:
		return "result"
	case r.Err != nil:
		return "error " + string(r.Err.Code)
	case r.Answer != "":
		return r.Answer
	case r.Wake:
		return "wake"
	default:
		return "receipt"
	}
}

// nameOf is how a call or a ping is called in names of fates: ids of pings are random.
func nameOf(id string) string {
	if len(id) > 5 && id[:5] == "ping-" {
		return "ping"
	}
	return id
}

// carry has a message arrive. The network may lose it, be late with it, have others overtake it, or bring it twice if
// that may be.
func (b *simBus) carry(f *fate, to, kind, about string, mayDouble bool, deliver func()) {
	sim := b.sim
	wait := f.span(100*time.Microsecond, 2*time.Millisecond)
	ordered, copies := true, 1
	if time.Now().Before(sim.weather().badNet) {
		switch f.pick(8) {
		case 0:
			copies = 0
		case 1:
			wait += f.span(0, 3*time.Second)
		case 2:
			wait += f.span(0, 3*time.Second)
			ordered = false
		case 3:
			if mayDouble {
				copies = 2
			}
		}
	}
	link := b.pod.id + ">" + to + kind
	for n := range copies {
		at := time.Now().Add(wait)
		if n > 0 {
			at = at.Add(f.span(0, time.Second))
		} else if ordered {
			at = sim.inOrder(link, at, f.span(time.Microsecond, 20*time.Microsecond))
		}
		time.AfterFunc(time.Until(at), func() {
			if sim.tracing {
				sim.trace("%s %s from %s to %s", kind, about, b.pod.id, to)
			}
			if p := sim.podOf(to); p != nil {
				p.to(deliver)
			}
		})
	}
}

// link is the way of messages of one kind from one pod to another.
type link struct {
	sent   time.Time // when the last message left
	before time.Time // when the last one of those arrives that left earlier
	last   time.Time // when the last one of all arrives
}

// inOrder returns when a message arrives that would at a time, unless one that left earlier is later than that. Of
// those that leave at the same instant the order is not known.
func (s *simulation) inOrder(name string, at time.Time, gap time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[name]
	if l == nil {
		l = new(link)
		s.links[name] = l
	}
	if now := time.Now(); now.After(l.sent) {
		l.sent, l.before = now, l.last
	}
	if !at.After(l.before) {
		at = l.before.Add(gap)
	}
	l.last = latest(l.last, at)
	return at
}
