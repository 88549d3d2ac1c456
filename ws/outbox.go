package ws

import (
	"errors"
	"sync"
	"time"
)

// frameOverhead is what a waiting frame costs beside its bytes, so that a flood of tiny frames is bounded too.
const frameOverhead = 64

// patience is how long a frame nobody waits for may wait for company: two frames written together cost one system call
// here, and one at the device. An acknowledgement only frees what the device keeps.
const patience = 20 * time.Millisecond

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
	// hand hands one frame to melody; never called while one is under way. With more the next one follows at once, so
	// this one need not leave by itself.
	hand  func(frame []byte, more bool)
	limit int // bytes, with frameOverhead for each frame

	mu      sync.Mutex
	queue   [][]byte
	size    int // of what is queued and of what is under way
	busy    int // cost of the frame under way, zero when there is none
	open    bool
	drained chan struct{} // made by seal; closed once nothing is left
	lazy    *time.Timer   // hands over what waits for company; nil until the first such frame
}

// start opens the outbox with its first frame, unless it was sealed before.
func (o *outbox) start(first []byte) {
	o.mu.Lock()
	o.open = o.drained == nil
	o.mu.Unlock()
	_ = o.push(first) // an outbox that was sealed meanwhile needs no first frame
}

// push queues a frame, or hands it over at once if nothing is under way.
func (o *outbox) push(frame []byte) error {
	o.mu.Lock()
	if err := o.takeLocked(frame); err != nil {
		o.mu.Unlock()
		return err
	}
	o.handNext()
	return nil
}

// pushLazily queues a frame that leaves with the next one, or after patience.
func (o *outbox) pushLazily(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.takeLocked(frame); err != nil {
		return err
	}
	switch {
	case o.busy > 0 || len(o.queue) > 1: // it is not the one to wait for
	case o.lazy == nil:
		o.lazy = time.AfterFunc(patience, o.flush)
	default:
		o.lazy.Reset(patience)
	}
	return nil
}

// flush hands over what waits for company.
func (o *outbox) flush() {
	o.mu.Lock()
	o.handNext()
}

// takeLocked accounts for a frame and queues it.
func (o *outbox) takeLocked(frame []byte) error {
	cost := len(frame) + frameOverhead
	switch {
	case !o.open:
		return errOutboxClosed
	case cost > o.limit:
		return errFrameTooBig
	case o.size+cost > o.limit:
		return errOutboxFull
	}
	o.size += cost
	o.queue = append(o.queue, frame)
	return nil
}

// handNext hands the first frame of the queue over, if none is under way. It is called with the lock held and gives it up.
func (o *outbox) handNext() {
	if o.busy > 0 || len(o.queue) == 0 {
		o.mu.Unlock()
		return
	}
	frame := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	more := len(o.queue) > 0
	if !more {
		o.queue = nil // an idle connection keeps no buffer
	}
	o.busy = len(frame) + frameOverhead
	o.mu.Unlock()
	o.hand(frame, more)
}

// sent is called when the frame under way was written, and hands over the next.
func (o *outbox) sent() {
	o.mu.Lock()
	o.size -= o.busy
	o.busy = 0
	if len(o.queue) == 0 {
		o.signalLocked()
	}
	o.handNext()
}

// seal refuses all further frames. The returned channel is closed when those taken before were written; it stays
// open if the connection dies first.
func (o *outbox) seal() <-chan struct{} {
	o.mu.Lock()
	o.open = false
	if o.drained == nil {
		o.drained = make(chan struct{})
		if o.busy == 0 && len(o.queue) == 0 {
			close(o.drained)
		}
	}
	drained := o.drained
	o.handNext()
	return drained
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
	if o.lazy != nil {
		o.lazy.Stop()
	}
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
