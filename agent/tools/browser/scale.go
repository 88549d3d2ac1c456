package browser

import (
	"sync"
	"time"
)

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
