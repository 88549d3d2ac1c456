package ws

import (
	"errors"
	"strconv"
	"sync"
	"testing"
)

// recorder is the far side of an outbox: it holds what was handed over until the test says it was written.
type recorder struct {
	mu     sync.Mutex
	frames []string
}

func (r *recorder) hand(frame []byte, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames = append(r.frames, string(frame))
}

func newOutbox(limit int) (*outbox, *recorder) {
	r := &recorder{}
	return &outbox{hand: r.hand, limit: limit}, r
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestOutboxHandsOverOneAtATimeInOrder(t *testing.T) {
	o, r := newOutbox(1 << 20)
	if err := o.push([]byte("early")); !errors.Is(err, errOutboxClosed) {
		t.Fatalf("push before start: %v", err)
	}
	o.start([]byte("0"))
	for i := 1; i < 10; i++ {
		if err := o.push([]byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if len(r.frames) != i+1 || r.frames[i] != strconv.Itoa(i) {
			t.Fatalf("handed over: %v", r.frames)
		}
		o.sent()
	}
	if o.size != 0 || o.queue != nil {
		t.Fatalf("size %d, queue %v", o.size, o.queue)
	}
}

func TestOutboxIsBoundedInBytes(t *testing.T) {
	o, _ := newOutbox(3 * (100 + frameOverhead))
	o.start(make([]byte, 100))
	for range 2 {
		if err := o.push(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.push(nil); !errors.Is(err, errOutboxFull) {
		t.Fatalf("push into a full outbox: %v", err)
	}
	if err := o.push(make([]byte, 1000)); !errors.Is(err, errFrameTooBig) {
		t.Fatalf("push of a frame that never fits: %v", err)
	}
	o.sent()
	if err := o.push(make([]byte, 100)); err != nil {
		t.Fatalf("push after there is room: %v", err)
	}
}

func TestOutboxSealDrains(t *testing.T) {
	o, r := newOutbox(1 << 20)
	o.start([]byte("a"))
	_ = o.push([]byte("b"))
	drained := o.seal()
	if err := o.push([]byte("c")); !errors.Is(err, errOutboxClosed) {
		t.Fatalf("push after seal: %v", err)
	}
	o.sent()
	if isClosed(drained) {
		t.Fatal("drained with a frame under way")
	}
	o.sent()
	if !isClosed(drained) || !isClosed(o.seal()) || len(r.frames) != 2 {
		t.Fatalf("not drained after %v", r.frames)
	}

	late, r := newOutbox(1 << 20)
	if !isClosed(late.seal()) {
		t.Fatal("an empty outbox has nothing to drain")
	}
	late.start([]byte("x"))
	if len(r.frames) != 0 {
		t.Fatalf("sealed, then handed over %v", r.frames)
	}
}

func TestOutboxDiscardForgets(t *testing.T) {
	o, r := newOutbox(1 << 20)
	o.start([]byte("a"))
	_ = o.push([]byte("b"))
	o.discard()
	o.sent()
	if len(r.frames) != 1 || o.size != 0 {
		t.Fatalf("handed over %v, size %d", r.frames, o.size)
	}
}

func TestOutboxUnderManySenders(t *testing.T) {
	const senders, each = 8, 500
	written := make(chan []byte, senders*each+1)
	o := &outbox{hand: func(f []byte, _ bool) { written <- f }, limit: 1 << 30}
	o.start([]byte("first"))
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				_ = o.push([]byte(strconv.Itoa(s) + "." + strconv.Itoa(i)))
			}
		})
	}
	for range senders*each + 1 {
		<-written
		if len(written) != 0 {
			t.Fatal("two frames under way at once")
		}
		o.sent()
	}
	all.Wait()
	if o.size != 0 {
		t.Fatalf("size %d", o.size)
	}
}
