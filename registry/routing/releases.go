package routing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	maxUnreleased  = 1 << 17 // sessions, at most three quarters of them of one tenant, like connections
	releasesAtOnce = 16
	releasePause   = time.Second // before failed releases are retried
)

// unreleased are sessions that have ended here, and that the store could not release: when thousands of devices leave a
// busy store at once, or while it is down. The pod retries, because the tools of a device that has gone must go. It is
// safe for concurrent use.
type unreleased struct {
	slots  *share.Pool
	signal chan struct{} // capacity 1

	mu       sync.Mutex
	releases map[*unfinished]struct{}
}

// unfinished is the release of one session. Only the release loop changes it.
type unfinished struct {
	retry func(ctx context.Context) error
	slot  *share.Grant
}

func newUnreleased() *unreleased {
	return &unreleased{
		slots:  share.New(share.Bounds{Pod: maxUnreleased, Identity: maxUnreleased, Times: 3}),
		signal: make(chan struct{}, 1), releases: make(map[*unfinished]struct{}),
	}
}

// release releases a session. If that fails, the pod retries, unless too many wait for that.
func (u *unreleased) release(ctx context.Context, store registry.Store, e registry.Entry, back time.Duration) error {
	s := e.Session
	_, err := store.Release(ctx, s, back)
	if err == nil || registry.IsNewer(err) {
		return nil // what a newer Farhand wrote is not touched
	}
	slot, full := u.slots.Try(share.Owner{Tenant: s.Key.Tenant}, 1)
	if full != nil {
		return err
	}
	until, forget := time.Now().Add(back), store.Forget(e)
	f := &unfinished{slot: slot, retry: func(ctx context.Context) error {
		if _, err := store.Release(ctx, s, max(time.Until(until), 0)); err != nil {
			return err
		}
		return forget(ctx)
	}}
	f.failed(err)
	u.mu.Lock()
	u.releases[f] = struct{}{}
	u.mu.Unlock()
	select {
	case u.signal <- struct{}{}:
	default:
	}
	return nil
}

// failed notes with what error a try ended.
func (f *unfinished) failed(err error) {
	if part, ok := errors.AsType[*registry.UnfinishedError](err); ok {
		f.retry = part.Finish
	}
}

func (u *unreleased) all() []*unfinished {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Keys(u.releases))
}

func (u *unreleased) remove(f *unfinished) {
	u.mu.Lock()
	delete(u.releases, f)
	u.mu.Unlock()
	f.slot.Release()
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
		err := all[i].retry(ctx)
		if err == nil || registry.IsNewer(err) {
			p.Hub.unreleased.remove(all[i])
			return nil
		}
		all[i].failed(err)
		return err
	})
	if err != nil {
		p.logStore(ctx, "ended sessions not released; the pod retries", err)
	}
	return err == nil
}
