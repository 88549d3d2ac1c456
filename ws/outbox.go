package ws

import (
	"errors"
	"sync"
)

// frameOverhead is what a waiting frame costs beside its bytes, so that a flood of tiny frames is bounded too.
const frameOverhead = 64

// Why an outbox does not take a frame.
var (
	errOutboxClosed = errors.New("ws: the outbox is not open")
	errOutboxFull   = errors.New("ws: the outbox is full")
	errFrameTooBig  = errors.New("ws: the frame is larger than the outbox")
)

// outbox is the queue in front of melody. Melody drops what does not fit its own buffer and says so to nobody, so it
// is given one frame at a time and asked for the next only when that one was written. The outbox is bounded in
// bytes and never blocks the sender. It opens with its first frame and is safe for concurrent use.
type outbox struct {
	hand  func(frame []byte) // hands one frame to melody; never called while one is under way
	limit int                // bytes, with frameOverhead for each frame

	mu      sync.Mutex
	queue   [][]byte
	size    int // of what is queued and of what is under way
	busy    int // cost of the frame under way, zero when there is none
	open    bool
	drained chan struct{} // made by seal; closed once nothing is left
}

// start opens the outbox with its first frame, unless it was sealed before.
func (o *outbox) start(first []byte) {
	o.mu.Lock()
	o.open = o.drained == nil
	now, _ := o.takeLocked(first) // an outbox that was sealed meanwhile needs no first frame
	o.mu.Unlock()
	if now {
		o.hand(first)
	}
}

// push queues a frame, or hands it over at once if nothing is under way.
func (o *outbox) push(frame []byte) error {
	o.mu.Lock()
	now, err := o.takeLocked(frame)
	o.mu.Unlock()
	if now {
		o.hand(frame)
	}
	return err
}

// takeLocked accounts for a frame and queues it; now reports that the caller must hand it over instead.
func (o *outbox) takeLocked(frame []byte) (now bool, err error) {
	cost := len(frame) + frameOverhead
	switch {
	case !o.open:
		return false, errOutboxClosed
	case cost > o.limit:
		return false, errFrameTooBig
	case o.size+cost > o.limit:
		return false, errOutboxFull
	}
	o.size += cost
	if o.busy > 0 {
		o.queue = append(o.queue, frame)
		return false, nil
	}
	o.busy = cost
	return true, nil
}

// sent is called when the frame under way was written, and hands over the next.
func (o *outbox) sent() {
	o.mu.Lock()
	o.size -= o.busy
	o.busy = 0
	if len(o.queue) == 0 {
		o.queue = nil // an idle connection keeps no buffer
		o.signalLocked()
		o.mu.Unlock()
		return
	}
	frame := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	o.busy = len(frame) + frameOverhead
	o.mu.Unlock()
	o.hand(frame)
}

// seal refuses all further frames. The returned channel is closed when those taken before were written; it stays
// open if the connection dies first.
func (o *outbox) seal() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = false
	if o.drained == nil {
		o.drained = make(chan struct{})
		if o.busy == 0 {
			close(o.drained)
		}
	}
	return o.drained
}

// discard refuses all further frames and forgets those that wait.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = false
	for _, frame := range o.queue {
		o.size -= len(frame) + frameOverhead
	}
	o.queue = nil
}

// signalLocked closes drained when the last frame was written after seal.
func (o *outbox) signalLocked() {
	if o.drained == nil {
		return
	}
	select {
	case <-o.drained:
	default:
		close(o.drained)
	}
}
