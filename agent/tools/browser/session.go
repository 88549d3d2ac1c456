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

// seat is the slot of one session, with its browser once that is started.
type seat struct {
	session Session
	place   *share.Grant
	turn    chan struct{} // holds a value while the seat is in use

	// Only the holder of the turn may access these.
	browser *chromium // nil: not started
	gone    bool      // the seat was given up; callers must get a new one
	lost    error     // why the last browser ended by itself; nil: it did not

	mu       sync.Mutex
	used     time.Time // when the turn was last given back
	running  *chromium // same as browser, for callers without the turn
	released bool      // no further browser may start
	idle     *time.Timer
}

func newSeat(s Session, place *share.Grant) *seat {
	return &seat{session: s, place: place, turn: make(chan struct{}, 1), used: time.Now()}
}

// take waits for the turn until ctx ends.
func (s *seat) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryTake takes the turn if it is free.
func (s *seat) tryTake() bool {
	select {
	case s.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// give gives the turn back.
func (s *seat) give() {
	s.mu.Lock()
	s.used = time.Now()
	s.mu.Unlock()
	<-s.turn
}

// lastUse returns when the turn was last given back. It returns the zero time if no browser runs.
func (s *seat) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return time.Time{}
	}
	return s.used
}

// set sets the running browser. It returns false if the seat is released and may start none.
func (s *seat) set(c *chromium) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released && c != nil {
		return false
	}
	s.browser, s.running = c, c
	return true
}

// interrupt kills the browser, even if it is in use, and prevents further starts.
func (s *seat) interrupt() {
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

// scale measures the memory of all browsers of a pod together, because listing the processes costs the same for one
// browser as for all. Its reader goroutine runs while there is a browser. It is safe for concurrent use.
type scale struct {
	weigh func() map[string]int64 // memory of each profile's processes in bytes, by profile name

	mu      sync.Mutex
	loads   map[string]load // by profile name
	stop    chan struct{}   // closed to stop the reader
	stopped chan struct{}   // closed when the reader has stopped
}

// load is a browser whose memory is measured.
type load struct {
	most  int64           // limit in bytes
	ended <-chan struct{} // closed when the browser has ended
	heavy func()          // called once when the limit is exceeded; must not block
}

func newScale(weigh func() map[string]int64) *scale {
	return &scale{weigh: weigh, loads: make(map[string]load)}
}

// put adds a browser. The first one starts the reader.
func (s *scale) put(profile string, l load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads[profile] = l
	if len(s.loads) > 1 {
		return
	}
	s.stop, s.stopped = make(chan struct{}), make(chan struct{})
	go s.read(s.stop, s.stopped)
}

// takeOff removes a browser; its heavy is not called afterwards. For the last one, takeOff stops the reader and waits
// for it.
func (s *scale) takeOff(profile string) {
	s.mu.Lock()
	if _, on := s.loads[profile]; !on {
		s.mu.Unlock()
		return
	}
	delete(s.loads, profile)
	last, stop, stopped := len(s.loads) == 0, s.stop, s.stopped
	s.mu.Unlock()
	if last {
		close(stop)
		<-stopped
	}
}

func (s *scale) read(stop <-chan struct{}, stopped chan<- struct{}) {
	defer close(stopped)
	tick := time.NewTicker(weighEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			s.look()
		}
	}
}

// look measures once. It measures without the lock, so that a starting browser does not wait.
func (s *scale) look() {
	if !s.anyRuns() {
		return
	}
	weights := s.weigh()
	s.mu.Lock()
	defer s.mu.Unlock()
	for profile, l := range s.loads {
		if l.runs() && weights[profile] > l.most {
			l.heavy()
			l.heavy = nil
			s.loads[profile] = l
		}
	}
}

func (s *scale) anyRuns() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.loads {
		if l.runs() {
			return true
		}
	}
	return false
}

// runs reports whether the browser still has to be measured.
func (l load) runs() bool {
	select {
	case <-l.ended:
		return false
	default:
		return l.heavy != nil
	}
}
