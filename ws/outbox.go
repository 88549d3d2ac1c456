package ws

import (
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
)

const (
	frameOverhead = 64       // cost in bytes of a frame besides its text, so that floods of tiny frames are bounded
	unsentLeft    = 16 << 10 // bytes that an outbox holds without using the pod's limit; most never hold more
)

// Errors for a frame that the outbox rejects.
var (
	errOutboxNotOpen = errors.New("ws: the outbox is not open")
	errOutboxFull    = errors.New("ws: the outbox is full")
	errOutboxesFull  = errors.New("ws: the outboxes of a tenant, or all outboxes together, are full")
	errFrameTooBig   = errors.New("ws: the frame is larger than the outbox")
)

// outboxOwner provides a writer for an outbox, and memory for its frames.
type outboxOwner interface {
	// wakeWriter starts a writer, which calls next until there is nothing left to write. It must not block, because the
	// outbox is locked. It is not called again until next has returned false.
	wakeWriter()

	// holdUnsent takes n bytes of the pod's limit for a queued frame. It must not use the outbox.
	holdUnsent(n int) (*share.Grant, error)
}

type queuedFrame struct {
	text []byte
	held *share.Grant // nil if within unsentLeft
}

// outbox is the queue of frames to a device. It is bounded in bytes and never blocks the sender. It has at most one
// writer, and none while there is nothing to write. It opens with its first frame. It is safe for concurrent use.
type outbox struct {
	writer outboxOwner
	limit  int // bytes, with frameOverhead for each frame

	mu      sync.Mutex
	queue   []queuedFrame
	size    int // cost in bytes of the queued frames and the one being written
	open    bool
	pingDue bool
	drained chan struct{} // made by seal; closed once nothing is queued and nothing is being written
	lazy    *time.Timer   // wakes the writer for lazy frames; nil before the first one
	due     time.Time     // when lazy fires

	hasWriter    bool // a writer is writing, or has been woken
	writingBytes int  // cost of the frame being written; zero if there is none
	writing      queuedFrame
}

// start opens the outbox. The caller writes the first frame itself and then calls written. If the outbox was sealed
// before, start returns false and the caller writes nothing.
func (o *outbox) start(first []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.drained != nil {
		return false
	}
	o.open, o.hasWriter = true, true
	o.writingBytes = len(first) + frameOverhead
	o.size += o.writingBytes
	return true
}

// written records that the first frame has been written, and wakes the writer for frames queued meanwhile.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= o.writingBytes
	o.writingBytes, o.hasWriter = 0, false
	if o.wakeLocked(); !o.hasWriter {
		o.signalLocked()
	}
}

func (o *outbox) push(frame []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enqueueLocked(frame); err != nil {
		return err
	}
	o.wakeLocked()
	return nil
}

// pushLazily queues a frame that is not urgent. It is written with the next frame, or after delay.
func (o *outbox) pushLazily(frame []byte, delay time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enqueueLocked(frame); err != nil {
		return err
	}
	due := time.Now().Add(delay)
	if o.hasWriter || len(o.queue) > 1 && !due.Before(o.due) { // it is written with the frames before it
		return nil
	}
	o.due = due
	if o.lazy == nil {
		o.lazy = time.AfterFunc(delay, o.flush)
	} else {
		o.lazy.Reset(delay)
	}
	return nil
}

// flush wakes the writer for frames that are not urgent.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wakeLocked()
}

// ping requests a ping, which is written before all queued frames.
func (o *outbox) ping() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pingDue = o.open
	o.wakeLocked()
}

// enqueueLocked accounts for a frame and queues it.
func (o *outbox) enqueueLocked(frame []byte) error {
	cost := len(frame) + frameOverhead
	switch {
	case !o.open:
		return errOutboxNotOpen
	case cost > o.limit:
		return errFrameTooBig
	case o.size+cost > o.limit:
		return errOutboxFull
	}
	queued := queuedFrame{text: frame}
	if o.size+cost > unsentLeft {
		var err error
		if queued.held, err = o.writer.holdUnsent(cost); err != nil {
			return errOutboxesFull
		}
	}
	o.size += cost
	o.queue = append(o.queue, queued)
	return nil
}

// wakeLocked wakes a writer if there is something to write and the outbox has no writer.
func (o *outbox) wakeLocked() {
	if o.hasWriter || len(o.queue) == 0 && !o.pingDue {
		return
	}
	o.hasWriter = true
	o.writer.wakeWriter()
}

type outgoing struct {
	frame  []byte // nil: a ping
	corked bool   // another frame follows immediately, so this one may be held back
}

// next returns the frame to write now. Calling it also means that the previous frame is done. If next returns false,
// there is nothing to write, and the writer must not call it again until it is woken.
func (o *outbox) next() (out outgoing, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= o.writingBytes
	o.writing.held.Release()
	o.writingBytes, o.writing = 0, queuedFrame{}
	switch {
	case o.pingDue:
		o.pingDue = false
		return outgoing{}, true
	case len(o.queue) == 0:
		o.hasWriter = false
		o.signalLocked()
		return outgoing{}, false
	}
	o.writing = o.queue[0]
	out.frame = o.writing.text
	o.queue[0] = queuedFrame{}
	o.queue = o.queue[1:]
	out.corked = len(o.queue) > 0
	if !out.corked {
		o.queue = nil // an idle connection keeps no buffer
	}
	o.writingBytes = len(out.frame) + frameOverhead
	return out, true
}

// abandon releases what the frame being written holds of the pod's limit, because its writer will not call next again,
// or not soon enough.
func (o *outbox) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing.held.Release()
	o.writing = queuedFrame{}
}

// waiting returns the number of queued frames, and the cost in bytes of those and the one being written.
func (o *outbox) waiting() (frames, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue), o.size
}

// unsent returns the cost in bytes of the frames that are queued or being written, and whether the outbox takes more.
func (o *outbox) unsent() (size int, open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.size, o.open
}

// seal makes the outbox reject all further frames. The returned channel is closed when nothing is queued or being
// written: the frames were written, or discard dropped them because the connection died. It stays open if the
// connection dies during the first frame, because written is then not called.
func (o *outbox) seal() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.pingDue = false, false
	if o.drained == nil {
		o.drained = make(chan struct{})
	}
	if !o.hasWriter && len(o.queue) == 0 {
		o.signalLocked()
	}
	o.wakeLocked()
	return o.drained
}

// discard makes the outbox reject all further frames, and drops the queued ones. It does not affect the frame being
// written.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.pingDue = false, false
	for _, frame := range o.queue {
		o.size -= len(frame.text) + frameOverhead
		frame.held.Release()
	}
	o.queue = nil
	if o.lazy != nil {
		o.lazy.Stop()
	}
}

// signalLocked closes drained if seal has made it. It is called only when nothing is queued or being written.
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
