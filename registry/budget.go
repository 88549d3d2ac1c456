package registry

import (
	"context"
	"time"
)

// Budget bounds the bytes that the store keeps of something for some time. Half of them may be added at once, and the
// other half over that time. So the store never has more of them, whoever adds them and however often devices connect
// anew.
type Budget struct {
	Bytes int64
	Over  time.Duration // how long an addition is kept
}

// Burst returns how many bytes may be added at once.
func (b Budget) Burst() int64 { return max(b.Bytes/2, 1) }

// Rate returns how many bytes may be added in a millisecond.
func (b Budget) Rate() float64 { return float64(b.Burst()) / float64(max(b.Over.Milliseconds(), 1)) }

// BudgetStore counts what the whole fleet adds. It is safe for concurrent use.
type BudgetStore interface {
	// Spend takes n bytes off a budget of the tenant, all or none; n is at most the burst. If the budget does not have
	// them yet, wait is how long it takes until it has; wait is zero if they were taken. A budget that was never spent
	// from is full.
	Spend(ctx context.Context, tenant, name string, n int64, b Budget) (wait time.Duration, err error)

	// Overdraw takes n bytes off a budget, whether or not it has them. What it lacks, at most a burst, comes back
	// before anything else can be spent.
	Overdraw(ctx context.Context, tenant, name string, n int64, b Budget) error
}
