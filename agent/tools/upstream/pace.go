package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// Bounds of what a server sends. Messages beside the answers that are waited for cost work, too, so what comes faster
// than the pace stays in the pipe, or in the network.
const (
	maxMessage = 8 << 20  // bytes of one message
	maxAnswer  = 64 << 20 // bytes of the stream of messages that answers one request

	paceRate  = 1000  // lines a second; as many bytes as paceBytes count as one, too
	paceBurst = 10000 // lines at once
	paceBytes = 4 << 10
)

// bucket is a token bucket. It is safe for concurrent use.
type bucket struct {
	rate, burst float64

	mu   sync.Mutex
	used float64 // of the burst
	last time.Time
}

// reserve takes n tokens, and returns how long to wait for them.
func (b *bucket) reserve(n float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.used = max(0, b.used-now.Sub(b.last).Seconds()*b.rate) + n
	b.last = now
	return time.Duration(max(0, b.used-b.burst) / b.rate * float64(time.Second))
}

// try takes a token if there is one.
func (b *bucket) try() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.used, b.last = max(0, b.used-now.Sub(b.last).Seconds()*b.rate), now
	if b.used+1 > b.burst {
		return false
	}
	b.used++
	return true
}

// take waits for n tokens, at most until ctx ends.
func (b *bucket) take(ctx context.Context, n float64) error {
	wait := b.reserve(n)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errTooLong ends an answer that is longer than any may be.
var errTooLong = errors.New("the server has sent more than one answer may have")

// paced reads at the pace of a server's messages.
type paced struct {
	io.ReadCloser
	ctx  context.Context // of the connection, or of one request
	pace *bucket
	left int64       // bytes that may come; negative: any number
	done func(error) // called once by Close, with what ended the reading; nil: nobody

	err error
}

// Read implements io.Reader.
func (r *paced) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if r.left >= 0 {
		if r.left -= int64(n); r.left < 0 {
			n, err = 0, errTooLong
		}
	}
	cost := float64(bytes.Count(p[:n], []byte("\n"))) + float64(n)/paceBytes
	if late := r.pace.take(r.ctx, cost); late != nil {
		n, err = 0, late
	}
	if err != nil {
		r.err = err
	}
	return n, err
}

// Close implements io.Closer.
func (r *paced) Close() error {
	err := r.ReadCloser.Close()
	if r.done != nil {
		r.done(r.err)
		r.done = nil
	}
	return err
}
