package wake

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	// pushLease is how long a push may take. A pod that dies while it sends one leaves the plan with this time; then
	// another pod sends it.
	pushLease = time.Minute

	firstBackoff = 30 * time.Second // after the first failure; it doubles with each
	maxBackoff   = time.Hour
	maxFailures  = 8              // consecutive; the next call that is queued begins again, after the backoff
	maxRetry     = 24 * time.Hour // bounds Retry-After
)

// backoff returns how long to wait after so many consecutive failures.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	return min(firstBackoff<<min(failures-1, 20), maxBackoff)
}

// earliest returns when a device may be woken: not before a time, a minimum interval and a backoff after the last push,
// and not in its quiet hours.
func earliest(r registry.WakeRecord, notBefore time.Time) time.Time {
	at := notBefore
	if !r.Plan.Last.IsZero() {
		if free := r.Plan.Last.Add(max(r.Wake.Interval(), backoff(r.Plan.Failures))); free.After(at) {
			at = free
		}
	}
	return r.Wake.Quiet.End(at)
}

// begin returns the plan of a device that is to be woken, and whether to push now. write says that the plan changed.
// A plan for later stays: one push is for all calls that are queued until then.
func begin(r registry.WakeRecord, now time.Time) (plan registry.WakePlan, push, write bool) {
	plan = r.Plan
	if plan.Next.After(now) {
		return plan, false, false
	}
	if at := earliest(r, now); at.After(now) {
		plan.Next = at
		return plan, false, true
	}
	plan.Last, plan.Next = now, now.Add(pushLease)
	return plan, true, true
}

// after returns the plan after a push with a result that is not gone.
func after(r registry.WakeRecord, res result, now time.Time) registry.WakePlan {
	p := &r.Plan
	p.Next = time.Time{}
	if res.outcome == Sent {
		p.Failures, p.Error = 0, ""
		return *p
	}
	p.Failures++
	p.Error = res.reason
	if res.outcome == Retry && p.Failures < maxFailures {
		p.Next = earliest(r, now.Add(min(res.retryAfter, maxRetry)))
	}
	return *p
}

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
	newest := make(map[sleeper]time.Time)
	for _, c := range page {
		of := sleeperOf(c.Tenant, c.Device)
		if c.Since.After(newest[of]) && time.Since(c.Since) > searchGrace {
			newest[of] = c.Since
		}
	}
	for of, since := range newest {
		switch r, err := s.record(ctx, of); {
		case errors.Is(err, registry.ErrNoWake):
		case err != nil:
			return err
		case missed(r, since):
			s.start(sleeper{WakeRef: r.Ref()}, false, since)
		}
	}
	return nil
}

// missed reports whether no push was made for a call that waits since a time, and none is planned.
func missed(r registry.WakeRecord, since time.Time) bool {
	return r.Plan.Next.IsZero() && r.Plan.Last.Before(since)
}
