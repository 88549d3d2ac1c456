package ws

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/internal/share"
)

// pingCount counts pings by the moment they are written.
type pingCount struct {
	mu sync.Mutex
	at map[time.Time]int
}

func (p *pingCount) add() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[time.Now()]++
}

// take returns how many there were, and how many at once at most, and begins anew.
func (p *pingCount) take() (all, atOnce int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.at {
		all, atOnce = all+n, max(atOnce, n)
	}
	p.at = make(map[time.Time]int)
	return all, atOnce
}

// promptWriter writes at once.
type promptWriter struct {
	out   *outbox
	pings *pingCount
}

func (promptWriter) holdUnsent(int) (*share.Grant, error) { return nil, nil }

func (w promptWriter) wakeWriter() {
	w.pings.add()
	go func() {
		for ok := true; ok; {
			_, ok = w.out.next()
		}
	}()
}

// However devices come, and however long the process stands still, pings never come in crowds that would hold up a
// call.
func TestPingsComeInSmallNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices, crowd, every = 5000, 64, 20 * time.Second
		pings := &pingCount{at: make(map[time.Time]int)}
		s := &Server{cfg: Config{PingInterval: every}, started: time.Now()}
		for range devices {
			c := &conn{server: s}
			c.out.writer, c.out.open = promptWriter{&c.out, pings}, true
			s.track(c)
		}
		s.pinger.Stop() // all came at once; now the process stands still for longer than an interval
		time.Sleep(every + every/2)
		s.pinger.Reset(0)
		for range 3 {
			time.Sleep(every)
			all, atOnce := pings.take()
			if all < devices-devices/10 || all > devices+devices/10 || atOnce > crowd {
				t.Errorf("%d pings of %d devices in one interval, up to %d at once", all, devices, atOnce)
			}
		}
		s.pinger.Stop()
	})
}
