package shell

import (
	"context"
	"slices"
	"sync"

	"github.com/farhand/farhand/agent"
)

// slots bounds how many commands run at once on this pod: of one agent session, of one tenant, and of all. Others wait.
type slots struct {
	mu   sync.Mutex
	used map[slotKey]*slot
}

// slotKey says whose commands are counted.
type slotKey struct {
	all     bool
	tenant  string
	session agent.SessionID
}

type slot struct {
	running, waiting int
	freed            chan struct{} // closed, and made anew, when a command has ended
}

func newSlots() *slots { return &slots{used: map[slotKey]*slot{}} }

// takeAll waits until a command of a session may run: fewer than perSession of it run (zero: any number), than half of
// perPod of its tenant, and than perPod of all. The caller calls done once. The error is the cause of
// ctx.
func (s *slots) takeAll(ctx context.Context, id agent.SessionID, perSession, perPod int) (done func(), err error) {
	var held []func()
	done = func() {
		for _, free := range slices.Backward(held) {
			free()
		}
	}
	for _, bound := range []struct {
		key  slotKey
		most int
	}{
		{slotKey{session: id}, perSession},
		{slotKey{tenant: id.Tenant}, max(perPod/2, 1)},
		{slotKey{all: true}, perPod},
	} {
		free, err := s.take(ctx, bound.key, bound.most)
		if err != nil {
			done()
			return nil, err
		}
		held = append(held, free)
	}
	return done, nil
}

// take waits until fewer than most commands run that are counted under a key; zero: any number. The caller calls done
// once.
func (s *slots) take(ctx context.Context, id slotKey, most int) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.used[id]
	if u == nil {
		u = &slot{freed: make(chan struct{})}
		s.used[id] = u
	}
	for most > 0 && u.running >= most {
		freed := u.freed
		u.waiting++
		s.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		s.mu.Lock()
		u.waiting--
		if ctx.Err() != nil {
			s.forgetLocked(id, u)
			return nil, context.Cause(ctx)
		}
	}
	u.running++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		u.running--
		close(u.freed)
		u.freed = make(chan struct{})
		s.forgetLocked(id, u)
	}, nil
}

func (s *slots) forgetLocked(id slotKey, u *slot) {
	if u.running == 0 && u.waiting == 0 {
		delete(s.used, id)
	}
}
