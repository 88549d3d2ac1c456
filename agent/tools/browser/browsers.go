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

// Browsers holds the browsers of one gateway. It is safe for concurrent use.
type Browsers struct {
	cfg     Config
	program string
	absent  error // why browsers are unavailable; nil: they are available
	folder  *folder
	scale   *scale

	places *share.Pool // limits the seats

	mu      sync.Mutex
	seats   map[Session]*seat
	closed  bool
	running sync.WaitGroup // goroutines that end browsers
}

// New returns the Browsers of a gateway. It removes leftovers of a killed process from cfg.Dir, and kills its
// processes. If Chromium is missing, New succeeds, but the tool is unavailable. The caller closes Browsers.
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

// Pools returns the use of the pool "browsers".
func (b *Browsers) Pools() map[string]share.Stats {
	return map[string]share.Stats{"browsers": b.places.Stats()}
}

// Registration registers the tool browser. If browsers are unavailable, the tool says so.
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

// Release ends the browsers of the matching agent sessions, and waits for their end.
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

// Close ends all browsers. It waits for their end until ctx ends. No browser starts afterwards.
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

// end ends the browser of a seat, even if it is in use, and gives the seat up.
func (b *Browsers) end(s *seat) {
	s.interrupt()
	_ = s.take(context.Background()) // its user gets an error immediately
	b.vacate(s)
	s.give()
}

// vacate gives up a seat whose turn the caller holds.
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

// forget releases the place of a seat. The caller holds the lock.
func (b *Browsers) forget(s *seat) {
	delete(b.seats, s.session)
	s.place.Release()
}

// seat takes the turn of a session's seat and returns it. Without a seat it returns nil, unless make is set.
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
		s.give() // given up meanwhile
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

// evict gives up the least recently used seat that is not in use and was not used for cfg.Evict. It only considers
// seats of the owner whose bound was met, because others make no room for it. The caller holds the lock.
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

// start starts the browser of a seat, unless it runs. The caller holds the turn.
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

// leave gives back the turn of a seat. It removes a crashed browser, and starts the idle timeout.
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

// armIdle gives the seat up after the idle timeout. The caller holds the turn.
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
			return // in use: leave arms the timer again
		}
		if !s.gone {
			b.vacate(s)
		}
		s.give()
	})
}
