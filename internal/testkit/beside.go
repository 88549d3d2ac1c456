package testkit

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// What a tenant may wait beside another one that has its whole share of a pool. A busy machine makes everything slow:
// the work must be slow by the clock, and also by what it took while the pool had room.
const (
	besideRuns   = 100
	besideTries  = 3 // a machine that stalls does so for a moment, a tenant without room waits each time
	besideP99    = 500 * time.Millisecond
	besideFactor = 20
)

// Beside measures what one tenant does while another one has its whole share of a pool.
type Beside struct {
	t     testing.TB
	pool  string
	work  func() error
	alone time.Duration
}

// Share is a row of figures: how long 99 of 100 took at most beside a full pool, and while it had room.
type Share struct {
	Pool       string
	P99, Alone time.Duration
}

// String returns the row as a line of a table.
func (s Share) String() string {
	return fmt.Sprintf("other tenant: p99 %8v, %8v with room: %s", s.P99.Round(10*time.Microsecond),
		s.Alone.Round(10*time.Microsecond), s.Pool)
}

// Alone does the work of a tenant while the pool has room. Call Crowded on the result once another tenant has taken its
// share. An error of the work fails the test: nothing may be refused to this tenant.
func Alone(t testing.TB, pool string, work func() error) *Beside {
	t.Helper()
	b := &Beside{t: t, pool: pool, work: work}
	b.alone = b.p99()
	return b
}

// Crowded does the work again, and logs the figures. It fails the test if the work takes too long.
func (b *Beside) Crowded() Share {
	b.t.Helper()
	s := Share{Pool: b.pool, P99: b.p99(), Alone: b.alone}
	for range besideTries - 1 {
		if !s.isSlow() {
			break
		}
		s.P99 = b.p99()
	}
	b.t.Log(s)
	if s.isSlow() {
		b.t.Errorf("%v: want at most %v, or %d times as long as with room", s, besideP99, besideFactor)
	}
	return s
}

func (s Share) isSlow() bool { return s.P99 > besideP99 && s.P99 > besideFactor*s.Alone }

// p99 does the work often, and returns how long 99 of 100 took at most.
func (b *Beside) p99() time.Duration {
	b.t.Helper()
	took := make([]time.Duration, 0, besideRuns)
	for range besideRuns {
		began := time.Now()
		if err := b.work(); err != nil {
			b.t.Errorf("another tenant, at the pool %q: %v", b.pool, err)
			break
		}
		took = append(took, time.Since(began))
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[(len(took)*99-1)/100]
}
