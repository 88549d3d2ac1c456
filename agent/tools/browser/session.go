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

// Session says whose a browser is: an agent session has one for each kind of context, so that a group does not find
// what its one trusted person is logged in to.
type Session struct {
	ID   agent.SessionID
	Kind agent.ContextKind
}

// SessionOf returns the session of a turn or call.
func SessionOf(sc agent.SessionContext) Session {
	return Session{ID: sc.ID(), Kind: cmp.Or(sc.Kind, agent.ContextMain)}
}

// seat is the place of one session, with its browser once that was started.
type seat struct {
	session Session
	place   *share.Grant
	turn    chan struct{} // holds a value while somebody uses the seat

	// The holder of the turn owns these.
	browser *chromium // nil: not started
	gone    bool      // the seat was given up: ask for a new one
	lost    error     // why the last browser ended, if it was not told to; nil: it was

	mu       sync.Mutex
	used     time.Time // when the turn was given back last
	running  *chromium // browser, for those who end it without the turn
	released bool      // no browser may be started any more
	idle     *time.Timer
}

func newSeat(s Session, place *share.Grant) *seat {
	return &seat{session: s, place: place, turn: make(chan struct{}, 1), used: time.Now()}
}

// take takes the turn, within ctx.
func (s *seat) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryTake takes the turn if nobody has it.
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

// lastUse is when the turn was given back last, long ago if no browser runs.
func (s *seat) lastUse() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return time.Time{}
	}
	return s.used
}

// set notes which browser runs, and reports whether it may.
func (s *seat) set(c *chromium) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released && c != nil {
		return false
	}
	s.browser, s.running = c, c
	return true
}

// interrupt ends the browser under whoever uses it, and lets no other start.
func (s *seat) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = true
	if s.running != nil {
		s.running.kill()
	}
}

// errEnded says that a browser was ended while it was used.
var errEnded = errors.New("the browser was ended: its session is over")

func busy(n int) error {
	return failure(fmt.Sprintf("all browsers that this tenant may have are in use (%d of all tenants, at most half of "+
		"them of one): stop one that is not needed any more, or try again in a minute", n))
}

// scale weighs all browsers of a pod at once: to read the list of processes costs as much for one browser as for all.
// It reads while there is a browser on it. It is safe for concurrent use.
type scale struct {
	weigh func() map[string]int64 // bytes of the processes of each profile, by its name

	mu      sync.Mutex
	loads   map[string]load // by the name of the profile
	stop    chan struct{}   // closed when the reader is to end
	stopped chan struct{}   // closed when it has ended
}

// load is a browser on a scale.
type load struct {
	most  int64           // bytes
	ended <-chan struct{} // closed when there is nothing to weigh any more
	heavy func()          // called once when it takes more than it may; it must not wait
}

func newScale(weigh func() map[string]int64) *scale {
	return &scale{weigh: weigh, loads: make(map[string]load)}
}

// put puts a browser on the scale. The first one starts the reader.
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

// takeOff takes a browser off the scale, whose heavy is not called any more. The last one ends the reader, and waits.
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

// look weighs once, without the lock: a browser that starts does not wait for it.
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

// runs reports whether a browser is still to be weighed.
func (l load) runs() bool {
	select {
	case <-l.ended:
		return false
	default:
		return l.heavy != nil
	}
}
