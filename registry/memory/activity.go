package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	feedTTL       = 24 * time.Hour // life of a feed after the last entry
	maxCallEvents = 2048           // kept of one call
	maxMemoryLogs = 100_000        // calls that have events
)

// memoryFeed is the activity of one tenant.
type memoryFeed struct {
	entries []registry.Activity
	bytes   int                        // of the entries, about
	calls   map[string]registry.FeedID // the entries about the ends of calls, by their ids
	last    registry.FeedID
	grown   chan struct{} // closed and replaced when an entry is added
	expires time.Time
}

// memoryLog is the event log of one call.
type memoryLog struct {
	events  []registry.CallEvent
	last    registry.FeedID
	expires time.Time
}

var _ registry.ActivityStore = (*Store)(nil)

// AppendActivity implements ActivityStore.
func (m *Store) AppendActivity(_ context.Context, all []registry.Activity) error {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	now := m.opts.Now()
	grown := make(map[*memoryFeed]bool)
	for _, a := range all {
		feed := m.feedLocked(a.Tenant)
		feed.last = feed.last.Next(now)
		a.ID = feed.last.String()
		if a.Call != nil {
			call := a.Call.Summary().Clone()
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
func (f *memoryFeed) add(a registry.Activity) {
	f.entries = append(f.entries, a)
	f.bytes += a.MemorySize()
	if a.Type == registry.ActivityCall && a.Call != nil {
		f.calls[a.Call.CallID] = f.last
	}
}

// dropFirst forgets the oldest entry.
func (f *memoryFeed) dropFirst() {
	first := &f.entries[0]
	f.bytes -= first.MemorySize()
	if first.Call != nil && f.calls[first.Call.CallID].String() == first.ID {
		delete(f.calls, first.Call.CallID)
	}
	*first = registry.Activity{} // the array lives on for a while; the entry's data need not
	f.entries = f.entries[1:]
}

// FindCall implements ActivityStore.
func (m *Store) FindCall(_ context.Context, tenant, callID string) (registry.Record, error) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	feed := m.feeds[tenant]
	if feed == nil {
		return registry.Record{}, registry.ErrNoCall
	}
	id, ok := feed.calls[callID]
	if !ok {
		return registry.Record{}, registry.ErrNoCall
	}
	return feed.entries[feed.firstFrom(id)].Call.Clone(), nil
}

// feedLocked returns the feed of a tenant, and makes it if there is none. A feed that was emptied stays the one
// its readers wait for.
func (m *Store) feedLocked(tenant string) *memoryFeed {
	feed := m.feeds[tenant]
	if feed == nil {
		feed = &memoryFeed{grown: make(chan struct{}), calls: make(map[string]registry.FeedID)}
		m.feeds[tenant] = feed
	}
	return feed
}

// ReadActivity implements ActivityStore.
func (m *Store) ReadActivity(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	start, err := registry.ParseFeedID(after)
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
			return nil, registry.StoreUnavailable("read activity", ctx.Err())
		}
	}
}

// behind returns the entries after start, and a channel that is closed when there are more.
func (m *Store) behind(tenant string, start registry.FeedID, limit int) ([]registry.Activity, <-chan struct{}) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	feed := m.feedLocked(tenant)
	i := feed.firstFrom(registry.FeedID{Milli: start.Milli, Seq: start.Seq + 1})
	return copyActivity(feed.entries[i:min(len(feed.entries), i+pageSize(limit))]), feed.grown
}

// LastActivity implements ActivityStore.
func (m *Store) LastActivity(_ context.Context, tenant, before string, limit int) ([]registry.Activity, error) {
	end, err := registry.ParseFeedID(before)
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
func (f *memoryFeed) firstFrom(id registry.FeedID) int {
	i, _ := slices.BinarySearchFunc(f.entries, id, func(a registry.Activity, id registry.FeedID) int {
		own, _ := registry.ParseFeedID(a.ID)
		return own.Compare(id)
	})
	return i
}

// purgeFeeds forgets feeds without a recent entry. Readers that wait for one of them are woken and look again.
func (m *Store) purgeFeeds() {
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
func (m *Store) AppendCallEvents(_ context.Context, events []registry.CallEvent) error {
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

// logLocked adds an event to the log of a call, unless the log has an event of a higher rank already.
func (m *Store) logLocked(e registry.CallEvent, now time.Time) error {
	c := &m.calls
	key := memoryCallKey{e.Tenant, e.CallID}
	log := c.logs[key]
	if log == nil || !now.Before(log.expires) {
		if log == nil && len(c.logs) >= maxMemoryLogs {
			return registry.StoreUnavailable("store an event", errors.New("too many calls have events"))
		}
		log = &memoryLog{}
		c.logs[key] = log
	}
	if n := len(log.events); n > 0 {
		if last, rank := log.events[n-1].Rank(), e.Rank(); rank < last || rank == last && rank%2 == 0 {
			return nil
		}
	}
	log.last = log.last.Next(now)
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
func (m *Store) CallEvents(_ context.Context, tenant, callID, after string, limit int) ([]registry.CallEvent, error) {
	start, err := registry.ParseFeedID(after)
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
		if id, _ := registry.ParseFeedID(e.ID); start.Before(id) {
			return slices.Clone(log.events[i:min(len(log.events), i+pageSize(limit))]), nil
		}
	}
	return nil, nil
}

// copyActivity returns a copy in which no call is shared.
func copyActivity(all []registry.Activity) []registry.Activity {
	all = slices.Clone(all)
	for i, a := range all {
		if a.Call != nil {
			call := a.Call.Clone()
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
