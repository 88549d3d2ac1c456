package browser

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
)

// Browsers is the browsers of one gateway. It is safe for concurrent use.
type Browsers struct {
	cfg     Config
	program string
	absent  error // why there can be no browser here
	folder  *folder
	scale   *scale

	places *share.Pool // of seats

	mu      sync.Mutex
	seats   map[Session]*seat
	closed  bool
	running sync.WaitGroup // what ends browsers on its own
}

// New returns the Browsers of a gateway. What a process that was killed has left in cfg.Dir is removed, processes
// included. A machine without Chromium is no error: the tool is unavailable then. The caller closes Browsers.
func New(cfg Config) (*Browsers, error) {
	if cfg.Dir == "" {
		return nil, errors.New("browser: a folder for profiles is needed")
	}
	b := &Browsers{cfg: cfg.orDefaults(), seats: make(map[Session]*seat)}
	most := int64(b.cfg.MaxBrowsers)
	b.places = share.New(share.Bounds{Pod: most, Identity: max(most/2, 1)})
	if b.program, b.absent = find(b.cfg); b.absent != nil {
		return b, nil
	}
	if b.folder, b.absent = newFolder(b.cfg.Dir); b.absent == nil {
		b.scale = newScale(func() map[string]int64 { return memoryBelow(b.folder.path) })
	}
	return b, nil
}

// Pools returns how full the pool of browsers is.
func (b *Browsers) Pools() map[string]share.Stats {
	return map[string]share.Stats{"browsers": b.places.Stats()}
}

// Registration offers the tool browser. Where there can be no browser, the tool says so.
func (b *Browsers) Registration() agent.Registration {
	keeps := agent.Keeps{Kind: "browser", Lost: "The pod that kept the browser is gone, and what the browser had " +
		"open is lost. A new one begins with the next page that is opened."}
	return agent.Registration{
		Names: []string{"browser"}, Keeps: keeps,
		Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{tool{browsers: b, session: SessionOf(sc)}}
		},
	}
}

// Release ends the browsers of the agent sessions that are meant, and waits for them.
func (b *Browsers) Release(meant func(agent.SessionID) bool) {
	var held []*seat
	b.mu.Lock()
	for session, s := range b.seats {
		if meant(session.ID) {
			held = append(held, s)
		}
	}
	b.mu.Unlock()
	for _, s := range held {
		b.end(s)
	}
}

// Close ends all browsers and waits for them, within ctx. Nothing starts any more.
func (b *Browsers) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	for _, s := range b.seats {
		b.running.Go(func() { b.end(s) })
	}
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.running.Wait()
		if first && b.folder != nil {
			b.folder.close()
		}
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// end ends the browser of a seat, whoever uses it, and gives the seat up.
func (b *Browsers) end(s *seat) {
	s.interrupt()
	_ = s.take(context.Background()) // its user hears at once that the browser is no more
	b.vacate(s)
	s.give()
}

// vacate gives up a seat whose turn the caller has.
func (b *Browsers) vacate(s *seat) {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.browser != nil {
		s.browser.close()
		s.set(nil)
	}
	s.gone = true
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seats[s.session] == s {
		b.forget(s)
	}
}

// forget gives up the place of a seat. The caller has the lock.
func (b *Browsers) forget(s *seat) {
	delete(b.seats, s.session)
	s.place.Release()
}

// seat returns the seat of a session with its turn taken, or nil if it has none and none is to be made.
func (b *Browsers) seat(ctx context.Context, session Session, make bool) (*seat, error) {
	for {
		s, err := b.findSeat(session, make)
		if s == nil || err != nil {
			return nil, err
		}
		if err := s.take(ctx); err != nil {
			return nil, err
		}
		if !s.gone {
			return s, nil
		}
		s.give() // given up in the meantime
	}
}

func (b *Browsers) findSeat(session Session, make bool) (*seat, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errEnded
	}
	s := b.seats[session]
	if s != nil || !make {
		return s, nil
	}
	owner := share.Owner{Tenant: session.ID.Tenant, Identity: session.ID.Identity}
	place, err := b.places.Try(owner, 1)
	if full, ok := errors.AsType[*share.FullError](err); ok && b.evict(owner, full.Bound) {
		place, err = b.places.Try(owner, 1)
	}
	if err != nil {
		return nil, busy(b.cfg.MaxBrowsers)
	}
	s = newSeat(session, place)
	b.seats[session] = s
	return s, nil
}

// evict gives up the seat that was not used for the longest time, and for long enough, of those that are not in use
// now. It is one of the owner whose bound was met: nothing else makes room for it. The caller has the lock.
func (b *Browsers) evict(by share.Owner, met share.Bound) bool {
	var idle []*seat
	for _, s := range b.seats {
		if met != share.Pod && s.session.ID.Tenant != by.Tenant ||
			met == share.Identity && s.session.ID.Identity != by.Identity {
			continue
		}
		if time.Since(s.lastUse()) >= b.cfg.Evict {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b *seat) int { return a.lastUse().Compare(b.lastUse()) })
	for _, s := range idle {
		if s.tryTake() {
			b.forget(s)
			b.running.Go(func() { b.vacate(s); s.give() })
			return true
		}
	}
	return false
}

// start starts the browser of a seat whose turn the caller has, unless it runs.
func (b *Browsers) start(ctx context.Context, s *seat) error {
	if s.browser != nil {
		return nil
	}
	c, err := b.launch(ctx)
	if err != nil {
		return err
	}
	if !s.set(c) {
		c.close()
		return errEnded
	}
	s.lost = nil
	return nil
}

// leave gives the turn of a seat back. A browser that has crashed is cleared away, and one that is not used from now on
// ends after a while.
func (b *Browsers) leave(s *seat) {
	if s.browser != nil && s.browser.lost() {
		fate := s.browser.fate()
		s.browser.close()
		s.set(nil)
		s.lost = fate
	}
	if !s.gone {
		b.armIdle(s)
	}
	s.give()
}

// armIdle has a seat given up when it was not used for a while. The caller has the turn.
func (b *Browsers) armIdle(s *seat) {
	if s.idle != nil {
		s.idle.Reset(b.cfg.Idle)
		return
	}
	s.idle = time.AfterFunc(b.cfg.Idle, func() {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return
		}
		b.running.Add(1)
		b.mu.Unlock()
		defer b.running.Done()
		if !s.tryTake() {
			return // in use: leaving it arms the timer again
		}
		if !s.gone {
			b.vacate(s)
		}
		s.give()
	})
}
