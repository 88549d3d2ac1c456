package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
)

// Bounds of what a server sends. Notifications and other messages also cost work. Data above the rate stays in the pipe
// or in the network. Each tenant's answers have their own token bucket.
const (
	maxMessage = 8 << 20  // bytes of one message
	maxAnswer  = 64 << 20 // bytes of the stream of messages that answers one request

	paceRate  = 1000  // tokens a second; a line costs one, and so do paceBytes bytes
	paceBurst = 10000 // tokens
	paceBytes = 4 << 10
	paceValue = 64 // JSON values per token: the SDK takes some microseconds for each

	paceRead = 16 << 10 // maximum bytes per read: earlier data does not wait for later data
	maxPaces = 64       // above it, the paces of idle tenants are forgotten
)

// paces holds the token buckets of one server. They outlive its connections, so that a reconnect refills none of them.
// It is safe for concurrent use.
type paces struct {
	mu sync.Mutex
	by map[string]*pace // by tenant; empty: messages outside any tenant's call
}

// pace is the token buckets for the answers to a tenant's calls. The embedded bucket is that of their bytes.
type pace struct {
	bucket
	requests bucket // of the server to the gateway
	gets     bucket // streams that are opened again
}

func newPaces() *paces { return &paces{by: make(map[string]*pace)} }

func (p *pace) idle() bool { return p.bucket.idle() && p.requests.idle() && p.gets.idle() }

// forTenant returns the buckets for the answers to a tenant's calls.
func (p *paces) forTenant(tenant string) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.by[tenant]; b != nil {
		return b
	}
	if len(p.by) >= maxPaces {
		maps.DeleteFunc(p.by, func(_ string, b *pace) bool { return b.idle() })
	}
	b := &pace{
		bucket:   bucket{rate: paceRate, burst: paceBurst},
		requests: bucket{rate: requestRate, burst: requestBurst}, gets: bucket{rate: getRate, burst: getBurst},
	}
	p.by[tenant] = b
	return b
}

// bucket is a token bucket. It is safe for concurrent use.
type bucket struct {
	rate, burst float64

	mu   sync.Mutex
	used float64 // of the burst
	last time.Time
}

// refillLocked adds the tokens for the time since the last call.
func (b *bucket) refillLocked() {
	now := time.Now()
	b.used, b.last = max(0, b.used-now.Sub(b.last).Seconds()*b.rate), now
}

func (b *bucket) reserve(n float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	b.used += n
	return time.Duration(max(0, b.used-b.burst) / b.rate * float64(time.Second))
}

func (b *bucket) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	return b.used == 0
}

func (b *bucket) try() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	if b.used+1 > b.burst {
		return false
	}
	b.used++
	return true
}

// giveBack returns tokens that were not used.
func (b *bucket) giveBack(n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used = max(0, b.used-n)
}

// wait waits for n tokens, at most until ctx ends.
func (b *bucket) wait(ctx context.Context, n float64) error {
	wait := b.reserve(n)
	if wait <= 0 {
		return nil
	}
	return pause.For(ctx, wait)
}

var errTooLong = errors.New("the answer of the server is too large")

// paced reads a server's messages at the rate of a token bucket.
type paced struct {
	io.ReadCloser
	ctx  context.Context // of the connection, or of one request
	pace *pace
	left int64       // bytes still allowed; negative: no limit
	call bool        // it answers a call: a flood of requests ends that, not the connection
	done func(error) // if set, Close calls it once with the error that ended the reading

	arriving grants // memory of the message that is being read
	counted  int64  // bytes of it; only for the reader

	err error
}

func (r *paced) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), paceRead)])
	if r.left >= 0 {
		if r.left -= int64(n); r.left < 0 {
			n, err = 0, errTooLong
		}
	}
	cost := float64(bytes.Count(p[:n], []byte("\n"))) + float64(n)/paceBytes
	if late := r.pace.wait(r.ctx, cost); late != nil {
		n, err = 0, late
	}
	if err != nil {
		r.err = err
	}
	return n, err
}

// charge waits for the tokens that a message with this many JSON values costs.
func (r *paced) charge(values int) error { return r.pace.wait(r.ctx, float64(values/paceValue)) }

func (r *paced) Close() error {
	err := r.ReadCloser.Close()
	r.arriving.finish()
	if r.done != nil {
		r.done(r.err)
		r.done = nil
	}
	return err
}
