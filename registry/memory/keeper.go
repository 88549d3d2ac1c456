package memory

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	// commitWait is how long a writer waits for the disk. After it, the outcome of the write is unknown.
	commitWait = 10 * time.Second

	// retryPause is how long writes fail at once after a failed commit, because each failure reads the journal again.
	retryPause = time.Second

	// closeWait is how long closing waits for the disk even if its context has ended.
	closeWait = time.Second

	// maxBacklog is how many bytes may wait for the disk. Beyond it, writes fail at once.
	maxBacklog = 64 << 20

	recordWeight = 64 // approximate size of a waiting record without its key and value, in bytes
)

// keeper writes the changes of a Store to its Journal, in order. Writers that wait at the same time share one commit.
//
// A change is made in memory first, under the lock of what it changes, and acknowledged once it is on the disk. So
// readers never wait for the disk, and may see a change that a crash still undoes; its writer was never answered, nor
// that of any later change. If a commit fails, the keeper takes what the journal has back into memory, for all changes
// that have not been committed. Meanwhile the gate keeps others from making new ones.
type keeper struct {
	journal Journal
	load    map[Kind]func(Record) error
	expire  func() // removes what has expired; called once a minute
	flush   func() // adds what is written with a delay; called flushDelay after a signal on later
	log     *slog.Logger

	gate sync.RWMutex // writers hold it while they change memory

	mu     sync.Mutex
	open   *batch // collects changes; nil: there are none
	busy   *batch // is being committed; nil: none is
	err    error  // of the last commit
	failed time.Time
	broken bool // memory may differ from the journal: no more writes
	closed bool

	wake  chan struct{} // capacity 1: there is an open batch, or the keeper is closed
	later chan struct{} // capacity 1: something is to be flushed
	done  chan struct{} // closed when run has ended
}

// batch is the changes of one commit.
type batch struct {
	changes []Record
	bytes   int
	done    chan struct{} // closed after the commit
	err     error         // of the commit; valid once done is closed
}

func newKeeper(j Journal, log *slog.Logger) *keeper {
	return &keeper{
		journal: j, log: log, wake: make(chan struct{}, 1), later: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// change is one atomic change of a Store. The nil change belongs to a store without a journal: it records nothing.
type change struct {
	k       *keeper
	records []Record
	batch   *batch // waits for the disk: with the change, or the last one before it
	made    bool   // the batch has records of this change
}

// begin starts a change. Its caller ends it with wait or end.
func (k *keeper) begin() (*change, error) {
	if k == nil {
		return nil, nil
	}
	k.gate.RLock()
	if err := k.refuses(); err != nil {
		k.gate.RUnlock()
		return nil, registry.StoreUnavailable("write to the state file", err)
	}
	return &change{k: k}, nil
}

var (
	errClosed  = errors.New("the store is closed")
	errBacklog = errors.New("the disk is too slow: too many changes wait for it")
	errBroken  = errors.New("the state file could not be read after a failure: restart the gateway")
)

// refuses returns why nothing can be written now.
func (k *keeper) refuses() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return errClosed
	case k.broken:
		return errBroken
	case k.err != nil && time.Since(k.failed) < retryPause:
		return k.err
	case k.open != nil && k.open.bytes > maxBacklog:
		return errBacklog
	}
	return nil
}

// works reports whether the last commit succeeded, and the keeper is open.
func (k *keeper) works() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err == nil && !k.broken && !k.closed
}

// put records a new value. The caller must not change it afterwards.
func (c *change) put(kind Kind, key string, value []byte) {
	if c != nil {
		c.records = append(c.records, Record{kind, key, value})
	}
}

// drop records that a value was removed.
func (c *change) drop(kind Kind, key string) { c.put(kind, key, nil) }

// kept reports whether the change is written anywhere. Without, values need not be encoded.
func (c *change) kept() bool { return c != nil }

// unlock queues what was recorded, and then unlocks what the change was made under. So changes of the same data reach
// the journal in the order in which they were made.
func (c *change) unlock(l sync.Locker) {
	c.queue()
	l.Unlock()
}

// queue queues what was recorded. A change without records gets the last batch that waits, because an earlier change
// may have made what it found.
func (c *change) queue() {
	switch {
	case c == nil:
	case len(c.records) > 0:
		c.k.add(c)
	case c.batch == nil:
		c.k.mu.Lock()
		c.batch = cmp.Or(c.k.open, c.k.busy)
		c.k.mu.Unlock()
	}
}

// add adds the records of a change to the open batch.
func (k *keeper) add(c *change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open == nil {
		k.open = &batch{done: make(chan struct{})}
	}
	for _, r := range c.records {
		k.open.bytes += recordWeight + len(r.Key) + len(r.Value)
	}
	k.open.changes = append(k.open.changes, c.records...)
	c.records, c.batch, c.made = nil, k.open, true
	signal(k.wake)
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it is awake already
	}
}

