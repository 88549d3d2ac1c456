package routing_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// simStoreTimeout is how long a client of the store waits for an answer at most.
const simStoreTimeout = 2700 * time.Millisecond

// usualWait is longer than a store that is well takes for a command.
const usualWait = 2 * time.Millisecond

// simStore is the store as one pod reaches it: over a network, and sometimes not. What the pods do not use in a run is
// not there.
type simStore struct {
	registry.Store // nil
	sim            *simulation
	pod            *simPod
}

// DescribeConversations implements registry.ConversationIndex: there are none.
func (*simStore) DescribeConversations(
	_ context.Context, keys ...registry.Key,
) ([]registry.ConversationInfo, error) {
	return make([]registry.ConversationInfo, len(keys)), nil
}

// weather is what is broken of the store and the network: until when, and when the store was emptied the last time.
type weather struct {
	away, frozen, slow, unsure, badNet, emptied time.Time
}

// weather returns how it is now.
func (s *simulation) weather() weather {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sky
}

var errAway = errors.New("simulation: the store is away")

// asked is what becomes of one command.
type asked struct {
	wait   time.Duration // until it is carried out
	lost   bool          // it never is
	silent bool          // its answer is lost
}

// fateOfCommand decides by what is broken now.
func (s *simStore) fateOfCommand(f *fate) asked {
	d, now := s.sim.weather(), time.Now()
	a := asked{wait: f.span(100*time.Microsecond, time.Millisecond)}
	switch {
	case now.Before(d.frozen):
		a.wait += d.frozen.Sub(now) + f.span(0, 20*time.Millisecond)
		a.lost = f.chance(0.3)
	case now.Before(d.away):
		a.lost = true
		if f.chance(0.5) { // it is not refused but swallowed
			a.wait += simStoreTimeout
		}
	case now.Before(d.slow):
		a.wait += f.span(0, 2*time.Second)
	}
	if now.Before(d.unsure) && f.chance(0.4) {
		a.silent, a.lost = true, a.lost || f.chance(0.3)
	}
	return a
}

// answer carries a command out. A pod that stands still, or dies, while it waits may have changed the store all the
// same; so may one that has stopped waiting.
func answer[T any](ctx context.Context, s *simStore, op, about string, do func(*memory.Store) (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, registry.StoreUnavailable(op, err)
	}
	f := s.sim.fateOf("store", s.pod.id, op, about, askerOf(ctx))
	if !s.pod.pass(f) {
		return none, registry.StoreUnavailable(op, errDead)
	}
	a := s.fateOfCommand(f)
	if s.sim.tracing { // the arguments of trace are costly
		s.sim.trace("store %s is asked to %s %s: %+v", s.pod.id, op, about, a)
	}
	dies := f.chance(0.5) // together with its pod
	execute := func() (value T, err error) {
		if a.lost || dies && s.pod.isDead() {
			return none, registry.StoreUnavailable(op, errAway)
		}
		value, err = carryOut(s.sim, do)
		if s.sim.tracing {
			s.sim.trace("store %s %s %s: %v", s.pod.id, op, about, err)
		}
		if a.silent {
			err = registry.StoreUnavailable(op, errAway)
		}
		return value, err
	}
	var value T
	var err error
	if a.wait < usualWait { // the usual case, without a goroutine of its own
		time.Sleep(a.wait)
		value, err = execute()
	} else {
		value, err = within(ctx, s, op, a.wait, execute)
	}
	if !s.pod.pass(f) {
		return none, registry.StoreUnavailable(op, errDead)
	}
	return value, err
}

// within has a command carried out after wait, and waits for it as long as a client does.
func within[T any](
	ctx context.Context, s *simStore, op string, wait time.Duration, execute func() (T, error),
) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	time.AfterFunc(wait, func() {
		value, err := execute()
		done <- result{value, err}
	})
	limit := time.NewTimer(simStoreTimeout)
	defer limit.Stop()
	var why error
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		why = ctx.Err()
	case <-limit.C:
		why = context.DeadlineExceeded
	case <-s.pod.killed:
		why = errDead
	}
	var none T
	return none, registry.StoreUnavailable(op, why)
}

// carryOut has one command at a time change the store.
func carryOut[T any](sim *simulation, do func(*memory.Store) (T, error)) (T, error) {
	sim.commands.Lock()
	defer sim.commands.Unlock()
	return do(sim.memory)
}

// tell is answer for commands that only may fail.
func tell(ctx context.Context, s *simStore, op, about string, do func(*memory.Store) error) error {
	_, err := answer(ctx, s, op, about, func(m *memory.Store) (struct{}, error) { return struct{}{}, do(m) })
	return err
}

// empty loses all there is.
func (s *simulation) empty() {
	s.commands.Lock()
	s.memory = s.newMemory()
	s.commands.Unlock()
	s.mu.Lock()
	s.sky.emptied = time.Now()
	s.mu.Unlock()
	s.note(&s.book.wipes, time.Now())
}

// whole fails while the store may lack what pods hold.
func (s *simulation) whole() error {
	if e := s.weather().emptied; !e.IsZero() && time.Since(e) < simLease {
		return registry.StoreUnavailable("read", errors.New("simulation: emptied"))
	}
	return nil
}

func (s *simStore) Ping(context.Context) error { return nil }

func (s *simStore) Heartbeat(ctx context.Context, pod string) (bool, error) {
	return answer(ctx, s, "beat", "", func(m *memory.Store) (bool, error) { return m.Heartbeat(ctx, pod) })
}

func (s *simStore) Live(ctx context.Context) ([]string, error) {
	return answer(ctx, s, "live", "", func(m *memory.Store) ([]string, error) { return m.Live(ctx) })
}

func (s *simStore) Sweep(ctx context.Context) ([]registry.DeadPod, error) {
	return answer(ctx, s, "sweep", "", func(m *memory.Store) ([]registry.DeadPod, error) { return m.Sweep(ctx) })
}

func (s *simStore) Leave(ctx context.Context, pod string) error {
	return tell(ctx, s, "leave", "", func(m *memory.Store) error { return m.Leave(ctx, pod) })
}

func (s *simStore) Whole(ctx context.Context) error {
	return tell(ctx, s, "whole", "", func(*memory.Store) error { return s.sim.whole() })
}

func (s *simStore) Spend(ctx context.Context, tenant, name string, n int64, b registry.Budget) (time.Duration, error) {
	return answer(ctx, s, "spend", name,
		func(m *memory.Store) (time.Duration, error) { return m.Spend(ctx, tenant, name, n, b) })
}

func (s *simStore) AppendActivity(ctx context.Context, all []registry.Activity) error {
	all = slices.Clone(all) // the recorder uses its slice again
	return tell(ctx, s, "feed", "", func(m *memory.Store) error { return m.AppendActivity(ctx, all) })
}

func (s *simStore) FindCall(ctx context.Context, tenant, callID string) (registry.Record, error) {
	return answer(ctx, s, "find", callID,
		func(m *memory.Store) (registry.Record, error) { return m.FindCall(ctx, tenant, callID) })
}
