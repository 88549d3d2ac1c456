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
	life
	capped[registry.Activity]
	calls map[string]registry.FeedID // the entries about the ends of calls, by call id
	grown chan struct{}              // closed and replaced when an entry is added
}

func (m *Store) AppendActivity(_ context.Context, all []registry.Activity) error {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	now := m.opts.Now()
	grown := make(map[*feed]bool)
	for _, a := range all {
		f := m.feedLocked(a.Tenant)
		id := f.last.Next(now)
		a.ID = id.String()
		if a.Call != nil {
			call := a.Call.Summary().Clone()
			a.Call = &call
		}
		a.Tools = slices.Clone(a.Tools)
		f.add(id, a, a.MemorySize())
		if a.Type == registry.ActivityCall && a.Call != nil {
			f.calls[a.Call.CallID] = id
		}
		for f.isOver(m.opts.ActivityCap, m.opts.ActivityBytes) {
			if first := f.dropFirst(); first.entry.Call != nil && f.calls[first.entry.Call.CallID] == first.id {
				delete(f.calls, first.entry.Call.CallID)
			}
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

func (m *Store) FindCall(_ context.Context, tenant, callID string) (registry.Record, error) {
	m.feedsMu.Lock()
	defer m.feedsMu.Unlock()
	if f := m.feeds[tenant]; f != nil {
		if id, ok := f.calls[callID]; ok {
			return f.lines[f.from(id)].entry.Call.Clone(), nil
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
	return unshare(f.after(start, limit)), f.grown
}

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
	n := len(f.lines)
	if before != "" {
		n = f.from(end)
	}
	page := unshare(f.entries(n-pageSize(limit), n))
	slices.Reverse(page)
	return page, nil
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

// unshare replaces what entries share with the feed by copies.
func unshare(all []registry.Activity) []registry.Activity {
	for i, a := range all {
		if a.Call != nil {
			call := a.Call.Clone()
			all[i].Call = &call
		}
		all[i].Tools = slices.Clone(a.Tools)
	}
	return all
}
