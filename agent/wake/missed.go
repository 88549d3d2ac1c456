package wake

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// Bounds of the search for wakes that are missing. A fleet with a million queued calls is searched in about an hour.
const (
	searchPause = 30 * time.Second
	searchPage  = 500              // calls that one request reads, about
	searchPages = 400              // of one search; the next continues
	searchCalls = 10_000           // of one search
	searchGrace = 10 * time.Second // a call that waits for less is about to plan its wake
)

// searchUntil searches for missing wakes until Close.
func (s *Service) searchUntil() {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	s.work.Go(func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	for cursor := ""; pause.For(ctx, searchPause) == nil; {
		cursor = s.search(ctx, cursor)
	}
}

// search wakes devices with a call for which no wake was planned. It continues where an earlier search ended, and
// returns where the next one begins.
func (s *Service) search(ctx context.Context, cursor string) string {
	ctx, cancel := context.WithTimeout(ctx, searchPause)
	defer cancel()
	if s.cfg.Searches != nil {
		if mine, err := s.cfg.Searches(ctx); err != nil || !mine {
			return "" // another pod begins where it likes
		}
	}
	for pages, calls := 0, 0; pages < searchPages && calls < searchCalls; pages++ {
		page, next, err := s.cfg.Queued(ctx, cursor, searchPage)
		if err == nil {
			err = s.wakeMissed(ctx, page)
		}
		if err != nil {
			if s.ctx.Err() == nil {
				s.cfg.Log.Debug("queued calls without a wake not searched for; the pod retries", "error", err)
			}
			return cursor
		}
		calls += len(page)
		if cursor = next; cursor == "" {
			break
		}
	}
	return cursor
}

// wakeMissed wakes the devices of calls for which no wake was planned.
func (s *Service) wakeMissed(ctx context.Context, page []registry.QueuedCall) error {
	newest := make(map[registry.WakeRef]time.Time)
	for _, c := range page {
		ref := registry.WakeRef{Tenant: c.Tenant, DeviceID: registry.DeviceOfKey(c.Device)}
		if c.Since.After(newest[ref]) && time.Since(c.Since) > searchGrace {
			newest[ref] = c.Since
		}
	}
	for ref, since := range newest {
		switch r, err := s.cfg.Store.WakeOf(ctx, ref.Tenant, ref.DeviceID); {
		case errors.Is(err, registry.ErrNoWake):
		case err != nil:
			return err
		case missed(r, since):
			s.start(ref, false, since)
		}
	}
	return nil
}

// missed reports whether no push was made for a call that waits since a time, and none is planned.
func missed(r registry.WakeRecord, since time.Time) bool {
	return r.Plan.Next.IsZero() && r.Plan.Last.Before(since)
}
