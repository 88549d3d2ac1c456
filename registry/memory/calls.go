package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	maxMemoryCalls  = 100_000 // records; a store that is full refuses new ones
	callsPurgeEvery = 16      // times per retention that what has expired is removed
)

// memoryCalls are the records of calls, and what belongs to them.
type memoryCalls struct {
	mu      sync.Mutex
	records map[memoryCallKey]*memoryCall
	logs    map[memoryCallKey]*memoryLog
	keys    map[memoryCallKey]memoryIdem // by tenant and idempotency key
	purged  time.Time
}

// memoryCallKey is a tenant, and the id of a call or an idempotency key.
type memoryCallKey struct{ tenant, id string }

type memoryCall struct {
	record   registry.Record
	watchers map[string]bool
	light    bool // it came from KeepCalls, not CreateCall: the waiting caller stores how the call ended
	expires  time.Time
}

type memoryIdem struct {
	callID  string
	expires time.Time
}

var _ registry.CallStore = (*Store)(nil)

func newMemoryCalls() memoryCalls {
	return memoryCalls{
		records: make(map[memoryCallKey]*memoryCall), logs: make(map[memoryCallKey]*memoryLog),
		keys: make(map[memoryCallKey]memoryIdem),
	}
}

// CreateCall implements CallStore.
func (m *Store) CreateCall(_ context.Context, r registry.Record) (registry.Record, bool, error) {
	c := &m.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	now := m.opts.Now()
	if known := m.callLocked(r.Tenant, r.CallID, now); known != nil {
		return known.record.Clone(), false, nil
	}
	key := memoryCallKey{r.Tenant, r.IdempotencyKey}
	if winner := m.holderLocked(key, now); winner != nil {
		return winner.record.Clone(), false, nil
	}
	if err := m.roomLocked(now); err != nil {
		return registry.Record{}, false, err
	}
	at := now.UTC().Truncate(time.Microsecond)
	r = r.Clone()
	r.State, r.Dispatched, r.Late, r.Result, r.Err = registry.StateAccepted, registry.DispatchedNo, false, nil, nil
	r.Timeline = []registry.Step{{State: registry.StateAccepted, At: at}}
	r.Deadline = at.Truncate(time.Millisecond).Add(time.Duration(r.TimeoutMS) * time.Millisecond)
	stored := &memoryCall{record: r, watchers: make(map[string]bool)}
	c.records[memoryCallKey{r.Tenant, r.CallID}] = stored
	m.stepLocked(stored, now)
	m.extendLocked(stored, now)
	if r.IdempotencyKey != "" {
		c.keys[key] = memoryIdem{callID: r.CallID, expires: now.Add(m.opts.IdempotencyTTL)}
	}
	return r.Clone(), true, nil
}

// CallByKey implements CallStore.
func (m *Store) CallByKey(_ context.Context, tenant, key string) (registry.Record, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	holder := m.holderLocked(memoryCallKey{tenant, key}, m.opts.Now())
	if holder == nil {
		return registry.Record{}, registry.ErrNoCall
	}
	return holder.record.Clone(), nil
}

// holderLocked returns the call that has an idempotency key. A key whose record has expired is free, because the
// outcome of that call is no longer known. A key is also free if its call certainly never ran.
func (m *Store) holderLocked(key memoryCallKey, now time.Time) *memoryCall {
	idem, ok := m.calls.keys[key]
	if !ok || !now.Before(idem.expires) {
		return nil
	}
	holder := m.callLocked(key.tenant, idem.callID, now)
	if holder != nil && holder.record.NeverRan() {
		return nil
	}
	return holder
}

// roomLocked makes sure that there is room for one more record.
func (m *Store) roomLocked(now time.Time) error {
	c := &m.calls
	if now.Sub(c.purged) >= m.opts.Retention/callsPurgeEvery {
		m.purgeCallsLocked(now)
	}
	if len(c.records) >= maxMemoryCalls {
		return registry.StoreUnavailable("store a call", fmt.Errorf("%d calls are kept already", len(c.records)))
	}
	return nil
}

// MoveCall implements CallStore.
func (m *Store) MoveCall(
	_ context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Moved, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	stored := m.recordLocked(tenant, callID, now)
	if stored == nil {
		return registry.Moved{}, registry.ErrNoCall
	}
	if (e == registry.EventSucceed || e == registry.EventFail) && !change.Here {
		session := registry.Key{Tenant: tenant, Session: stored.record.SessionID}
		if change.Session.Session == "" || change.Session != session {
			return registry.Moved{}, registry.ErrNoCall
		}
		if change.Proofs != nil && !registry.MayAnswer(stored.record.Proof, change.Proofs) {
			return registry.Moved{}, registry.ErrNoCall
		}
	}
	if !stored.record.Apply(e, change, now.UTC().Truncate(time.Microsecond)) {
		if change.Told && stored.record.State.Answered() && change.Result == nil {
			stored.record.Late = true
		}
		return registry.Moved{Record: stored.record.Clone()}, nil
	}
	stored.record = stored.record.Clone() // the caller keeps its own result
	if stored.light && stored.record.State.Answered() {
		stored.record.Late = true
	}
	m.stepLocked(stored, now)
	m.extendLocked(stored, now)
	moved := registry.Moved{Record: stored.record.Clone(), Applied: true}
	if stored.record.State.Final() {
		moved.Watchers = slices.Collect(maps.Keys(stored.watchers))
		clear(stored.watchers)
	}
	return moved, nil
}

