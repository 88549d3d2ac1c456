package routing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Times of the pods of a run.
const (
	simLease = 10 * time.Second
	simTTL   = 30 * time.Second
	simDrain = 6 * time.Second // a pod that is told to stop
)

var errDead = errors.New("simulation: the pod is dead")

// simPod is one process. It can be killed, and can stand still: then nothing leaves it and nothing reaches it, while
// its own clock goes on. Whatever it would have done meanwhile it does when it goes on.
type simPod struct {
	sim  *simulation
	slot int
	id   string
	pod  *routing.Pod
	bus  *simBus

	incarnation int

	requests context.Context // of callers
	end      context.CancelCauseFunc
	calls    sync.WaitGroup // of callers
	killed   chan struct{}

	mu        sync.Mutex
	running   chan struct{} // closed while it runs
	held      []func()      // what waits until it goes on, in order
	releasing bool          // what was held is being worked off
	dead      bool
	closing   bool // takes no more requests and devices
	ending    bool // its background work ends
	conns     []*simConn
}

// startAfter starts the successor of a pod, unless there is one or all is over.
func (s *simulation) startAfter(p *simPod) {
	s.mu.Lock()
	free := s.incarnations[p.slot] == p.incarnation && !s.over
	s.mu.Unlock()
	if free {
		s.start(p.slot)
	}
}

// start starts a pod in a slot, and tries again while the store does not let it.
func (s *simulation) start(slot int) {
	s.mu.Lock()
	s.incarnations[slot]++
	n := s.incarnations[slot]
	s.mu.Unlock()
	p := &simPod{
		sim: s, slot: slot, incarnation: n, id: fmt.Sprintf("pod%d.%d", slot, n), killed: make(chan struct{}),
		running: make(chan struct{}),
	}
	close(p.running)
	p.requests, p.end = context.WithCancelCause(context.Background())
	p.bus = &simBus{sim: s, pod: p, inner: s.wires.NewBus()}
	cfg := routing.PodConfig{
		ID: p.id, Store: &simStore{sim: s, pod: p}, Bus: p.bus,
		Limits: registry.Limits{SessionTTL: simTTL, PodLease: simLease},
		Log:    slog.New(alarm{s}),
	}.Replayable(
		func(limit time.Duration) time.Duration { return s.fateOf("jitter", p.id).span(0, limit) },
		func() {
			if !p.isEnding() { // when its work has ended nobody adds any more
				// Not the next fate of its name: how often the recorder wakes for nothing is the scheduler's choice.
				at := time.Since(s.began).String()
				time.Sleep(s.fates.of("gather", p.id, at).span(time.Microsecond, 10*time.Microsecond))
			}
		},
	)
	pod, err := routing.NewPod(cfg)
	if err != nil {
		panic(err)
	}
	p.pod = pod
	s.mu.Lock()
	s.pods = append(s.pods, p)
	s.mu.Unlock()
	s.work.Go(func() {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := pod.Start(ctx)
			cancel()
			if err == nil {
				break
			}
			time.Sleep(s.fateOf("start", p.id).span(100*time.Millisecond, 200*time.Millisecond))
		}
		s.mu.Lock()
		s.slots[slot] = p
		s.mu.Unlock()
		s.trace("%s is there", p.id)
	})
}

// alarm is a log in which nothing but panics is read.
type alarm struct{ sim *simulation }

func (alarm) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (a alarm) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		text := r.Message
		r.Attrs(func(attr slog.Attr) bool {
			text += " " + attr.String()
			return true
		})
		a.sim.violate("panic", "", "%s", text)
	}
	return nil
}
func (a alarm) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a alarm) WithGroup(string) slog.Handler      { return a }

func (p *simPod) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *simPod) isRunning() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.running:
		return !p.dead
	default:
		return false
	}
}

func (p *simPod) isEnding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ending || p.dead
}

// open reports whether the pod takes requests and devices.
func (p *simPod) open() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.dead && !p.closing
}

// pass waits while the pod stands still. It reports false if the pod is dead.
func (p *simPod) pass(f *fate) bool {
	for {
		p.mu.Lock()
		running, dead := p.running, p.dead
		p.mu.Unlock()
		if dead {
			return false
		}
		select {
		case <-running:
			return true
		default:
		}
		select {
		case <-running:
			time.Sleep(f.span(10*time.Microsecond, 5*time.Millisecond)) // or all would go on at the same instant
		case <-p.killed:
			return false
		}
	}
}

// to has something reach the pod, from what leave it: now, or in order when it goes on, or never if it is dead.
func (p *simPod) to(do func()) {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return
	}
	hold := len(p.held) > 0 || p.releasing
	select {
	case <-p.running:
	default:
		hold = true
	}
	if hold {
		p.held = append(p.held, do)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	do()
}

func (p *simPod) from(do func()) { p.to(do) }

// unslot takes the pod out of its slot.
func (s *simulation) unslot(p *simPod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slots[p.slot] == p {
		s.slots[p.slot] = nil
	}
}

// near returns the pod of a slot, or of the next one that takes requests; nil if none does.
func (s *simulation) near(slot int) *simPod {
	s.mu.Lock()
	slots := s.slots
	s.mu.Unlock()
	for i := range simPods {
		if p := slots[(slot+i)%simPods]; p != nil && p.open() {
			return p
		}
	}
	return nil
}

func (s *simulation) podOf(id string) *simPod {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		if p.id == id {
			return p
		}
	}
	return nil
}

// listens reports whether somebody seems to listen for a pod.
func (s *simulation) listens(id string) bool {
	p := s.podOf(id)
	return p != nil && !p.isDead()
}
