package shell

import (
	"context"
	"sync"

	"github.com/farhand/farhand/agent"
)

// slots bounds how many commands of one agent session run at once on this pod. Others wait.
type slots struct {
	mu   sync.Mutex
	used map[agent.SessionID]*slot
}

type slot struct {
	running, waiting int
	freed            chan struct{} // closed, and made anew, when a command has ended
}

func newSlots() *slots { return &slots{used: map[agent.SessionID]*slot{}} }

// take waits until fewer than most commands of a session run; zero: any number. The caller calls done once.
func (s *slots) take(ctx context.Context, id agent.SessionID, most int) (done func(), err error) {
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

func (s *slots) forgetLocked(id agent.SessionID, u *slot) {
	if u.running == 0 && u.waiting == 0 {
		delete(s.used, id)
	}
}