// ReadCall implements CallStore.
func (m *Store) ReadCall(ctx context.Context, tenant, callID string) (registry.Record, error) {
	return m.WatchCall(ctx, tenant, callID, "")
}

// WatchCall implements CallStore.
func (m *Store) WatchCall(_ context.Context, tenant, callID, pod string) (registry.Record, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	stored := m.callLocked(tenant, callID, m.opts.Now())
	if stored == nil {
		return registry.Record{}, registry.ErrNoCall
	}
	if pod != "" && !stored.record.State.Final() {
		stored.watchers[pod] = true
	}
	return stored.record.Clone(), nil
}

// KeepCalls implements CallStore.
func (m *Store) KeepCalls(_ context.Context, records []registry.Record) error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	for _, r := range records {
		stored := m.recordLocked(r.Tenant, r.CallID, now)
		if stored == nil {
			if err := m.roomLocked(now); err != nil {
				return err
			}
			stored = &memoryCall{record: r.Clone(), watchers: make(map[string]bool), light: true}
			m.calls.records[memoryCallKey{r.Tenant, r.CallID}] = stored
		} else {
			keep(&stored.record, r.Clone())
		}
		m.stepLocked(stored, now)
		if left := r.TimeLeft(); left > 0 && !stored.record.State.Final() {
			stored.record.Deadline = now.UTC().Add(left)
		}
		m.extendLocked(stored, now)
	}
	return nil
}

// FreeKey implements CallStore.
func (m *Store) FreeKey(_ context.Context, tenant, key, callID string) error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	if m.calls.keys[memoryCallKey{tenant, key}].callID == callID {
		delete(m.calls.keys, memoryCallKey{tenant, key})
	}
	return nil
}

// recordLocked returns a record unless it has expired.
func (m *Store) recordLocked(tenant, callID string, now time.Time) *memoryCall {
	stored := m.calls.records[memoryCallKey{tenant, callID}]
	if stored == nil || !now.Before(stored.expires) {
		return nil
	}
	return stored
}

// callLocked is recordLocked, but first ends a call whose deadline has passed and whose pod has not ended it.
func (m *Store) callLocked(tenant, callID string, now time.Time) *memoryCall {
	stored := m.recordLocked(tenant, callID, now)
	if stored == nil {
		return nil
	}
	r := &stored.record
	if e, ok := r.State.Overdue(); ok && !r.Deadline.IsZero() && !now.Before(r.Deadline.Add(registry.OverdueGrace)) {
		r.Apply(e, registry.Change{}, now.UTC().Truncate(time.Microsecond))
		m.extendLocked(stored, now)
	}
	return stored
}

// extendLocked extends the life of a record and its events by one retention time. For a call that may still run the
// time counts from its deadline, or a call with a long timeout would be forgotten before it ends.
func (m *Store) extendLocked(stored *memoryCall, now time.Time) {
	from := now
	if r := stored.record; !r.State.Final() && r.Deadline.After(now) {
		from = r.Deadline
	}
	stored.expires = from.Add(m.opts.Retention)
	if log := m.calls.logs[memoryCallKey{stored.record.Tenant, stored.record.CallID}]; log != nil {
		log.expires = stored.expires
	}
}

func (m *Store) purgeCalls() {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	m.purgeCallsLocked(m.opts.Now())
}

func (m *Store) purgeCallsLocked(now time.Time) {
	c := &m.calls
	c.purged = now
	maps.DeleteFunc(c.records, func(_ memoryCallKey, r *memoryCall) bool { return !now.Before(r.expires) })
	maps.DeleteFunc(c.logs, func(_ memoryCallKey, l *memoryLog) bool { return !now.Before(l.expires) })
	maps.DeleteFunc(c.keys, func(_ memoryCallKey, k memoryIdem) bool { return !now.Before(k.expires) })
}

// stepLocked notes in the log of a call which state it is in.
func (m *Store) stepLocked(stored *memoryCall, now time.Time) {
	r := &stored.record
	// Without room for the event the record stays without a log.
	_ = m.logLocked(registry.StateEvent(r.Tenant, r.CallID, r.State, now.UTC()), now)
}

// keep merges newer, which is to be kept, into the stored record r by the rules of State.Keep.
func keep(r *registry.Record, newer registry.Record) {
	switch r.State.Keep(newer.State) {
	case registry.KeepReplace:
		*r = newer
	case registry.KeepFill:
		fillIn(r, newer)
	case registry.KeepLate:
		fillIn(r, newer)
		r.Late, r.Err = true, nil
		r.Timeline = append(newer.Timeline, lastSteps(r)...)
	case registry.KeepAnswer:
		n := max(0, len(newer.Timeline)-1)
		newer.Timeline = slices.Insert(newer.Timeline, n, lastSteps(r)...)
		newer.Late = true
		*r = newer
	}
}

// lastSteps returns the last step, if there is one.
func lastSteps(r *registry.Record) []registry.Step { return r.Timeline[max(0, len(r.Timeline)-1):] }

// fillIn copies from r2 the fields that r, which has the answer, lacks.
func fillIn(r *registry.Record, r2 registry.Record) {
	if r.Owner == "" {
		r.Owner = r2.Owner
	}
	if r.Proof == "" {
		r.Proof = r2.Proof
	}
	if r.SessionID == "" {
		r.SessionID = r2.SessionID
	}
	if r.DeviceID == "" {
		r.DeviceID = r2.DeviceID
	}
}
