package client

import (
	"context"
	"sync"
	"time"
)

// The pace of frames that the gateway has not asked for. It is well under what a gateway allows a device by default.
const (
	paceInterval = 5 * time.Millisecond
	paceBurst    = 200
)

// pace bounds how fast frames are sent. The zero value is ready; it is safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	next time.Time // when the next frame would be due if they came evenly
}

// reserve takes the place of one frame and returns how long to wait for it. With tryOnly it takes only a place that
// needs no waiting.
func (p *pace) reserve(now time.Time, tryOnly bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now) - (paceBurst-1)*paceInterval
	if wait <= 0 || !tryOnly {
		p.next = p.next.Add(paceInterval)
	}
	return max(wait, 0)
}

// try reports whether a frame may be sent now.
func (p *pace) try() bool { return p.reserve(time.Now(), true) == 0 }

// wait returns when a frame may be sent, or with the error of ctx.
func (p *pace) wait(ctx context.Context) error {
	if d := p.reserve(time.Now(), false); d > 0 {
		return sleep(ctx, d)
	}
	return ctx.Err()
}
