package registry

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	feedTTL       = 24 * time.Hour // life of a feed after the last entry
	maxCallEvents = 2048           // kept of one call
	maxMemoryLogs = 100_000        // calls that have events
)

// memoryFeed is the activity of one tenant.
type memoryFeed struct {
	entries []Activity
	bytes   int               // of the entries, about
	calls   map[string]feedID // the entries about the ends of calls, by their ids
	last    feedID
	grown   chan struct{} // closed, and replaced, when there is something new
	expires time.Time
}

// memoryLog is the event log of one call.
type memoryLog struct {
	events  []CallEvent
	last    feedID
	expires time.Time
}

var _ ActivityStore = (*Memory)(nil)

// AppendActivity implements ActivityStore.
func (m *Memory) AppendActivity(_ context.Context, all []Activity) error {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	now := m.opts.Now()
	grown := make(map[*memoryFeed]bool)
	for _, a := range all {
		feed := m.feedLocked(a.Tenant)
		feed.last = feed.last.next(now)
		a.ID = feed.last.String()
		if a.Call != nil {
			call := a.Call.Summary().clone()
			a.Call = &call
		}
		a.Tools = slices.Clone(a.Tools)
		feed.add(a)
		for len(feed.entries) > m.opts.ActivityCap || feed.bytes > m.opts.ActivityBytes && len(feed.entries) > 1 {
			feed.dropFirst()
		}
		feed.expires = now.Add(feedTTL)
		grown[feed] = true
	}
	for feed := range grown {
		close(feed.grown)
		feed.grown = make(chan struct{})
	}
	return nil
}

// add adds an entry whose id is the feed's last.
func (f *memoryFeed) add(a Activity) {
	f.entries = append(f.entries, a)
	f.bytes += a.weight()
	if a.Type == ActivityCall && a.Call != nil {
		f.calls[a.Call.CallID] = f.last
	}
}

// dropFirst forgets the oldest entry.
func (f *memoryFeed) dropFirst() {
	first := &f.entries[0]
	f.bytes -= first.weight()
	if first.Call != nil && f.calls[first.Call.CallID].String() == first.ID {
		delete(f.calls, first.Call.CallID)
	}
	*first = Activity{} // the array lives on for a while; what it refers to need not
	f.entries = f.entries[1:]
}

// FindCall implements ActivityStore.
func (m *Memory) FindCall(_ context.Context, tenant, callID string) (Record, error) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	feed := m.feeds[tenant]
	if feed == nil {
		return Record{}, ErrNoCall
	}
	id, ok := feed.calls[callID]
	if !ok {
		return Record{}, ErrNoCall
	}
	return feed.entries[feed.firstFrom(id)].Call.clone(), nil
}

// feedLocked returns the feed of a tenant, and makes it if there is none. A feed that was emptied stays the one
// its readers wait for.
func (m *Memory) feedLocked(tenant string) *memoryFeed {
	feed := m.feeds[tenant]
	if feed == nil {
		feed = &memoryFeed{grown: make(chan struct{}), calls: make(map[string]feedID)}
		m.feeds[tenant] = feed
	}
	return feed
}

// ReadActivity implements ActivityStore.
func (m *Memory) ReadActivity(ctx context.Context, tenant, after string, limit int, wait time.Duration) ([]Activity, error) {
	start, err := parseFeedID(after)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		found, grown := m.behind(tenant, start, limit)
		if len(found) > 0 || wait <= 0 {
			return found, nil
		}
		select {
		case <-grown:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, StoreUnavailable("read activity", ctx.Err())
		}
	}
}

// behind returns what stands behind start, and a channel that is closed when there is more.
func (m *Memory) behind(tenant string, start feedID, limit int) ([]Activity, <-chan struct{}) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	feed := m.feedLocked(tenant)
	i := feed.firstFrom(feedID{start.ms, start.seq + 1})
	return copyActivity(feed.entries[i:min(len(feed.entries), i+pageSize(limit))]), feed.grown
}

// LastActivity implements ActivityStore.
func (m *Memory) LastActivity(_ context.Context, tenant, before string, limit int) ([]Activity, error) {
	end, err := parseFeedID(before)
	if err != nil {
		return nil, err
	}
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	feed := m.feeds[tenant]
	if feed == nil {
		return nil, nil
	}
	n := len(feed.entries)
	if before != "" {
		n = feed.firstFrom(end)
	}
	page := copyActivity(feed.entries[max(0, n-pageSize(limit)):n])
	slices.Reverse(page)
	return page, nil
}

// firstFrom returns the index of the first entry that has this id or a later one.
func (f *memoryFeed) firstFrom(id feedID) int {
	i, _ := slices.BinarySearchFunc(f.entries, id, func(a Activity, id feedID) int {
		own, _ := parseFeedID(a.ID)
		return own.compare(id)
	})
	return i
}

