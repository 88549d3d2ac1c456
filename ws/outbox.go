package ws

import (
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
)

// frameOverhead is what a waiting frame costs besides its bytes, so that a flood of tiny frames is bounded too.
const frameOverhead = 64

// freeUnsent is how many bytes an outbox holds without a part of the pod's bytes. Most never hold more.
const freeUnsent = 16 << 10

// These errors say why an outbox does not take a frame.
var (
	errOutboxNotOpen = errors.New("ws: the outbox is not open")
	errOutboxFull    = errors.New("ws: the outbox is full")
	errOutboxesFull  = errors.New("ws: the outboxes of a tenant, or of all, hold as much as they may")
	errFrameTooBig   = errors.New("ws: the frame is larger than the outbox")
)

// outboxOwner finds a writer for an outbox, and room for what it holds.
type outboxOwner interface {
	// wakeWriter starts a writer, which calls next until there is nothing more to write. wakeWriter returns at once,
	// because the outbox is locked while it runs. It is not called again before next has reported false.
	wakeWriter()

	// holdUnsent takes bytes of the pod's for a frame that waits. It must not use the outbox.
	holdUnsent(n int) (*share.Grant, error)
}

// queuedFrame is a frame that waits.
type queuedFrame struct {
	text []byte
	held *share.Grant // nil if it is one of the first
}

func (f queuedFrame) release() {
	if f.held != nil {
		f.held.Release()
	}
}

// outbox is the queue of frames to a device. It is bounded in bytes and never blocks the sender. It has one writer at a
// time, and none while there is nothing to write. It opens with its first frame and is safe for concurrent use.
type outbox struct {
	writer outboxOwner
	limit  int // bytes, with frameOverhead for each frame

	mu      sync.Mutex
	queue   []queuedFrame
	size    int // bytes that the queued frames and the one being written cost
	open    bool
	pingDue bool
	drained chan struct{} // made by seal; closed once nothing is queued and nothing is being written
	lazy    *time.Timer   // wakes the writer for frames that are not urgent; nil until the first such frame
	due     time.Time     // when lazy fires

	hasWriter    bool // a writer is writing, or has been woken
	writingBytes int  // what the frame being written costs; zero if there is none
	writing      queuedFrame
}

// start opens the outbox. The caller writes the first frame itself and then calls written. start reports false if the
// outbox was sealed before. In that case the caller writes nothing.
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

// written notes that the first frame has been written, and wakes the writer for frames that were queued meanwhile.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= o.writingBytes
	o.writingBytes, o.hasWriter = 0, false
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
	if err := o.enqueueLocked(frame); err != nil {
		return err
	}
	o.wakeLocked()
	return nil
}

// pushLazily queues a frame that is not urgent: it leaves with the next frame, or after delay.
func (o *outbox) pushLazily(frame []byte, delay time.Duration) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.enqueueLocked(frame); err != nil {
		return err
	}
	due := time.Now().Add(delay)
	if o.hasWriter || len(o.queue) > 1 && !due.Before(o.due) { // the frame leaves together with those before it
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

// ping asks for a ping, which is written before everything that is queued.
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
	if o.size+cost > freeUnsent {
		held, err := o.writer.holdUnsent(cost)
		if err != nil {
			return errOutboxesFull
		}
		queued.held = held
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

// outgoing is what to write next.
type outgoing struct {
	frame  []byte // nil: a ping
	corked bool   // another frame follows at once, so this one need not leave by itself
}

// next returns what to write now. A call of next also says that the writer is done with what the call before returned.
// When next reports false there is nothing to write, and the writer must not call it again before it is woken.
func (o *outbox) next() (out outgoing, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size -= o.writingBytes
	o.writing.release()
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

// abandon releases the frame that is being written, whose writer is not going to call next again.
func (o *outbox) abandon() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing.release()
	o.writing = queuedFrame{}
}

// waiting returns how many frames are queued, and how many bytes they and the one being written cost.
func (o *outbox) waiting() (frames, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue), o.size
}

// seal makes the outbox refuse all further frames. The returned channel is closed once nothing is queued and nothing is
// being written: the frames were written, or discard dropped them because the connection died. It stays open if the
// connection dies while the first frame is written, because written is not called then.
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

// discard makes the outbox refuse all further frames, and drops those that are queued. It does not touch the frame
// that is being written.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open, o.pingDue = false, false
	for _, frame := range o.queue {
		o.size -= len(frame.text) + frameOverhead
		frame.release()
	}
	o.queue = nil
	if o.lazy != nil {
		o.lazy.Stop()
	}
}

// signalLocked closes drained if seal has made it. Nothing is queued or being written then.
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
