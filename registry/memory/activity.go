package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// feed is the activity of one tenant.
type feed struct {
	entries []registry.Activity
	bytes   int                        // of the entries, approximate
	calls   map[string]registry.FeedID // the entries about the ends of calls, by call id
	last    registry.FeedID
	grown   chan struct{} // closed and replaced when an entry is added
	expires time.Time
}

// AppendActivity implements registry.ActivityStore.
func (m *Store) AppendActivity(_ context.Context, all []registry.Activity) error {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	now := m.opts.Now()
	grown := make(map[*feed]bool)
	for _, a := range all {
		f := m.feedLocked(a.Tenant)
		f.last = f.last.Next(now)
		a.ID = f.last.String()
		if a.Call != nil {
			call := a.Call.Summary().Clone()
			a.Call = &call
		}
		a.Tools = slices.Clone(a.Tools)
		f.add(a)
		for len(f.entries) > m.opts.ActivityCap || f.bytes > m.opts.ActivityBytes && len(f.entries) > 1 {
			f.dropFirst()
		}
		f.expires = now.Add(m.opts.ActivityTTL)
		grown[f] = true
	}
	for f := range grown {
		close(f.grown)
		f.grown = make(chan struct{})
	}
	return nil
}

// add adds an entry whose id is the feed's last.
func (f *feed) add(a registry.Activity) {
	f.entries = append(f.entries, a)
	f.bytes += a.MemorySize()
	if a.Type == registry.ActivityCall && a.Call != nil {
		f.calls[a.Call.CallID] = f.last
	}
}

// dropFirst removes the oldest entry.
func (f *feed) dropFirst() {
	first := &f.entries[0]
	f.bytes -= first.MemorySize()
	if first.Call != nil && f.calls[first.Call.CallID].String() == first.ID {
		delete(f.calls, first.Call.CallID)
	}
	*first = registry.Activity{} // the array stays in memory for a while; the entry's data need not
	f.entries = f.entries[1:]
}

// FindCall implements registry.ActivityStore.
func (m *Store) FindCall(_ context.Context, tenant, callID string) (registry.Record, error) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	if f := m.feeds[tenant]; f != nil {
		if id, ok := f.calls[callID]; ok {
			return f.entries[f.firstFrom(id)].Call.Clone(), nil
		}
	}
	return registry.Record{}, registry.ErrNoCall
}

// feedLocked returns the feed of a tenant, and creates it if there is none. An emptied feed stays the same object,
// because readers wait for it.
func (m *Store) feedLocked(tenant string) *feed {
	f := m.feeds[tenant]
	if f == nil {
		f = &feed{grown: make(chan struct{}), calls: make(map[string]registry.FeedID)}
		m.feeds[tenant] = f
	}
	return f
}

// ReadActivity implements registry.ActivityStore.
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
		found, grown := m.entriesAfter(tenant, start, limit)
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

// entriesAfter returns the entries after start, and a channel that is closed when there are more.
func (m *Store) entriesAfter(tenant string, start registry.FeedID, limit int) ([]registry.Activity, <-chan struct{}) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	f := m.feedLocked(tenant)
	i := f.firstFrom(registry.FeedID{Milli: start.Milli, Seq: start.Seq + 1})
	return copyActivity(f.entries[i:min(len(f.entries), i+pageSize(limit))]), f.grown
}

// LastActivity implements registry.ActivityStore.
func (m *Store) LastActivity(_ context.Context, tenant, before string, limit int) ([]registry.Activity, error) {
	end, err := registry.ParseFeedID(before)
	if err != nil {
		return nil, err
	}
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	f := m.feeds[tenant]
	if f == nil {
		return nil, nil
	}
	n := len(f.entries)
	if before != "" {
		n = f.firstFrom(end)
	}
	page := copyActivity(f.entries[max(0, n-pageSize(limit)):n])
	slices.Reverse(page)
	return page, nil
}

// firstFrom returns the index of the first entry with this id or a later one.
func (f *feed) firstFrom(id registry.FeedID) int {
	i, _ := slices.BinarySearchFunc(f.entries, id, func(a registry.Activity, id registry.FeedID) int {
		own, _ := registry.ParseFeedID(a.ID)
		return own.Compare(id)
	})
	return i
}

// purgeFeeds removes feeds without a recent entry. Readers that wait for one are woken and look again.
func (m *Store) purgeFeeds() {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	now := m.opts.Now()
	maps.DeleteFunc(m.feeds, func(_ string, f *feed) bool {
		if now.Before(f.expires) {
			return false
		}
		close(f.grown)
		return true
	})
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
