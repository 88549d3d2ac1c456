package browser

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
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
	memory  *memoryWatch

	pool    *share.Pool // limits the slots
	reading *share.Pool // limits the memory of snapshots and screenshots

	started, failed, lost atomic.Int64 // since the start

	mu      sync.Mutex
	slots   map[Session]*slot
	closed  bool
	running sync.WaitGroup // goroutines that end browsers
}

// New returns the Browsers of a gateway. It removes leftovers of a killed process from cfg.Dir, and kills its
// processes. If Chromium is missing, New succeeds, but the tool is unavailable. The caller closes Browsers.
func New(cfg Config) (*Browsers, error) {
	if cfg.Dir == "" {
		return nil, errors.New("browser: a folder for profiles is needed")
	}
	b := &Browsers{cfg: cfg.orDefaults(), slots: make(map[Session]*slot)}
	most := int64(b.cfg.MaxBrowsers)
	b.pool = share.New(share.Bounds{Pod: most, Identity: max(most/2, 1)})
	b.reading = share.New(share.Bounds{Pod: readingPool})
	if b.program, b.absent = find(b.cfg); b.absent != nil {
		return b, nil
	}
	if b.folder, b.absent = newFolder(b.cfg.Dir); b.absent == nil {
		b.memory = newMemoryWatch(func() map[string]int64 { return memoryBelow(b.folder.path) })
	}
	return b, nil
}

// Memory of pages that are being read.
const (
	readingPool = 64 << 20 // bytes on this pod, half of them of one tenant
	maxReading  = 16 << 20 // bytes of one snapshot or screenshot
)

// Pools returns the use of the pools "browsers" and "page_bytes".
func (b *Browsers) Pools() map[string]share.Stats {
	return map[string]share.Stats{"browsers": b.pool.Stats(), "page_bytes": b.reading.Stats()}
}

// Stats counts browsers since the start.
type Stats struct {
	Started, Failed int64 // starts that succeeded and that failed
	Lost            int64 // browsers that crashed or exceeded their memory limit
}

// Stats returns the counts.
func (b *Browsers) Stats() Stats { return Stats{b.started.Load(), b.failed.Load(), b.lost.Load()} }

// Registration registers the tool browser. If browsers are unavailable, the tool says so.
func (b *Browsers) Registration() agent.Registration {
	keeps := agent.PodState{Kind: "browser", Lost: "The pod with the browser is gone, and the browser's " +
		"pages are lost. Open a page to start a new browser."}
	return agent.Registration{
		Names: []string{"browser"}, State: keeps,
		Make: func(sc agent.SessionContext) []agent.Tool {
			return []agent.Tool{tool{browsers: b, session: SessionOf(sc)}}
		},
	}
}

// Release ends the browsers of the matching agent sessions, and waits for their end.
func (b *Browsers) Release(meant func(agent.SessionID) bool) {
	var ended []*slot
	b.mu.Lock()
	for session, s := range b.slots {
		if meant(session.ID) {
			ended = append(ended, s)
		}
	}
	b.mu.Unlock()
	for _, s := range ended {
		b.end(s)
	}
}

// Close ends all browsers. It waits for their end until ctx ends. No browser starts afterwards.
func (b *Browsers) Close(ctx context.Context) error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	for _, s := range b.slots {
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

// end ends the browser of a slot, even if it is in use, and closes the slot.
func (b *Browsers) end(s *slot) {
	s.interrupt()
	_ = s.acquire(context.Background()) // its user gets an error immediately
	b.closeSlot(s)
	s.release()
}

// closeSlot closes a slot whose turn the caller holds.
func (b *Browsers) closeSlot(s *slot) {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.browser != nil {
		s.browser.close()
		s.set(nil)
	}
	s.closed = true
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.slots[s.session] == s {
		b.removeSlot(s)
	}
}

// removeSlot removes a slot. The caller holds the lock.
func (b *Browsers) removeSlot(s *slot) {
	delete(b.slots, s.session)
	s.grant.Release()
}

// acquireSlot takes the turn of a session's slot and returns it. Without a slot it returns nil, unless make is set.
func (b *Browsers) acquireSlot(ctx context.Context, session Session, make bool) (*slot, error) {
	for {
		s, err := b.findSlot(session, make)
		if s == nil || err != nil {
			return nil, err
		}
		if err := s.acquire(ctx); err != nil {
			return nil, err
		}
		if !s.closed {
			s.uses++
			return s, nil
		}
		s.release() // closed meanwhile
	}
}

func (b *Browsers) findSlot(session Session, make bool) (*slot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errEnded
	}
	s := b.slots[session]
	if s != nil || !make {
		return s, nil
	}
	owner := session.owner()
	place, err := b.pool.Try(owner, 1)
	if full, ok := errors.AsType[*share.FullError](err); ok && b.evict(owner, full.Bound) {
		place, err = b.pool.Try(owner, 1)
	}
	if err != nil {
		return nil, busy(b.cfg.MaxBrowsers)
	}
	s = newSlot(session, place)
	b.slots[session] = s
	return s, nil
}

// evict closes the least recently used slot that is not in use and was not used for cfg.Evict. It only considers slots
// of the owner whose bound was met, because others make no room for it. The caller holds the lock.
func (b *Browsers) evict(by share.Owner, met share.Bound) bool {
	var idle []*slot
	for _, s := range b.slots {
		if met != share.Pod && s.session.ID.Tenant != by.Tenant ||
			met == share.Identity && s.session.ID.Identity != by.Identity {
			continue
		}
		if time.Since(s.lastUse()) >= b.cfg.Evict {
			idle = append(idle, s)
		}
	}
	slices.SortFunc(idle, func(a, b *slot) int { return a.lastUse().Compare(b.lastUse()) })
	for _, s := range idle {
		if s.tryAcquire() {
			b.removeSlot(s)
			b.running.Go(func() { b.closeSlot(s); s.release() })
			return true
		}
	}
	return false
}

// start starts the browser of a slot, unless it runs. The caller holds the turn.
func (b *Browsers) start(ctx context.Context, s *slot) error {
	if s.browser != nil {
		return nil
	}
	c, err := b.launch(ctx)
	if err != nil {
		b.failed.Add(1)
		return err
	}
	b.started.Add(1)
	if !s.set(c) {
		c.close()
		return errEnded
	}
	s.lost = nil
	return nil
}

// leave releases the turn of a slot. It removes a crashed browser, and starts the idle timeout.
func (b *Browsers) leave(s *slot) {
	if s.dropLost() {
		b.lost.Add(1)
	}
	if !s.closed {
		b.armIdle(s)
	}
	s.release()
}

// armIdle closes the slot after the idle timeout, unless it is used again before. The caller holds the turn.
func (b *Browsers) armIdle(s *slot) {
	if s.idle != nil {
		s.idle.Stop()
	}
	uses := s.uses
	s.idle = time.AfterFunc(b.cfg.Idle, func() {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			return
		}
		b.running.Add(1)
		b.mu.Unlock()
		defer b.running.Done()
		_ = s.acquire(context.Background()) // the use that armed the timer may not have released it yet
		if !s.closed && s.uses == uses {
			b.closeSlot(s)
		}
		s.release()
	})
}
