package ws

import "time"

// bucket is a token bucket of frames. It belongs to the connection's reader and is not safe for concurrent use.
type bucket struct {
	tokens float64
	last   time.Duration // on the server's own monotonic clock
}

// take spends one token and reports whether there was one. now never goes back.
func (b *bucket) take(now time.Duration, perSecond, burst float64) bool {
	b.tokens = min(burst, b.tokens+(now-b.last).Seconds()*perSecond)
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// refund gives tokens back for frames the server had asked for.
func (b *bucket) refund(n, burst float64) { b.tokens = min(burst, b.tokens+n) }
