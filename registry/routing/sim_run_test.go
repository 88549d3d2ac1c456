package routing_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// simulation is one run of a plan: a fleet, all it talks to, and what breaks it, in one bubble of package synctest. All
// that happens, happens at an instant of its own (see fates), so one seed is one course of events.
type simulation struct {
	fates fates
	plan  []step
	began time.Time
	skew  time.Duration // the clock of the store is ahead of that of the pods

	wires    *memory.Store // of which only the buses are used
	commands sync.Mutex    // held while a command is carried out
	memory   *memory.Store // what the pods share; guarded by commands

	devices []*simDevice
	work    sync.WaitGroup // everything that must end

	mu           sync.Mutex
	sky          weather
	book         simBook
	plans        map[string]callPlan
	times        map[nameHash]int // events of a name so far
	links        map[string]*link
	slots        [simPods]*simPod
	incarnations [simPods]int
	pods         []*simPod // all there ever were
	over         bool
	tracing      bool
	traced       []string
}

// simRun is what came of a run.
type simRun struct {
	violations []violation
	trace      []string
	requests   int
	answered   int
}

// simulate runs a plan. A run that hangs, or leaves goroutines behind, breaks a rule, too.
func simulate(t *testing.T, seed uint64, plan []step, tracing bool) (r simRun) {
	s := &simulation{fates: fates(seed), plan: plan, tracing: tracing}
	defer func() {
		if p := recover(); p != nil {
			s.violate("hangs", "", "%v", p)
		}
		r.violations, r.trace = s.book.violations, s.traced
		for _, q := range s.book.requests {
			r.requests++
			if q.heard != nil && q.heard.answered {
				r.answered++
			}
		}
	}()
	synctest.Test(t, func(*testing.T) { s.run() })
	return r
}

func (s *simulation) newMemory() *memory.Store {
	return memory.New(memory.Options{
		Limits: registry.Limits{SessionTTL: simTTL, PodLease: simLease}, Now: s.clock,
	})
}

func (s *simulation) run() {
	s.began = time.Now()
	s.skew = s.fates.of("skew").span(-time.Hour, time.Hour)
	s.times, s.links, s.plans = make(map[nameHash]int), make(map[string]*link), make(map[string]callPlan)
	s.book.arrivals, s.book.runs = make(map[string][]arrival), make(map[string][]string)
	s.book.byID, s.book.handed = make(map[string]*request), make(map[string][]*simConn)
	s.book.seen, s.book.counted = make(map[string]registry.Record), make(map[string]ack)
	s.wires, s.memory = memory.New(memory.Options{}), s.newMemory()
	s.newDevices()
	for slot := range simPods {
		s.start(slot)
	}
	for _, d := range s.devices {
		d.connectSoon(100*time.Millisecond, time.Second)
	}
	for _, st := range s.plan {
		time.Sleep(time.Until(s.began.Add(st.at)))
		s.trace("STEP %v", st)
		s.do(st)
		synctest.Wait()
		s.checkStep()
	}
	s.heal()
	s.settle()
	s.checkEnd()
	s.close()
}

// heal ends all that is broken.
func (s *simulation) heal() {
	s.trace("HEAL")
	s.mu.Lock()
	s.sky = weather{emptied: s.sky.emptied}
	s.mu.Unlock()
	for i, d := range s.devices {
		switch {
		case i >= simDevices:
			d.leave(0)
		default:
			d.comeBack()
		}
	}
}

// settle waits until nothing is left to happen: no pod stands still, none is missing, no call can be waited for.
func (s *simulation) settle() {
	quiet := time.Now().Add(simTTL/3 + 4*time.Second) // every pod has compared its sessions with the store
	s.mu.Lock()
	for _, r := range s.book.requests {
		from := r.asked
		for _, sp := range s.book.stops { // which hold up a request
			if sp.pod == r.pod {
				from = latest(from, sp.to)
			}
		}
		quiet = latest(quiet, from.Add(r.plan.timeout+4*time.Second))
	}
	for _, sp := range s.book.stops {
		quiet = latest(quiet, sp.to.Add(10*time.Second))
	}
	for _, sp := range s.book.kills {
		quiet = latest(quiet, sp.to.Add(24*time.Second)) // it is started anew after 12 s at most
	}
	for _, sp := range s.book.storms {
		quiet = latest(quiet, sp.to.Add(simTTL/3+4*time.Second)) // what was asked in it may happen at its end
	}
	s.mu.Unlock()
	time.Sleep(time.Until(quiet))
	for slot := range simPods { // a pod that was drained slowly may not be there yet
		for i := 0; i < 100 && s.slotOf(slot) == nil; i++ {
			time.Sleep(200 * time.Millisecond)
		}
	}
	synctest.Wait()
}

func (s *simulation) slotOf(slot int) *simPod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[slot]
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// close ends the fleet as an operator does, and waits for all of it.
func (s *simulation) close() {
	s.mu.Lock()
	s.over = true
	slots := s.slots
	s.mu.Unlock()
	for _, d := range s.devices {
		d.leave(0)
	}
	time.Sleep(time.Second)
	for _, p := range slots {
		if p != nil {
			s.work.Go(p.drain)
		}
	}
	s.work.Wait()
	time.Sleep(10 * time.Second) // timers of connections that came to nothing
}

func (s *simulation) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

func (s *simulation) planOf(nonce string) callPlan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plans[nonce]
}

// trace notes what happens, if somebody wants to read it.
func (s *simulation) trace(format string, args ...any) {
	if s.tracing {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.traceLocked(format, args...)
	}
}

func (s *simulation) traceLocked(format string, args ...any) {
	if s.tracing {
		s.traced = append(s.traced, fmt.Sprintf("%14.9f ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
	}
}
