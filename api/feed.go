package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

const (
	feedPage  = 100       // entries per read for a client that catches up
	feedWrite = 256 << 10 // bytes per write, about, to a client that has caught up
	catchUps  = 4         // clients that catch up at a time
	feedWait  = 10 * time.Second
	feedPause = time.Second // before a retry after the store failed
)

// activityTypes returns the types of entries in a feed.
func activityTypes() []string {
	return []string{
		registry.ActivityConnected, registry.ActivityUpdated, registry.ActivityDisconnected, registry.ActivityTools,
		registry.ActivityCall, registry.ActivityCallQueued, registry.ActivityCallProgress, registry.ActivityTurnStarted,
		registry.ActivityTurnFinished, registry.ActivityPodDied, registry.ActivityApprovalRequested,
		registry.ActivityApprovalDecided, registry.ActivityBudgetWarning, registry.ActivityBudgetSpent,
	}
}

func activityOf(a registry.Activity) wire.Activity {
	shown := wire.Activity{
		Type: a.Type, At: shownTime(a.At), Pod: a.Pod, SessionID: a.SessionID, DeviceID: a.DeviceID, UserID: a.UserID,
		Reason: a.Reason, Turn: a.Turn,
	}
	if a.Type == registry.ActivityTools {
		shown.Tools = new(append([]string{}, a.Tools...))
	}
	if n := a.Approval; n != nil {
		shown.Approval = &wire.ApprovalNote{
			ID: n.ID, CallID: n.CallID, Tool: n.Tool, UserID: n.Owner, State: n.State, DecidedBy: n.DecidedBy,
			ExpiresAt: shownTime(n.ExpiresAt),
		}
	}
	if a.Call != nil {
		shown.Call = new(summaryOf(*a.Call))
	}
	return shown
}

// events streams new activity of the caller's tenant that the caller may see. A reconnecting client continues where it
// was.
func (h *handler) events(c *gin.Context, q *params) error {
	tenant, viewer := caller(c).Tenant, caller(c).Viewer()
	types := q.someOf("type", activityTypes()...)
	if err := q.failed(); err != nil {
		return err
	}
	after, err := lastEventID(c, q)
	if err != nil {
		return err
	}
	release, err := h.reserveStream(h.owner(c))
	if err != nil {
		return err
	}
	defer release()
	if after == "" {
		if after, err = h.Calls.FeedEnd(storeContext(c), tenant); err != nil {
			return err
		}
	}
	h.serveStream(c, func(ctx context.Context, s *ssewriter.Stream) error {
		reader, leave := h.hub.follow(tenant)
		defer leave()
		f := &feedFollower{
			handler: h, by: h.owner(c), reader: reader, viewer: viewer, after: after, out: s, types: types,
		}
		return f.writeAll(ctx)
	})
	return nil
}

// feedFollower writes a feed to one stream.
type feedFollower struct {
	*handler
	by     share.Owner
	reader *feedReader
	viewer string // write only entries of this user; empty: all
	after  string // the last entry written or skipped
	out    *ssewriter.Stream
	types  []string // the requested types; empty: all
}

var errTooSlow = errors.New("the client is too slow: entries that it has not received were dropped")

// writeAll writes the entries after f.after, and new ones, until ctx ends.
func (f *feedFollower) writeAll(ctx context.Context) error {
	for ctx.Err() == nil {
		at, ok, grown := f.reader.place(f.after)
		var err error
		switch {
		case ok:
			return f.follow(ctx, at)
		case grown != nil:
			await(ctx, grown, max(f.out.UntilHeartbeat(), time.Millisecond))
			err = f.out.Flush()
		default:
			err = f.catchUp(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// follow writes the reader's entries from a position on.
func (f *feedFollower) follow(ctx context.Context, at int64) error {
	for ctx.Err() == nil {
		entries, ok, grown := f.reader.from(at, feedWrite)
		if !ok {
			return errTooSlow // the client can reconnect with the id of the last entry
		}
		for _, e := range entries {
			if f.wants(e.kind, e.owner) {
				f.out.PutEncoded(e.text)
			}
		}
		at += int64(len(entries))
		if err := f.out.Flush(); err != nil {
			return err
		}
		if len(entries) == 0 {
			await(ctx, grown, max(f.out.UntilHeartbeat(), time.Millisecond))
		}
	}
	return nil
}

// catchUp writes a page of entries for a client that was away for longer than the reader stores them. Few clients may
// catch up at a time.
func (f *feedFollower) catchUp(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, max(f.out.UntilHeartbeat(), time.Millisecond))
	defer cancel()
	release, err := f.catchingUp.wait(limited, f.by)
	if err != nil {
		return f.out.Flush()
	}
	defer release()
	base := f.reader.start()
	entries, err := f.Calls.Feed(ctx, f.by.Tenant, f.after, feedPage, 0)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil: // keep the connection: a browser that gets an error never reconnects
		f.Log.Debug("feed not read", "error", err)
		_ = pause.For(ctx, feedPause)
	case len(entries) == 0: // the entries were trimmed
		f.after = base
	}
	for _, a := range entries {
		if f.after = a.ID; f.wants(a.Type, a.Owner()) {
			if err := f.out.Put(a.ID, a.Type, activityOf(a)); err != nil {
				return err
			}
		}
	}
	return f.out.Flush()
}

func (f *feedFollower) wants(kind string, owner registry.ActivityOwner) bool {
	return (len(f.types) == 0 || slices.Contains(f.types, kind)) && owner.SeenBy(f.viewer)
}

const (
	// hubRead is the maximum number of entries per read of a feed. The reader then pauses for hubPause, so that entries
	// in quick succession are written to each stream together.
	hubRead  = 500
	hubPause = 100 * time.Millisecond

	// hubBytes bounds the entries of one feed that are buffered for its streams. A stream that falls behind them is
	// closed.
	hubBytes = 2 << 20
)

// feedHub reads the feed of each tenant once for all streams of this pod. It is safe for concurrent use.
type feedHub struct {
	calls Calls
	log   *slog.Logger

	mu      sync.Mutex
	readers map[string]*feedReader // by tenant
}

// feedReader reads one feed while there are followers, and keeps its newest entries.
type feedReader struct {
	followers int // guarded by the hub's lock
	stop      context.CancelFunc
	done      chan struct{}

	mu      sync.Mutex
	started bool          // base is known
	base    string        // the entry before the first of kept
	dropped int64         // number of entries dropped: the position of the first of kept
	kept    []feedEntry   // in order
	bytes   int           // of kept
	grown   chan struct{} // closed and replaced when the reader begins or adds entries
}

// feedEntry is an encoded entry of a feed.
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
// the reader has stopped.
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

// readFeed reads the feed from its current end until ctx ends.
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
		case err != nil: // the streams stay open until the store is available
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
		if pause.For(ctx, rest) != nil {
			return
		}
	}
}

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
		if err := ssewriter.Append(&b, a.ID, a.Type, activityOf(a)); err != nil { // cannot happen: it has no raw JSON
			log.Error("feed entry not encoded", "id", a.ID, "error", err)
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
	clear(r.kept[:drop]) // frees the entries; their array stays for a while
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

// place returns the position of the first entry after the one with that id. ok is false if entries in between may have
// been dropped, or if the reader has not begun. In the second case grown is closed when it begins.
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

// from returns the kept entries from a position on, up to about limit bytes, and a channel that is closed when entries
// are added. ok is false if the entry at that position was dropped.
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
