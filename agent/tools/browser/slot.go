package browser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
)

// Session identifies the owner of a browser. An agent session has one browser per kind of context, so that a group
// cannot use the logins of its one trusted member.
type Session struct {
	ID   agent.SessionID
	Kind agent.ContextKind
}

// SessionOf returns the session of a turn or call.
func SessionOf(sc agent.SessionContext) Session {
	return Session{ID: sc.ID(), Kind: cmp.Or(sc.Kind, agent.ContextMain)}
}

func (s Session) owner() share.Owner {
	return share.Owner{Tenant: s.ID.Tenant, Identity: s.ID.Identity}
}

// slot is the place of one session among the browsers, with its browser once that is started.
type slot struct {
	session Session
	grant   *share.Grant
	turn    chan struct{} // holds a value while the slot is in use

	// Only the holder of the turn may access these.
	browser *chromium // nil: not started
	closed  bool      // the slot was closed; callers must get a new one
	lost    error     // why the last browser ended by itself; nil: it did not
	uses    int       // how often acquireSlot took the turn
	idle    *time.Timer

	mu       sync.Mutex
	used     time.Time // when the turn was last released
	running  *chromium // same as browser, for callers without the turn
	released bool      // no further browser may start
}

func newSlot(s Session, place *share.Grant) *slot {
	return &slot{session: s, grant: place, turn: make(chan struct{}, 1), used: time.Now()}
}

// acquire waits for the turn until ctx ends.
func (s *slot) acquire(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryAcquire takes the turn if it is free.
func (s *slot) tryAcquire() bool {
	select {
	case s.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// release ends the turn.
func (s *slot) release() {
	s.mu.Lock()
	s.used = time.Now()
	s.mu.Unlock()
	<-s.turn
}

// lastUse returns when the turn was last released. It returns the zero time if no browser runs.
func (s *slot) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return time.Time{}
	}
	return s.used
}

// set sets the running browser. It returns false if the slot is released and may start none.
func (s *slot) set(c *chromium) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released && c != nil {
		return false
	}
	s.browser, s.running = c, c
	return true
}

// dropLost forgets a browser that has ended by itself, and keeps why. The caller holds the turn.
func (s *slot) dropLost() bool {
	if s.browser == nil || !s.browser.lost() {
		return false
	}
	why := s.browser.endReason()
	s.browser.close()
	s.set(nil)
	s.lost = why
	return true
}

// interrupt kills the browser, even if it is in use, and prevents further starts.
func (s *slot) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	if s.running != nil {
		s.running.kill()
	}
}

// errEnded is the error of calls whose browser was ended because their session is over.
var errEnded = errors.New("the browser was stopped: its session has ended")

func busy(n int) error {
	return failure(fmt.Sprintf("all browsers of this tenant are in use (of %d in total, a tenant may use half): "+
		"stop an unused one, or try again in a minute", n))
}