// purgeFeeds forgets feeds nothing was added to for long. Whoever waits for one of them is woken and looks again.
func (m *Memory) purgeFeeds() {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	now := m.opts.Now()
	maps.DeleteFunc(m.feeds, func(_ string, f *memoryFeed) bool {
		if now.Before(f.expires) {
			return false
		}
		close(f.grown)
		return true
	})
}

// AppendCallEvents implements CallStore.
func (m *Memory) AppendCallEvents(_ context.Context, events []CallEvent) error {
	c := &m.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	now := m.opts.Now()
	for _, e := range events {
		if err := m.logLocked(e, now); err != nil {
			return err
		}
	}
	return nil
}

// logLocked adds to the log of a call, unless more than that is told already.
func (m *Memory) logLocked(e CallEvent, now time.Time) error {
	c := &m.calls
	key := memoryCallKey{e.Tenant, e.CallID}
	log := c.logs[key]
	if log == nil || !now.Before(log.expires) {
		if log == nil && len(c.logs) >= maxMemoryLogs {
			return StoreUnavailable("store an event", errors.New("too many calls have events"))
		}
		log = &memoryLog{}
		c.logs[key] = log
	}
	if n := len(log.events); n > 0 {
		if last, rank := log.events[n-1].Rank(), e.Rank(); rank < last || rank == last && rank%2 == 0 {
			return nil
		}
	}
	log.last = log.last.next(now)
	e.ID = log.last.String()
	log.events = append(log.events, e)
	if n := len(log.events) - maxCallEvents; n > 0 {
		log.events = slices.Delete(log.events, 0, n)
	}
	log.expires = now.Add(m.opts.Retention)
	if stored := m.recordLocked(e.Tenant, e.CallID, now); stored != nil && stored.expires.After(log.expires) {
		log.expires = stored.expires
	}
	return nil
}

// CallEvents implements CallStore.
func (m *Memory) CallEvents(_ context.Context, tenant, callID, after string, limit int) ([]CallEvent, error) {
	start, err := parseFeedID(after)
	if err != nil {
		return nil, err
	}
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	log := m.calls.logs[memoryCallKey{tenant, callID}]
	if log == nil || !m.opts.Now().Before(log.expires) {
		return nil, nil
	}
	for i, e := range log.events {
		if id, _ := parseFeedID(e.ID); start.before(id) {
			return slices.Clone(log.events[i:min(len(log.events), i+pageSize(limit))]), nil
		}
	}
	return nil, nil
}

// copyActivity returns a copy in which no call is shared.
func copyActivity(all []Activity) []Activity {
	all = slices.Clone(all)
	for i, a := range all {
		if a.Call != nil {
			call := a.Call.clone()
			all[i].Call = &call
		}
		all[i].Tools = slices.Clone(a.Tools)
	}
	return all
}

func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return limit
}

// feedID is a place in a log: the time of an entry in milliseconds, and a number among those of the same time. Ids
// keep growing over a restart of the process, so a reader that comes back does not wait for the past.
type feedID struct{ ms, seq int64 }

// feedIDPattern is also what Redis prints for the ids of a stream.
var feedIDPattern = regexp.MustCompile(`^\d{1,18}-\d{1,18}$`)

// parseFeedID reads an id. The empty one is the beginning. Anything else is CodeInvalidRequest.
func parseFeedID(text string) (feedID, error) {
	if text == "" {
		return feedID{}, nil
	}
	if err := CheckFeedID(text); err != nil {
		return feedID{}, err
	}
	ms, seq, _ := strings.Cut(text, "-")
	var id feedID
	id.ms, _ = strconv.ParseInt(ms, 10, 64) // cannot fail: at most 18 digits
	id.seq, _ = strconv.ParseInt(seq, 10, 64)
	return id, nil
}

// CheckFeedID reports whether text can be the id of an entry in a feed or in the event log of a call. The error is
// CodeInvalidRequest.
func CheckFeedID(text string) error {
	if !feedIDPattern.MatchString(text) {
		return Errorf(CodeInvalidRequest, "The id of the entry to continue from is malformed; pass one that was returned.")
	}
	return nil
}

// CompareFeedIDs orders the ids of one feed; the empty one, and what is none, comes first.
func CompareFeedIDs(a, b string) int {
	x, _ := parseFeedID(a)
	y, _ := parseFeedID(b)
	return x.compare(y)
}

func (id feedID) String() string {
	return strconv.FormatInt(id.ms, 10) + "-" + strconv.FormatInt(id.seq, 10)
}

// next returns the id of an entry added at now behind id. It grows also when the clock goes back.
func (id feedID) next(now time.Time) feedID {
	if ms := now.UnixMilli(); ms > id.ms {
		return feedID{ms: ms}
	}
	return feedID{id.ms, id.seq + 1}
}

func (id feedID) compare(other feedID) int {
	return cmp.Or(cmp.Compare(id.ms, other.ms), cmp.Compare(id.seq, other.seq))
}

func (id feedID) before(other feedID) bool { return id.compare(other) < 0 }
