package ws

import (
	"errors"
	"sync"
	"time"
)

// frameOverhead is what a waiting frame costs beside its bytes, so that a flood of tiny frames is bounded too.
const frameOverhead = 64

// lazyDelay is how long a frame nobody waits for may wait for company: two frames written together cost one system call
// here, and one at the device. An acknowledgement only frees what the device keeps.
const lazyDelay = 20 * time.Millisecond

// Why an outbox does not take a frame.
var (
	errOutboxClosed = errors.New("ws: the outbox is not open")
	errOutboxFull   = errors.New("ws: the outbox is full")
	errFrameTooBig  = errors.New("ws: the frame is larger than the outbox")
)

// waker brings somebody to write what an outbox has.
type waker interface {
	// wakeWriter has next called until there is nothing more to write. It returns at once, and is not called again before that.
	// The outbox is locked meanwhile.
	wakeWriter()
}

// outbox is the queue of what is to be written to a device. It is bounded in bytes, never blocks the sender, and has one
// writer at a time, and none while there is nothing to write. It opens with its first frame and is safe for concurrent use.
type outbox struct {
	writer waker
	limit  int // bytes, with frameOverhead for each frame

	mu      sync.Mutex
	queue   [][]byte
	size    int  // of what is queued and of what is under way
	busy    int  // cost of the frame under way, zero when there is none
	awake   bool // somebody writes, or is about to
	pingDue bool
	open    bool
	drained chan struct{} // made by seal; closed once nothing is left
	lazy    *time.Timer   // wakes the writer for what waits for company; nil until the first such frame
}

// start opens the outbox with its first frame under way: the caller writes it, and calls written then. It reports false if
// the outbox was sealed before; then there is nothing to write.
func (o *outbox) start(first []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.drained != nil {
		return false
	}
	o.open, o.awake = true, true
	o.busy = len(first) + frameOverhead
	o.size += o.busy
	return true
}

// written says that the first frame has been written, and has what came meanwhile written.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= o.busy
	o.busy, o.awake = 0, false
	if len(o.queue) == 0 && !o.pingDue {
		o.signalLocked()
		return
	}
	o.wakeLocked()
}

// push queues a frame.
func (o *outbox) push(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.takeLocked(frame); err != nil {
		return err
	}
	o.wakeLocked()
	return nil
}

// pushLazily queues a frame that leaves with the next one, or after lazyDelay.
func (o *outbox) pushLazily(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.takeLocked(frame); err != nil {
		return err
	}
	switch {
	case o.awake || len(o.queue) > 1: // it is not the one to wait for
	case o.lazy == nil:
		o.lazy = time.AfterFunc(lazyDelay, o.flush)
	default:
		o.lazy.Reset(lazyDelay)
	}
	return nil
}

// flush has what waits for company written.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

// ping has a ping written, before everything that is queued.
func (o *outbox) ping() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pingDue = o.open
	o.wakeLocked()
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

// wakeLocked wakes the writer, if there is something to write and nobody at it.
func (o *outbox) wakeLocked() {
	if o.awake || len(o.queue) == 0 && !o.pingDue {
		return
	}
	o.awake = true
	o.writer.wakeWriter()
}

// outgoing is what to write next.
type outgoing struct {
	frame  []byte // nil: a ping
	corked bool   // the next frame follows at once, so this one need not leave by itself
}

// next returns what to write now; what it returned before has been written. When it reports false there is nothing, and
// it is not called again before the writer is woken.
func (o *outbox) next() (out outgoing, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= o.busy
	o.busy = 0
	switch {
	case o.pingDue:
		o.pingDue = false
		return outgoing{}, true
	case len(o.queue) == 0:
		o.awake = false
		o.signalLocked()
		return outgoing{}, false
	}
	out.frame = o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	out.corked = len(o.queue) > 0
	if !out.corked {
		o.queue = nil // an idle connection keeps no buffer
	}
	o.busy = len(out.frame) + frameOverhead
	return out, true
}

// waiting returns how many frames wait, and what they and the one under way cost in bytes.
func (o *outbox) waiting() (frames, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue), o.size
}

// seal refuses all further frames. The returned channel is closed when those taken before were written; it stays
// open if the connection dies first.
func (o *outbox) seal() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.pingDue = false, false
	if o.drained == nil {
		o.drained = make(chan struct{})
	}
	if !o.awake && len(o.queue) == 0 {
		o.signalLocked()
	}
	o.wakeLocked()
	return o.drained
}

// discard refuses all further frames and forgets those that wait.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.pingDue = false, false
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
