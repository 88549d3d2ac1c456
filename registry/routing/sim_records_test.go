package routing_test

import (
	"context"
	"slices"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// What the pods ask of the records of calls.

func (s *simStore) CreateCall(ctx context.Context, r registry.Record) (registry.Record, bool, error) {
	type created struct {
		record registry.Record
		is     bool
	}
	c, err := answer(ctx, s, "create", r.CallID, func(m *memory.Store) (created, error) {
		stored, is, err := m.CreateCall(ctx, r)
		return created{stored, is}, err
	})
	return c.record, c.is, err
}

func (s *simStore) CallByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	return answer(ctx, s, "key", key,
		func(m *memory.Store) (registry.Record, error) { return m.CallByKey(ctx, tenant, key) })
}

func (s *simStore) MoveCall(
	ctx context.Context, tenant, id string, e registry.Event, c registry.Change,
) (registry.Moved, error) {
	return answer(ctx, s, "move "+string(e), id, func(m *memory.Store) (registry.Moved, error) {
		return m.MoveCall(ctx, tenant, id, e, c)
	})
}

func (s *simStore) ReadCall(ctx context.Context, tenant, id string) (registry.Record, error) {
	return answer(ctx, s, "read", id,
		func(m *memory.Store) (registry.Record, error) { return m.ReadCall(ctx, tenant, id) })
}

func (s *simStore) WatchCall(ctx context.Context, tenant, id, pod string) (registry.Record, error) {
	return answer(ctx, s, "watch", id,
		func(m *memory.Store) (registry.Record, error) { return m.WatchCall(ctx, tenant, id, pod) })
}

func (s *simStore) KeepCalls(ctx context.Context, records []registry.Record) error {
	records = slices.Clone(records) // the recorder uses its slice again
	return tell(ctx, s, "keep", "", func(m *memory.Store) error { return m.KeepCalls(ctx, records) })
}

func (s *simStore) FreeKey(ctx context.Context, tenant, key, id string) error {
	return tell(ctx, s, "free", id, func(m *memory.Store) error { return m.FreeKey(ctx, tenant, key, id) })
}

func (s *simStore) AppendCallEvents(ctx context.Context, events []registry.CallEvent) error {
	events = slices.Clone(events) // the recorder uses its slice again
	return tell(ctx, s, "log", "", func(m *memory.Store) error { return m.AppendCallEvents(ctx, events) })
}

func (s *simStore) CallEvents(ctx context.Context, tenant, id, after string, limit int) ([]registry.CallEvent, error) {
	return answer(ctx, s, "events", id, func(m *memory.Store) ([]registry.CallEvent, error) {
		return m.CallEvents(ctx, tenant, id, after, limit)
	})
}

// record returns what the store, or else the feed, knows of a call.
func (s *simulation) record(id string) (registry.Record, bool) {
	s.commands.Lock()
	defer s.commands.Unlock()
	ctx := context.Background()
	r, err := s.memory.ReadCall(ctx, simTenant, id)
	if err != nil {
		r, err = s.memory.FindCall(ctx, simTenant, id)
	}
	return r, err == nil
}

// events returns the log of a call.
func (s *simulation) events(id string) []registry.CallEvent {
	s.commands.Lock()
	defer s.commands.Unlock()
	events, _ := s.memory.CallEvents(context.Background(), simTenant, id, "", 1000) // none is as good as an error
	return events
}
