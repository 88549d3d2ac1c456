package auth

import (
	"sync"
	"time"
)

// Limit is how much may be spent: Burst at once, and Rate a second in the long run.
type Limit struct{ Rate, Burst float64 }

// Refill is how long an empty bucket takes to be full again.
func (l Limit) Refill() time.Duration { return time.Duration(l.Burst / l.Rate * float64(time.Second)) }

// Bucket is a token bucket. The zero value is full. It is not safe for concurrent use. Times are those of one
// monotonic clock.
type Bucket struct {
	spent float64
	at    time.Duration
}

func (b *Bucket) fill(l Limit, now time.Duration) {
	b.spent = max(0, b.spent-(now-b.at).Seconds()*l.Rate)
	b.at = now
}

// Take spends n, if there is as much.
func (b *Bucket) Take(l Limit, now time.Duration, n float64) bool {
	b.fill(l, now)
	if b.spent+n > l.Burst {
		return false
	}
	b.spent += n
	return true
}

// longestDebt is how long a debt takes to be paid, at most: what was overspent long ago is forgotten.
const longestDebt = 2 // seconds

// Spend spends n in any case and returns how long it takes until the debt, if there is one, is paid.
func (b *Bucket) Spend(l Limit, now time.Duration, n float64) time.Duration {
	b.fill(l, now)
	b.spent = min(b.spent+n, l.Burst+longestDebt*l.Rate)
	return time.Duration(max(0, b.spent-l.Burst) / l.Rate * float64(time.Second))
}

// Refund gives n back, and returns how much of it there was no room for.
func (b *Bucket) Refund(n float64) (rest float64) {
	back := min(n, b.spent)
	b.spent -= back
	return n - back
}

// maxBuckets bounds the keys that are remembered. Buckets that are full again are forgotten before any other.
const maxBuckets = 1 << 16

// Buckets are token buckets by key, all with one limit. They are safe for concurrent use.
type Buckets[K comparable] struct {
	limit   Limit
	started time.Time

	mu   sync.Mutex
	by   map[K]*Bucket
	next time.Duration // when to look for full ones again
}

// NewBuckets returns buckets that are all full.
func NewBuckets[K comparable](l Limit) *Buckets[K] {
	return &Buckets[K]{limit: l, started: time.Now(), by: make(map[K]*Bucket)}
}

// Take spends n of the key's bucket, if there is as much.
func (b *Buckets[K]) Take(key K, n float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.started)
	return b.bucketLocked(key, now).Take(b.limit, now, n)
}

// Spend spends n of the key's bucket in any case and returns how long it takes until its debt is paid.
func (b *Buckets[K]) Spend(key K, n float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Since(b.started)
	return b.bucketLocked(key, now).Spend(b.limit, now, n)
}

// Refund gives n back to the key's bucket.
func (b *Buckets[K]) Refund(key K, n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bucket := b.by[key]; bucket != nil {
		bucket.Refund(n)
	}
}

func (b *Buckets[K]) bucketLocked(key K, now time.Duration) *Bucket {
	bucket := b.by[key]
	if bucket == nil {
		b.pruneLocked(now)
		bucket = &Bucket{at: now}
		b.by[key] = bucket
	}
	return bucket
}

// pruneLocked forgets buckets that are full again, and any when there are too many.
func (b *Buckets[K]) pruneLocked(now time.Duration) {
	if now < b.next && len(b.by) < maxBuckets {
		return
	}
	b.next = now + b.limit.Refill()
	for key, bucket := range b.by {
		if bucket.fill(b.limit, now); bucket.spent == 0 || len(b.by) > maxBuckets*3/4 {
			delete(b.by, key)
		}
	}
}
