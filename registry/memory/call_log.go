package memory

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	maxLogs   = 100_000 // calls that have events, of all tenants
	maxEvents = 2048    // kept of one call
)

// callLog is the event log of one call.
type callLog struct {
	life
	events []registry.CallEvent
	last   registry.FeedID
}

// AppendCallEvents implements registry.CallStore.
func (m *Store) AppendCallEvents(_ context.Context, events []registry.CallEvent) (full error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	for _, e := range events {
		if err := m.logLocked(e, now); err != nil {
			full = err
		}
	}
	return full
}

// logLocked adds an event to the log of a call, unless the log has an event of a higher rank already.
func (m *Store) logLocked(e registry.CallEvent, now time.Time) error {
	c := &m.calls
	log := c.logs.get(e.Tenant, e.CallID, now)
	if log == nil {
		log = &callLog{}
		if err := c.logs.put(e.Tenant, e.CallID, log); err != nil {
			return err
		}
	}
	if n := len(log.events); n > 0 {
		if last, rank := log.events[n-1].Rank(), e.Rank(); rank < last || rank == last && rank%2 == 0 {
			return nil
		}
	}
	log.last = log.last.Next(now)
	e.ID = log.last.String()
	log.events = append(log.events, e)
	if n := len(log.events) - maxEvents; n > 0 {
		log.events = slices.Delete(log.events, 0, n)
	}
	log.expires = now.Add(m.opts.Retention)
	if stored := c.records.get(e.Tenant, e.CallID, now); stored != nil && stored.expires.After(log.expires) {
		log.expires = stored.expires
	}
	return nil
}

// logStateLocked notes in the log of a call which state it is in. If the log cannot take it, the call stays without.
func (m *Store) logStateLocked(r *registry.Record, now time.Time) {
	_ = m.logLocked(registry.StateEvent(r.Tenant, r.CallID, r.State, now.UTC()), now)
}

// CallEvents implements registry.CallStore.
func (m *Store) CallEvents(_ context.Context, tenant, callID, after string, limit int) ([]registry.CallEvent, error) {
	start, err := registry.ParseFeedID(after)
	if err != nil {
		return nil, err
	}
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	log := m.calls.logs.get(tenant, callID, m.opts.Now())
	if log == nil {
		return nil, nil
	}
	for i, e := range log.events {
		if id, _ := registry.ParseFeedID(e.ID); start.Before(id) {
			return slices.Clone(log.events[i:min(len(log.events), i+pageSize(limit))]), nil
		}
	}
	return nil, nil
}
