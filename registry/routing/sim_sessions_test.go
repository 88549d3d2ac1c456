package routing_test

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// What the pods ask of sessions, and the rule that is looked at with every write: one of a claim that is not the
// current one changes nothing.

func (s *simStore) Claim(ctx context.Context, claimed registry.Session) (registry.Claim, error) {
	return answer(ctx, s, "claim", claimed.Key.Session, func(m *memory.Store) (registry.Claim, error) {
		before, err := m.Entry(ctx, claimed.Key)
		c, failure := m.Claim(ctx, claimed)
		if err == nil && failure == nil && before.Session.AskFirst() &&
			claimed.Generation != before.Session.Generation && claimed.Generation != registry.AnyHolder {
			s.sim.violate("claim", "", "%s took %s from %s without asking", s.pod.id, claimed.Key.Session,
				before.Session.Pod)
		}
		return c, failure
	})
}

// fenced carries out a write of a claim.
func (s *simStore) fenced(
	ctx context.Context, op string, claim registry.Session, write func(*memory.Store) error,
) error {
	return tell(ctx, s, op, claim.Key.Session, func(m *memory.Store) error {
		before, err := m.Entry(ctx, claim.Key)
		failure := write(m)
		if op == "restore" && before.Session.Pod == claim.Pod && before.Session.Generation == claim.Generation+1 {
			return failure // it had been restored before, and its pod did not hear so
		}
		if op == "restore" && before.Session.Generation <= claim.Generation {
			return failure // of two that restore what was lost the newer one has it
		}
		if err == nil && (before.Session.Pod != claim.Pod || before.Session.Generation != claim.Generation) {
			after, err := m.Entry(ctx, claim.Key)
			switch {
			case err != nil:
				s.sim.violate("fence", "", "%s of %s by %s removed the claim of %s", op, claim.Key.Session, claim.Pod,
					before.Session.Pod)
			case after.Session.Generation != before.Session.Generation || len(after.Tools) != len(before.Tools) ||
				after.Session.DeviceID != before.Session.DeviceID:
				s.sim.violate("fence", "", "%s of %s by %s changed what %s had written", op, claim.Key.Session,
					claim.Pod, before.Session.Pod)
			case failure == nil && op != "release":
				s.sim.violate("fence", "", "%s of %s by %s was taken, while %s had it", op, claim.Key.Session,
					claim.Pod, before.Session.Pod)
			}
		}
		return failure
	})
}

func (s *simStore) Restore(ctx context.Context, e registry.Entry) (registry.Session, error) {
	restored := make(chan registry.Session, 1)
	err := s.fenced(ctx, "restore", e.Session, func(m *memory.Store) error {
		session, err := m.Restore(ctx, e)
		restored <- session
		return err
	})
	if err != nil {
		return registry.Session{}, err
	}
	return <-restored, nil
}

func (s *simStore) Update(ctx context.Context, session registry.Session) error {
	return s.fenced(ctx, "update", session, func(m *memory.Store) error { return m.Update(ctx, session) })
}

func (s *simStore) SetTools(ctx context.Context, session registry.Session, tools []registry.ToolSpec) error {
	return s.fenced(ctx, "tools", session, func(m *memory.Store) error { return m.SetTools(ctx, session, tools) })
}

func (s *simStore) Release(ctx context.Context, session registry.Session, back time.Duration) (bool, error) {
	released := make(chan bool, 1)
	err := s.fenced(ctx, "release", session, func(m *memory.Store) error {
		was, err := m.Release(ctx, session, back)
		released <- was
		return err
	})
	if err != nil {
		return false, err
	}
	return <-released, nil
}

func (s *simStore) Forget(registry.Entry) func(context.Context) error { // the simulated store has no indexes
	return func(context.Context) error { return nil }
}

func (s *simStore) Refresh(ctx context.Context, entries []registry.Entry) (missing, lost []registry.Key, err error) {
	type keys struct{ missing, lost []registry.Key }
	k, err := answer(ctx, s, "refresh", "", func(m *memory.Store) (keys, error) {
		missing, lost, err := m.Refresh(ctx, entries)
		return keys{missing, lost}, err
	})
	return k.missing, k.lost, err
}

func (s *simStore) Entry(ctx context.Context, key registry.Key) (registry.Entry, error) {
	return answer(ctx, s, "entry", key.Session, func(m *memory.Store) (registry.Entry, error) {
		e, err := m.Entry(ctx, key)
		if errors.Is(err, registry.CodeSessionNotFound) && s.sim.whole() != nil {
			err = s.sim.whole()
		}
		return e, err
	})
}

func (s *simStore) List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error) {
	type page struct {
		entries []registry.Entry
		next    *registry.Cursor
	}
	p, err := answer(ctx, s, "list", q.DeviceID, func(m *memory.Store) (page, error) {
		entries, next, err := m.List(ctx, q)
		return page{entries, next}, err
	})
	return p.entries, p.next, err
}

func (s *simStore) Awaited(ctx context.Context, q registry.Query) ([]registry.Awaited, error) {
	return answer(ctx, s, "await", q.SessionID,
		func(m *memory.Store) ([]registry.Awaited, error) { return m.Awaited(ctx, q) })
}

func (s *simStore) Version(ctx context.Context, tenant string) (string, error) {
	return answer(ctx, s, "version", "", func(m *memory.Store) (string, error) { return m.Version(ctx, tenant) })
}

// listed returns the sessions that are to be seen now, by their names, with the pods that have them.
func (s *simulation) listed() map[string]string {
	s.commands.Lock()
	defer s.commands.Unlock()
	// it never fails
	entries, _, _ := s.memory.List(context.Background(), registry.Query{Tenant: simTenant, Limit: 10 * simDevices})
	pods := make(map[string]string)
	for _, e := range entries {
		pods[e.Session.Key.Session] = e.Session.Pod
	}
	return pods
}

// clock is the clock of the store, which is not that of the pods.
func (s *simulation) clock() time.Time { return time.Now().Add(s.skew) }
