package browser

import (
	"sync"
	"time"
)

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
