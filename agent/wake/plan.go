package wake

import (
	"time"

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
