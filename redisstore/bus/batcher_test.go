package bus

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// gate is a flush function that lets a test decide when a batch is done.
type gate struct {
	started chan []*int
	proceed chan struct{}
}

func newGate() *gate { return &gate{started: make(chan []*int, 100), proceed: make(chan struct{})} }

func (g *gate) flush(batch []*int) {
	g.started <- batch
	<-g.proceed
}

func (g *gate) batcher(limits batchLimits) *batcher[*int] {
	return &batcher[*int]{flush: g.flush, size: func(n *int) int { return *n }, limits: limits}
}

func item(size int) *int { return &size }

var wide = batchLimits{queueItems: 100, queueBytes: 1000, flushItems: 100, flushBytes: 1000}

func TestBatcherFlushesALonelyItemInline(t *testing.T) {
	var flushed [][]*int
	b := &batcher[*int]{flush: func(batch []*int) { flushed = append(flushed, batch) },
		size: func(*int) int { return 1 }, limits: wide}
	for range 3 {
		if !b.submit(item(1), true) {
			t.Fatal("refused")
		}
	}
	if len(flushed) != 3 { // no synchronisation: the race detector would object to another goroutine
		t.Errorf("%d flushes, want 3", len(flushed))
	}
}

// A panic in a flush costs its submitter, who may be a request that is recovered, and nobody else.
func TestBatcherGoesOnAfterAPanic(t *testing.T) {
	flushed := make(chan int, 10)
	b := &batcher[*int]{size: func(*int) int { return 1 }, limits: wide}
	b.flush = func(batch []*int) {
		for _, i := range batch {
			if *i == 13 {
				b.submit(item(1), true) // queued behind it
				panic("thirteen")
			}
			flushed <- *i
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the submitter did not get its panic")
			}
		}()
		b.submit(item(13), true)
	}()
	b.submit(item(2), true)
	for _, want := range []int{1, 2} {
		select {
		case got := <-flushed:
			if got != want {
				t.Errorf("flushed %d, want %d", got, want)
			}
		case <-time.After(testkit.Limit):
			t.Fatalf("%d never left", want)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
	defer cancel()
	if left := b.close(ctx); len(left) != 0 {
		t.Errorf("%d left", len(left))
	}
}

func TestBatcherSendsWhatQueuesTogether(t *testing.T) {
	g := newGate()
	b := g.batcher(wide)
	var first sync.WaitGroup
	first.Go(func() { b.submit(item(1), true) })
	if got := <-g.started; len(got) != 1 {
		t.Fatalf("first batch has %d items", len(got))
	}
	want := []*int{item(1), item(2), item(3)}
	for _, i := range want {
		b.submit(i, true) // returns at once although a batch is under way
	}
	g.proceed <- struct{}{}
	first.Wait() // the first submitter does not wait for the others' batch
	if got := <-g.started; !slices.Equal(got, want) {
		t.Errorf("second batch %v, want the three that queued, in order", got)
	}
	g.proceed <- struct{}{}
	if left := b.close(context.Background()); left != nil {
		t.Errorf("left %v", left)
	}
}

func TestBatcherNeverFlushesInTheCaller(t *testing.T) {
	g := newGate()
	b := g.batcher(wide)
	if !b.submit(item(1), false) { // would hang here otherwise
		t.Fatal("refused")
	}
	<-g.started
	g.proceed <- struct{}{}
	b.close(context.Background())
}

func TestBatcherBounds(t *testing.T) {
	g := newGate()
	b := g.batcher(batchLimits{queueItems: 3, queueBytes: 10, flushItems: 2, flushBytes: 6})
	b.submit(item(1), false)
	<-g.started
	for i, c := range []struct {
		size int
		want bool
	}{{4, true}, {4, true}, {3, false}, {2, true}, {0, false}} {
		if got := b.submit(item(c.size), false); got != c.want {
			t.Errorf("item %d of %d bytes: accepted %v", i, c.size, got)
		}
	}
	for _, want := range []int{1, 2} { // 4 | 4+2: a batch holds six bytes
		g.proceed <- struct{}{}
		if got := <-g.started; len(got) != want {
			t.Errorf("a batch of %d items, want %d", len(got), want)
		}
	}
	if !b.submit(item(10_000), false) { // larger than any limit, but alone
		t.Error("a lonely large item was refused")
	}
	g.proceed <- struct{}{}
	<-g.started
	g.proceed <- struct{}{}
	b.close(context.Background())
}

func TestBatcherWithdraw(t *testing.T) {
	g := newGate()
	b := g.batcher(wide)
	under, queued := item(1), item(2)
	b.submit(under, false)
	<-g.started
	b.submit(queued, false)
	if b.cancel(under) {
		t.Error("took back an item that is under way")
	}
	if !b.cancel(queued) || b.bytes != 0 {
		t.Errorf("could not take back a queued item; %d bytes counted", b.bytes)
	}
	g.proceed <- struct{}{}
	b.close(context.Background())
	if len(g.started) != 0 {
		t.Error("a withdrawn item was flushed")
	}
}

// TestBatcherWithdrawsInPlace: when Redis hangs, thousands of senders give up one after the other, oldest first, and
// each must not cost a copy of the queue.
func TestBatcherWithdrawsInPlace(t *testing.T) {
	const n = 1000
	g := newGate()
	b := g.batcher(batchLimits{queueItems: n, queueBytes: n, flushItems: 2, flushBytes: n})
	b.submit(item(1), false)
	under := <-g.started
	queued := make([]*int, n)
	for i := range queued {
		queued[i] = item(1)
		b.submit(queued[i], false)
	}
	g.proceed <- struct{}{}
	batch := <-g.started // the first two, cut off the same array
	next := 2
	if copies := testing.AllocsPerRun(400, func() {
		b.cancel(queued[next]) // the oldest
		next++
		b.cancel(queued[n+2-next]) // and the youngest
	}); copies != 0 {
		t.Errorf("%v allocations for two withdrawals", copies)
	}
	if len(under) != 1 || !slices.Equal(batch, queued[:2]) {
		t.Error("a batch under way was changed")
	}
	rest := queued[next : n+2-next]
	if !slices.Equal(b.queue, rest) || b.bytes != len(rest) {
		t.Errorf("%d items of %d bytes are left, want %d in order", len(b.queue), b.bytes, len(rest))
	}
	b.mu.Lock()
	b.queue, b.bytes = nil, 0
	b.mu.Unlock()
	g.proceed <- struct{}{}
	b.close(context.Background())
}

func TestBatcherClose(t *testing.T) {
	g := newGate()
	b := g.batcher(wide)
	b.submit(item(1), false)
	<-g.started
	queued := item(2)
	b.submit(queued, false)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	left := make(chan []*int)
	go func() { left <- b.close(ctx) }()
	select {
	case got := <-left:
		t.Fatalf("close did not wait for the batch under way; left %v", got)
	case <-time.After(20 * time.Millisecond):
	}
	g.proceed <- struct{}{}
	if got := <-left; !slices.Equal(got, []*int{queued}) {
		t.Errorf("left %v", got)
	}
	if b.submit(item(1), true) {
		t.Error("a closed batcher accepted an item")
	}
}

func TestBatcherManySubmitters(t *testing.T) {
	const submitters, each = 16, 500
	var mu sync.Mutex
	seen, concurrent := make(map[*int]int), 0
	b := &batcher[*int]{size: func(*int) int { return 1 },
		limits: batchLimits{queueItems: submitters * each, queueBytes: 1 << 20, flushItems: 7, flushBytes: 1 << 20}}
	b.flush = func(batch []*int) {
		mu.Lock()
		concurrent++
		if concurrent != 1 {
			t.Error("two flushes at once")
		}
		for _, i := range batch {
			seen[i]++
		}
		mu.Unlock()
		mu.Lock()
		concurrent--
		mu.Unlock()
	}
	var wg sync.WaitGroup
	for n := range submitters {
		wg.Go(func() {
			for range each {
				if !b.submit(item(n), n%2 == 0) {
					t.Error("refused")
				}
			}
		})
	}
	wg.Wait()
	b.close(context.Background())
	if len(seen) != submitters*each {
		t.Errorf("%d items flushed of %d", len(seen), submitters*each)
	}
	for _, n := range seen {
		if n != 1 {
			t.Fatalf("an item was flushed %d times", n)
		}
	}
}
