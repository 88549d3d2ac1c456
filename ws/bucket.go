package ws

import "time"

// bucket is a token bucket, of frames or of bytes. It belongs to the connection's reader and is not safe for
// concurrent use.
type bucket struct {
	tokens float64
	last   time.Duration // on the server's own monotonic clock
}

// take spends n tokens and reports whether there were as many. now never goes back.
func (b *bucket) take(now time.Duration, n, perSecond, burst float64) bool {
	b.tokens = min(burst, b.tokens+(now-b.last).Seconds()*perSecond)
	b.last = now
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}

// refund gives tokens back for frames the server had asked for.
func (b *bucket) refund(n, burst float64) { b.tokens = min(burst, b.tokens+n) }
