package ws

import (
	"errors"
	"sync"
	"time"
)

// frameOverhead is what a waiting frame costs besides its bytes, so that a flood of tiny frames is bounded too.
const frameOverhead = 64

// lazyDelay is how long a frame that is not urgent may wait for the next one. Two frames written together cost one
// system call here, and one at the device. An acknowledgement is not urgent: it only frees what the device keeps.
const lazyDelay = 20 * time.Millisecond

// Why an outbox does not take a frame.
var (
	errOutboxClosed = errors.New("ws: the outbox is not open")
	errOutboxFull   = errors.New("ws: the outbox is full")
	errFrameTooBig  = errors.New("ws: the frame is larger than the outbox")
)

// waker finds a writer for an outbox.
type waker interface {
	// wakeWriter starts a writer, which calls next until there is nothing more to write. It returns at once; the outbox
	// is locked meanwhile. It is not called again before next has reported that there is nothing.
	wakeWriter()
}

// outbox is the queue of frames to a device. It is bounded in bytes and never blocks the sender. It has one writer at a
// time, and none while there is nothing to write. It opens with its first frame and is safe for concurrent use.
type outbox struct {
	writer waker
	limit  int // bytes, with frameOverhead for each frame

	mu      sync.Mutex
	queue   [][]byte
	size    int  // bytes that the queued frames and the one being written cost
	busy    int  // bytes that the frame being written costs, zero when there is none
	awake   bool // a writer writes, or is about to
	pingDue bool
	open    bool
	drained chan struct{} // made by seal; closed once nothing is queued
	lazy    *time.Timer   // wakes the writer for frames that are not urgent; nil until the first such frame
}

// start opens the outbox. The caller writes the first frame itself, and calls written then. start reports false if the
// outbox was sealed before; then there is nothing to write.
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

// written notes that the first frame has been written, and wakes the writer for frames that were queued meanwhile.
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

// pushLazily queues a frame that is not urgent: it leaves with the next frame, or after lazyDelay.
func (o *outbox) pushLazily(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.takeLocked(frame); err != nil {
		return err
	}
	switch {
	case o.awake || len(o.queue) > 1: // the frames before it see to it that it leaves
	case o.lazy == nil:
		o.lazy = time.AfterFunc(lazyDelay, o.flush)
	default:
		o.lazy.Reset(lazyDelay)
	}
	return nil
}

// flush wakes the writer for frames that are not urgent.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

// ping asks for a ping, which is written before everything that is queued.
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

// wakeLocked wakes the writer, if there is something to write and it is not awake.
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
	corked bool   // another frame follows at once, so this one need not leave by itself
}

// next returns what to write now. Calling it says that what it returned before has been written. When it reports false
// there is nothing to write, and it must not be called again before the writer is woken.
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

// waiting returns how many frames wait, and how many bytes they and the one being written cost.
func (o *outbox) waiting() (frames, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue), o.size
}

// seal refuses all further frames. The returned channel is closed when the frames queued before were written. It stays
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

// discard refuses all further frames and drops those that wait.
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