// end ends a change without waiting for the disk.
func (c *change) end() {
	if c != nil {
		c.k.gate.RUnlock()
	}
}

// wait ends a change, and returns when it is on the disk. If ctx ends or the disk is slow, it fails, and the change may
// still get there.
func (c *change) wait(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.k.gate.RUnlock()
	if c.batch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitWait)
	defer cancel()
	select {
	case <-c.batch.done:
		if c.batch.err != nil {
			return registry.StoreUnavailable("write to the state file", c.batch.err)
		}
		return nil
	case <-ctx.Done():
		return registry.StoreUnavailable("wait for the state file", ctx.Err())
	}
}

// touch makes a change like write, but does not wait for earlier ones if nothing had to be recorded. It is for calls.
func (k *keeper) touch(ctx context.Context, f func(c *change) error) error {
	c, err := k.begin()
	if err != nil {
		return err
	}
	if err := f(c); err != nil || c == nil || !c.made {
		c.end()
		return err
	}
	return c.wait(ctx)
}

// write makes a change: f makes it in memory, and records it. It and all earlier changes are then on the disk.
func (k *keeper) write(ctx context.Context, f func(c *change) error) error {
	c, err := k.begin()
	if err != nil {
		return err
	}
	if err := f(c); err != nil {
		c.end()
		return err
	}
	return c.wait(ctx)
}

// run commits until the keeper is closed.
func (k *keeper) run() {
	defer close(k.done)
	expire := time.NewTicker(time.Minute)
	defer expire.Stop()
	var flush <-chan time.Time
	for {
		select {
		case <-k.wake:
		case <-expire.C:
			k.expire()
		case <-k.later:
			flush = time.After(flushDelay)
			continue
		case <-flush:
			k.flush()
		}
		if k.commit() {
			return
		}
	}
}

// flushDelay is how long rate limits may stay unwritten.
const flushDelay = time.Second

// commit commits the open batch, if there is one. It reports whether the keeper is closed, so that none follows.
func (k *keeper) commit() (last bool) {
	b, last := k.take()
	if b == nil {
		return last
	}
	err := k.journal.Commit(b.changes)
	if err == nil {
		k.note(nil)
		close(b.done)
		return last
	}
	k.gate.Lock()
	defer k.gate.Unlock()
	failed := []*batch{b}
	if b, _ = k.take(); b != nil { // made on top of what was not committed
		failed = append(failed, b)
	}
	k.revert(failed)
	k.note(err)
	for _, b := range failed {
		b.err = err
		close(b.done)
	}
	return last
}

func (k *keeper) take() (b *batch, closed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b, k.open = k.open, nil
	k.busy = cmp.Or(b, k.busy)
	return b, k.closed
}

// note remembers the outcome of a commit, and logs where failures begin and end.
func (k *keeper) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && k.err == nil:
		k.log.Error("state file cannot be written; changes fail until it can", "error", err)
	case err == nil && k.err != nil:
		k.log.Warn("state file can be written again")
	}
	k.busy = nil
	if k.err = err; err != nil {
		k.failed = time.Now()
	}
}

// revert takes what the journal has back into memory. The gate is held.
func (k *keeper) revert(failed []*batch) {
	var records []Record
	for _, b := range failed {
		for _, r := range b.changes {
			records = append(records, Record{Kind: r.Kind, Key: r.Key})
		}
	}
	place := make(map[Kind]int)
	for i, kind := range Kinds() {
		place[kind] = i
	}
	order := func(a, b Record) int {
		return cmp.Or(cmp.Compare(place[a.Kind], place[b.Kind]), cmp.Compare(a.Key, b.Key))
	}
	slices.SortFunc(records, order)
	records = slices.CompactFunc(records, func(a, b Record) bool { return order(a, b) == 0 })
	err := k.journal.Read(records)
	for i := 0; err == nil && i < len(records); i++ {
		err = k.load[records[i].Kind](records[i])
	}
	if err != nil {
		k.mu.Lock()
		k.broken = true
		k.mu.Unlock()
		k.log.Error("state file cannot be read; the gateway must be restarted", "error", err)
	}
}

// close commits what waits and closes the journal. Later changes fail. Call it once.
func (k *keeper) close(ctx context.Context) error {
	k.flush()
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	signal(k.wake)
	least, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	for _, ctx := range []context.Context{least, ctx} {
		select {
		case <-k.done:
			return k.journal.Close()
		case <-ctx.Done():
		}
	}
	return ctx.Err() // the disk hangs, so the file stays open
}
