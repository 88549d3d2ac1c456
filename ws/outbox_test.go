package ws

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/internal/share"
)

// recorder is the writer of an outbox: it holds what it was given, and takes the next when the test says so.
type recorder struct {
	out    *outbox
	frames []string // "ping" for a ping
	woken  int
	room   *share.Pool // for frames that wait
}

func (r *recorder) wakeWriter() { r.woken++ }

func (r *recorder) holdUnsent(n int) (*share.Grant, error) {
	if r.room == nil {
		r.room = share.New(share.Bounds{Pod: 100 << 10})
	}
	return r.room.Try(share.Owner{Tenant: "t"}, int64(n))
}

// next says that what is under way was written, and takes what follows.
func (r *recorder) next() bool {
	out, ok := r.out.next()
	switch {
	case !ok:
	case out.frame == nil:
		r.frames = append(r.frames, "ping")
	case out.corked:
		r.frames = append(r.frames, string(out.frame)+"+")
	default:
		r.frames = append(r.frames, string(out.frame))
	}
	return ok
}

// all takes everything there is.
func (r *recorder) all() string {
	for r.next() {
	}
	return strings.Join(r.frames, " ")
}

// newOutbox returns an outbox whose first frame has been written.
func newOutbox(limit int) (*outbox, *recorder) {
	r := &recorder{}
	r.out = &outbox{writer: r, limit: limit}
	if err := r.out.push([]byte("early")); !errors.Is(err, errOutboxNotOpen) {
		panic("open before it was started")
	}
	if !r.out.start([]byte("start")) || r.next() {
		panic("more than the first frame")
	}
	return r.out, r
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
	for i := range 10 {
		if err := o.push([]byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if !r.next() || len(r.frames) != i+1 || r.frames[i][:1] != strconv.Itoa(i) {
			t.Fatalf("handed over: %v", r.frames)
		}
	}
	if r.next() || r.woken != 1 || o.size != 0 || o.queue != nil {
		t.Fatalf("woken %d times, size %d, queue %v", r.woken, o.size, o.queue)
	}
	_ = o.push([]byte("again"))
	if r.woken != 2 || !r.next() {
		t.Fatal("the writer is not woken again")
	}
}

func TestOutboxIsBoundedInBytes(t *testing.T) {
	o, r := newOutbox(3 * (100 + frameOverhead))
	for range 3 {
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
	r.next()
	if err := o.push(make([]byte, 100)); !errors.Is(err, errOutboxFull) {
		t.Fatalf("push while a frame is under way: %v", err)
	}
	r.next()
	if err := o.push(make([]byte, 100)); err != nil {
		t.Fatalf("push after there is room: %v", err)
	}
}

func TestOutboxPingsBeforeWhatIsQueued(t *testing.T) {
	o, r := newOutbox(1 << 20)
	o.ping()
	o.ping() // the first is still to be written
	if r.woken != 1 {
		t.Fatalf("woken %d times", r.woken)
	}
	_ = o.push([]byte("a"))
	if got := r.all(); got != "ping a" {
		t.Fatalf("handed over: %s", got)
	}
	_ = o.push([]byte("b"))
	o.ping()
	drained := o.seal()
	o.ping()
	if got := r.all(); got != "ping a b" || !isClosed(drained) {
		t.Fatalf("a sealed outbox pings nobody: %s", got)
	}
}

func TestOutboxSealDrains(t *testing.T) {
	o, r := newOutbox(1 << 20)
	_ = o.push([]byte("a"))
	r.next()
	_ = o.push([]byte("b"))
	drained := o.seal()
	if err := o.push([]byte("c")); !errors.Is(err, errOutboxNotOpen) {
		t.Fatalf("push after seal: %v", err)
	}
	r.next()
	if isClosed(drained) {
		t.Fatal("drained with a frame under way")
	}
	if r.next() || !isClosed(drained) || !isClosed(o.seal()) || len(r.frames) != 2 {
		t.Fatalf("not drained after %v", r.frames)
	}

	late := &outbox{writer: r, limit: 1 << 20}
	if !isClosed(late.seal()) {
		t.Fatal("an empty outbox has nothing to drain")
	}
	if late.start([]byte("x")) || late.size != 0 {
		t.Fatal("sealed, then started")
	}
}

func TestOutboxDiscardForgets(t *testing.T) {
	o, r := newOutbox(1 << 20)
	_ = o.push([]byte("a"))
	r.next()
	_ = o.push([]byte("b"))
	o.ping()
	drained := o.seal()
	o.discard()
	if isClosed(drained) {
		t.Fatal("drained with a frame under way")
	}
	if got := r.all(); got != "a" || o.size != 0 || !isClosed(drained) {
		t.Fatalf("handed over %s, size %d", got, o.size)
	}
}

// crew is a writer with a goroutine for each time it is woken.
type crew struct {
	out     *outbox
	writing atomic.Int32
	written atomic.Int32
	twice   atomic.Bool
	work    sync.WaitGroup
}

func (*crew) holdUnsent(int) (*share.Grant, error) { return nil, nil }

func (c *crew) wakeWriter() {
	c.work.Go(func() {
		for {
			if _, ok := c.out.next(); !ok {
				return
			}
			if c.writing.Add(1) > 1 {
				c.twice.Store(true)
			}
			c.written.Add(1)
			c.writing.Add(-1)
		}
	})
}

func TestOutboxUnderManySenders(t *testing.T) {
	const senders, each = 8, 500
	c := &crew{}
	c.out = &outbox{writer: c, limit: 1 << 30}
	c.out.start([]byte("first"))
	c.out.next()
	var all sync.WaitGroup
	for s := range senders {
		all.Go(func() {
			for i := range each {
				_ = c.out.push([]byte(strconv.Itoa(s) + "." + strconv.Itoa(i)))
			}
		})
	}
	all.Wait()
	c.work.Wait()
	if n := c.written.Load(); n != senders*each || c.out.size != 0 {
		t.Fatalf("%d frames written, size %d", n, c.out.size)
	}
	if c.twice.Load() {
		t.Fatal("two frames under way at once")
	}
}

// Once the first frame is written a writer is called if there is more, and only then: the connection may be gone by
// that time.
func TestOutboxAfterTheFirstFrame(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		meanwhile func(*outbox)
		woken     int
	}{
		"nothing more":    {meanwhile: func(*outbox) {}},
		"another frame":   {meanwhile: func(o *outbox) { _ = o.push([]byte("2")) }, woken: 1},
		"a ping":          {meanwhile: (*outbox).ping, woken: 1},
		"the end":         {meanwhile: (*outbox).discard},
		"a frame, an end": {meanwhile: func(o *outbox) { _ = o.push([]byte("2")); o.discard() }},
	} {
		w := &recorder{}
		o := &outbox{writer: w, limit: 1 << 10}
		w.out = o
		if !o.start([]byte("1")) {
			t.Fatal("not started")
		}
		tt.meanwhile(o)
		if w.woken != 0 {
			t.Errorf("%s: a writer was called while the first frame was written", name)
		}
		o.written()
		if w.woken != tt.woken {
			t.Errorf("%s: writers were called %d times", name, w.woken)
		}
		for w.next() {
			continue
		}
		if drained := o.seal(); o.size != 0 || !isClosed(drained) {
			t.Errorf("%s: %d bytes remain", name, o.size)
		}
	}
}

// Frames beyond the first few kilobytes take a part of the pod's bytes until they are written, or dropped.
func TestOutboxHoldsBytesOfThePod(t *testing.T) {
	o, r := newOutbox(1 << 20)
	for range 4 {
		if err := o.push(make([]byte, 10<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if held := r.room.Held("t"); held < 30<<10 || held > 31<<10 {
		t.Errorf("%d bytes are held of four frames, of which one is free", held)
	}
	if err := o.push(make([]byte, 60<<10)); !errors.Is(err, errOutboxesFull) {
		t.Errorf("a frame beyond what the tenant may have: %v", err)
	}
	for r.next() {
	}
	if held := r.room.Held("t"); held != 0 {
		t.Errorf("%d bytes are held of frames that were written", held)
	}
	_ = o.push(make([]byte, 30<<10))
	r.next()
	o.abandon()
	if held := r.room.Held("t"); held != 0 {
		t.Errorf("%d bytes are held of a frame whose writer is gone", held)
	}
}
