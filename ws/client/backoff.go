package client

import (
	"math/rand/v2"
	"time"
)

// stableAfter is how long a connection must have lasted for the next failure to count as the first.
const stableAfter = 5 * time.Second

// rivalGoneAfter is how long a connection must have lasted for a rival to count as gone.
const rivalGoneAfter = 5 * time.Minute

// backoff computes the delays before reconnects, with full jitter: devices that lost their gateway together do not
// come back together.
type backoff struct {
	min, max time.Duration
	ceiling  time.Duration // of the next delay
}

// next returns the delay after a failure. atLeast is what the gateway asked for.
func (b *backoff) next(atLeast time.Duration) time.Duration {
	if b.ceiling == 0 {
		b.ceiling = b.min
	}
	delay := rand.N(b.ceiling)
	b.ceiling = min(2*b.ceiling, b.max)
	return atLeast + delay
}

// nextRival returns the delay before a connection that may take the session from another one. At least half of it is
// not random, so that two clients that want the same session do not keep taking it from one another.
func (b *backoff) nextRival() time.Duration {
	least := b.ceiling / 2
	if b.ceiling == 0 {
		least = b.min / 2
	}
	return least + b.next(0)/2
}

func (b *backoff) reset() { b.ceiling = 0 }
