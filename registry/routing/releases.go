package routing

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	maxUnreleased  = 1 << 16 // sessions; at most half of them of one tenant
	releasesAtOnce = 16
	releasePause   = time.Second // before failed releases are retried
)

// unreleased are sessions that have ended here, and that the store could not release: when thousands of devices leave a
// busy store at once, or while it is down. The pod retries, because the tools of a device that has gone must go. If the
// pod ends before, its lapsed lease makes another pod release them. It is safe for concurrent use.
type unreleased struct {
	slots  *share.Pool
	signal chan struct{} // capacity 1

	mu       sync.Mutex
	sessions map[registry.Ref]ended
}

// ended is a session of unreleased.
type ended struct {
	session registry.Session
	back    time.Time // until when its device is expected to reconnect; zero: it is not expected
	slot    *share.Grant
}

func newUnreleased() *unreleased {
	return &unreleased{
		slots:  share.New(share.Bounds{Pod: maxUnreleased, Identity: maxUnreleased}),
		signal: make(chan struct{}, 1), sessions: make(map[registry.Ref]ended),
	}
}

// add makes the pod retry the release of a session. It returns false if there is no room.
func (u *unreleased) add(s registry.Session, back time.Duration) bool {
	slot, err := u.slots.Try(share.Owner{Tenant: s.Key.Tenant}, 1)
	if err != nil {
		return false
	}
	e := ended{session: s, slot: slot}
	if back > 0 {
		e.back = time.Now().Add(back)
	}
	u.mu.Lock()
	u.sessions[s.Ref()] = e
	u.mu.Unlock()
	select {
	case u.signal <- struct{}{}:
	default:
	}
	return true
}

func (u *unreleased) all() []ended {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]ended, 0, len(u.sessions))
	for _, e := range u.sessions {
		all = append(all, e)
	}
	return all
}

func (u *unreleased) remove(e ended) {
	u.mu.Lock()
	delete(u.sessions, e.session.Ref())
	u.mu.Unlock()
	e.slot.Release()
}

// releaseLoop retries failed releases until ctx ends.
func (p *Pod) releaseLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.Hub.unreleased.signal:
		}
		for !p.releaseAll(ctx) {
			if pause.For(ctx, releasePause) != nil {
				return
			}
		}
	}
}

// releaseAll retries all failed releases once, and reports whether none is left to retry.
func (p *Pod) releaseAll(ctx context.Context) bool {
	all := p.Hub.unreleased.all()
	err := parallel.Each(len(all), releasesAtOnce, func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		_, err := p.store.Release(ctx, all[i].session, max(time.Until(all[i].back), 0))
		if err == nil || registry.IsNewer(err) { // a newer release's session is its own to release
			p.Hub.unreleased.remove(all[i])
			return nil
		}
		return err
	})
	if err != nil {
		p.logStore(ctx, "ended sessions not released; the pod retries", err)
	}
	return err == nil
}
