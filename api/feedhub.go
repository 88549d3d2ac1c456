package api

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/registry"
)

const (
	// hubRead is how many entries of a feed are read at once. The reader then pauses for hubPause, so that entries that
	// come soon after one another are written to each stream together.
	hubRead  = 500
	hubPause = 100 * time.Millisecond

	// hubBytes bounds the entries of one feed that are kept for its streams. A stream that falls behind them is
	// ended.
	hubBytes = 2 << 20
)

// feedHub reads the feed of each tenant once for all streams of this pod that follow it. It is safe for concurrent use.
type feedHub struct {
	calls Calls
	log   *slog.Logger

	mu      sync.Mutex
	readers map[string]*feedReader // by tenant
}

// feedReader reads one feed while it is followed, and keeps its newest entries.
type feedReader struct {
	followers int // guarded by the hub's lock
	stop      context.CancelFunc
	done      chan struct{}

	mu      sync.Mutex
	started bool          // base is known
	base    string        // the entry before the first of kept
	dropped int64         // how many entries were dropped: the place of the first of kept
	kept    []feedEntry   // in order
	bytes   int           // of kept
	grown   chan struct{} // closed and replaced when entries are added
}

// feedEntry is an entry of a feed as streams write it.
type feedEntry struct {
	id, kind string
	session  string
	owner    registry.ActivityOwner
	text     []byte
}

func newFeedHub(calls Calls, log *slog.Logger) *feedHub {
	return &feedHub{calls: calls, log: log, readers: make(map[string]*feedReader)}
}

// follow returns the reader of a tenant's feed. Its caller must call unfollow at the end. The last follower waits until
// the reader has ended.
func (h *feedHub) follow(tenant string) (_ *feedReader, unfollow func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.readers[tenant]
	if r == nil {
		ctx, stop := context.WithCancel(context.Background())
		r = &feedReader{stop: stop, done: make(chan struct{}), grown: make(chan struct{})}
		h.readers[tenant] = r
		go func() {
			defer close(r.done)
			r.readFeed(ctx, h, tenant)
		}()
	}
	r.followers++
	return r, func() { h.unfollow(tenant, r) }
}

func (h *feedHub) unfollow(tenant string, r *feedReader) {
	h.mu.Lock()
	r.followers--
	last := r.followers == 0
	if last {
		delete(h.readers, tenant)
	}
	h.mu.Unlock()
	if last {
		r.stop()
		<-r.done
	}
}

// readFeed reads the feed from its end on until ctx ends.
func (r *feedReader) readFeed(ctx context.Context, h *feedHub, tenant string) {
	for after, started := "", false; ; {
		var entries []registry.Activity
		var err error
		if started {
			entries, err = h.calls.Feed(ctx, tenant, after, hubRead, feedWait)
		} else {
			after, err = h.calls.FeedEnd(ctx, tenant)
		}
		rest := hubPause
		switch {
		case ctx.Err() != nil:
			return
		case err != nil: // the streams stay open until the store is back
			h.log.Debug("feed not read", "error", err)
			rest = feedPause
		case !started:
			started = true
			r.begin(after)
			continue
		case len(entries) > 0:
			after = entries[len(entries)-1].ID
			r.add(entries, h.log)
		}
		if !pause(ctx, rest) {
			return
		}
	}
}

// begin notes the entry after which the reader begins.
func (r *feedReader) begin(base string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.base = true, base
	r.wakeLocked()
}

// add keeps entries, each encoded once for all streams, and drops the oldest beyond hubBytes.
func (r *feedReader) add(entries []registry.Activity, log *slog.Logger) {
	fresh := make([]feedEntry, 0, len(entries))
	for _, a := range entries {
		var b bytes.Buffer
		if err := ssewriter.Append(&b, a.ID, a.Type, activityOf(a)); err != nil { // cannot happen: nothing in it is raw
			log.Error("entry of the feed not encoded", "id", a.ID, "error", err)
			continue
		}
		fresh = append(fresh, feedEntry{a.ID, a.Type, a.SessionID, a.Owner(), b.Bytes()})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range fresh {
		r.kept, r.bytes = append(r.kept, e), r.bytes+len(e.text)
	}
	drop := 0
	for ; drop < len(r.kept) && r.bytes > hubBytes; drop++ {
		r.bytes -= len(r.kept[drop].text)
		r.base = r.kept[drop].id
	}
	clear(r.kept[:drop]) // frees the entries, though their array stays for a while
	r.kept, r.dropped = r.kept[drop:], r.dropped+int64(drop)
	r.wakeLocked()
}

// start returns the id of the entry before the first of kept.
func (r *feedReader) start() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.base
}

func (r *feedReader) wakeLocked() {
	close(r.grown)
	r.grown = make(chan struct{})
}

// place returns the place of the first entry after the one with that id. ok is false if entries in between may have
// been dropped, or if the reader has not begun. In the second case grown is closed when it has.
func (r *feedReader) place(id string) (at int64, ok bool, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started && registry.CompareFeedIDs(id, r.base) < 0 {
		return 0, false, nil
	}
	n := len(r.kept)
	for n > 0 && registry.CompareFeedIDs(r.kept[n-1].id, id) > 0 {
		n--
	}
	return r.dropped + int64(n), r.started, r.grown
}

// from returns the kept entries from a place on, up to about limit bytes, and a channel that is closed when entries are
// added. ok is false if the entry at that place has been dropped.
func (r *feedReader) from(at int64, limit int) (entries []feedEntry, ok bool, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at < r.dropped {
		return nil, false, nil
	}
	rest := r.kept[at-r.dropped:]
	n := 0
	for ; n < len(rest) && limit > 0; n++ {
		limit -= len(rest[n].text)
	}
	return slices.Clone(rest[:n]), true, r.grown
}
