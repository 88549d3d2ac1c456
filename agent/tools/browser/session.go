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

// slot is the place of one session among the browsers, with its browser once that is started.
type slot struct {
	session Session
	grant   *share.Grant
	turn    chan struct{} // holds a value while the slot is in use

	// Only the holder of the turn may access these.
	browser *chromium // nil: not started
	closed  bool      // the slot was closed; callers must get a new one
	lost    error     // why the last browser ended by itself; nil: it did not

	mu       sync.Mutex
	used     time.Time // when the turn was last released
	running  *chromium // same as browser, for callers without the turn
	released bool      // no further browser may start
	idle     *time.Timer
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
var errEnded = errors.New("the browser was ended: its session is over")

func busy(n int) error {
	return failure(fmt.Sprintf("all browsers that this tenant may have are in use (%d of all tenants, at most half of "+
		"them of one): stop one that is not needed any more, or try again in a minute", n))
}

// memoryWatch measures the memory of all browsers of a pod together, because listing the processes costs the same for
// one browser as for all. Its reader goroutine runs while there is a browser. It is safe for concurrent use.
type memoryWatch struct {
	measure func() map[string]int64 // memory of each profile's processes in bytes, by profile name

	mu       sync.Mutex
	browsers map[string]watched // by profile name
	stop     chan struct{}      // closed to stop the reader
	stopped  chan struct{}      // closed when the reader has stopped
}

// watched is a browser whose memory is measured.
type watched struct {
	limit    int64           // limit in bytes
	ended    <-chan struct{} // closed when the browser has ended
	exceeded func()          // called once when the limit is exceeded; must not block
}

func newMemoryWatch(weigh func() map[string]int64) *memoryWatch {
	return &memoryWatch{measure: weigh, browsers: make(map[string]watched)}
}

// add adds a browser. The first one starts the reader.
func (s *memoryWatch) add(profile string, l watched) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.browsers[profile] = l
	if len(s.browsers) > 1 {
		return
	}
	s.stop, s.stopped = make(chan struct{}), make(chan struct{})
	go s.read(s.stop, s.stopped)
}

// remove removes a browser; its exceeded is not called afterwards. For the last one, remove stops the reader and waits
// for it.
func (s *memoryWatch) remove(profile string) {
	s.mu.Lock()
	if _, on := s.browsers[profile]; !on {
		s.mu.Unlock()
		return
	}
	delete(s.browsers, profile)
	last, stop, stopped := len(s.browsers) == 0, s.stop, s.stopped
	s.mu.Unlock()
	if last {
		close(stop)
		<-stopped
	}
}

func (s *memoryWatch) read(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			s.check()
		}
	}
}

// check measures once. It measures without the lock, so that a starting browser does not wait.
func (s *memoryWatch) check() {
	if !s.hasRunning() {
		return
	}
	weights := s.measure()
	s.mu.Lock()
	defer s.mu.Unlock()
	for profile, l := range s.browsers {
		if l.runs() && weights[profile] > l.limit {
			l.exceeded()
			l.exceeded = nil
			s.browsers[profile] = l
		}
	}
}

func (s *memoryWatch) hasRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.browsers {
		if l.runs() {
			return true
		}
	}
	return false
}

// runs reports whether the browser still has to be measured.
func (l watched) runs() bool {
	select {
	case <-l.ended:
		return false
	default:
		return l.exceeded != nil
	}
}
