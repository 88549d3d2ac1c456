package registry

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
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
	record   Record
	watchers map[string]bool
	light    bool // it was kept, not created: whoever waits for the call says himself how it ended
	expires  time.Time
}

type memoryIdem struct {
	callID  string
	expires time.Time
}

var _ CallStore = (*Memory)(nil)

func newMemoryCalls() memoryCalls {
	return memoryCalls{
		records: make(map[memoryCallKey]*memoryCall), logs: make(map[memoryCallKey]*memoryLog),
		keys: make(map[memoryCallKey]memoryIdem),
	}
}

// CreateCall implements CallStore.
func (m *Memory) CreateCall(_ context.Context, r Record) (Record, bool, error) {
	c := &m.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	now := m.opts.Now()
	if known := m.callLocked(r.Tenant, r.CallID, now); known != nil {
		return known.record.clone(), false, nil
	}
	key := memoryCallKey{r.Tenant, r.IdempotencyKey}
	if winner := m.holderLocked(key, now); winner != nil {
		return winner.record.clone(), false, nil
	}
	if err := m.roomLocked(now); err != nil {
		return Record{}, false, err
	}
	at := now.UTC().Truncate(time.Microsecond)
	r = r.clone()
	r.State, r.Dispatched, r.Late, r.Result, r.Err = StateAccepted, DispatchedNo, false, nil, nil
	r.Timeline = []Step{{State: StateAccepted, At: at}}
	r.Deadline = at.Truncate(time.Millisecond).Add(time.Duration(r.TimeoutMS) * time.Millisecond)
	stored := &memoryCall{record: r, watchers: make(map[string]bool)}
	c.records[memoryCallKey{r.Tenant, r.CallID}] = stored
	m.stepLocked(stored, now)
	m.extendLocked(stored, now)
	if r.IdempotencyKey != "" {
		c.keys[key] = memoryIdem{callID: r.CallID, expires: now.Add(m.opts.IdempotencyTTL)}
	}
	return r.clone(), true, nil
}

// CallByKey implements CallStore.
func (m *Memory) CallByKey(_ context.Context, tenant, key string) (Record, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	holder := m.holderLocked(memoryCallKey{tenant, key}, m.opts.Now())
	if holder == nil {
		return Record{}, ErrNoCall
	}
	return holder.record.clone(), nil
}

// holderLocked returns the call that has an idempotency key. A key whose record has expired is free: nobody can say
// any more what became of that call. So is one whose call is known never to have run.
func (m *Memory) holderLocked(key memoryCallKey, now time.Time) *memoryCall {
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
func (m *Memory) roomLocked(now time.Time) error {
	c := &m.calls
	if now.Sub(c.purged) >= m.opts.Retention/callsPurgeEvery {
		m.purgeCallsLocked(now)
	}
	if len(c.records) >= maxMemoryCalls {
		return StoreUnavailable("store a call", fmt.Errorf("%d calls are kept already", len(c.records)))
	}
	return nil
}

// MoveCall implements CallStore.
func (m *Memory) MoveCall(_ context.Context, tenant, callID string, e Event, change Change) (Moved, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	stored := m.recordLocked(tenant, callID, now)
	if stored == nil {
		return Moved{}, ErrNoCall
	}
	if (e == EventSucceed || e == EventFail) && !change.Here {
		if change.Session.Session == "" || change.Session != (Key{tenant, stored.record.SessionID}) {
			return Moved{}, ErrNoCall
		}
		if change.Proofs != nil && !ownedBy(stored.record.Proof, change.Proofs) {
			return Moved{}, ErrNoCall
		}
	}
	if !stored.record.Apply(e, change, now.UTC().Truncate(time.Microsecond)) {
		if change.Told && stored.record.State.Answered() && change.Result == nil {
			stored.record.Late = true
		}
		return Moved{Record: stored.record.clone()}, nil
	}
	stored.record = stored.record.clone() // the caller keeps its own result
	if stored.light && stored.record.State.Answered() {
		stored.record.Late = true
	}
	m.stepLocked(stored, now)
	m.extendLocked(stored, now)
	moved := Moved{Record: stored.record.clone(), Applied: true}
	if stored.record.State.Final() {
		moved.Watchers = slices.Collect(maps.Keys(stored.watchers))
		clear(stored.watchers)
	}
	return moved, nil
}

// ReadCall implements CallStore.
func (m *Memory) ReadCall(ctx context.Context, tenant, callID string) (Record, error) {
	return m.WatchCall(ctx, tenant, callID, "")
}

// WatchCall implements CallStore.
func (m *Memory) WatchCall(_ context.Context, tenant, callID, pod string) (Record, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	stored := m.callLocked(tenant, callID, m.opts.Now())
	if stored == nil {
		return Record{}, ErrNoCall
	}
	if pod != "" && !stored.record.State.Final() {
		stored.watchers[pod] = true
	}
	return stored.record.clone(), nil
}

// KeepCalls implements CallStore.
func (m *Memory) KeepCalls(_ context.Context, records []Record) error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	for _, r := range records {
		stored := m.recordLocked(r.Tenant, r.CallID, now)
		if stored == nil {
			if err := m.roomLocked(now); err != nil {
				return err
			}
			stored = &memoryCall{record: r.clone(), watchers: make(map[string]bool), light: true}
			m.calls.records[memoryCallKey{r.Tenant, r.CallID}] = stored
		} else {
			stored.record.keep(r.clone())
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
func (m *Memory) FreeKey(_ context.Context, tenant, key, callID string) error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	if m.calls.keys[memoryCallKey{tenant, key}].callID == callID {
		delete(m.calls.keys, memoryCallKey{tenant, key})
	}
	return nil
}

// recordLocked returns a record unless it has expired.
func (m *Memory) recordLocked(tenant, callID string, now time.Time) *memoryCall {
	stored := m.calls.records[memoryCallKey{tenant, callID}]
	if stored == nil || !now.Before(stored.expires) {
		return nil
	}
	return stored
}

// callLocked is recordLocked, but ends a call whose deadline passed while nobody was left to say so.
func (m *Memory) callLocked(tenant, callID string, now time.Time) *memoryCall {
	stored := m.recordLocked(tenant, callID, now)
	if stored == nil {
		return nil
	}
	r := &stored.record
	if e, ok := r.State.Overdue(); ok && !r.Deadline.IsZero() && !now.Before(r.Deadline.Add(OverdueGrace)) {
		r.Apply(e, Change{}, now.UTC().Truncate(time.Microsecond))
		m.extendLocked(stored, now)
	}
	return stored
}

// extendLocked has a record, and its events, live for one retention time; from its deadline on while it may still
// run, or a call with a long timeout would be forgotten before it ends.
func (m *Memory) extendLocked(stored *memoryCall, now time.Time) {
	from := now
	if r := stored.record; !r.State.Final() && r.Deadline.After(now) {
		from = r.Deadline
	}
	stored.expires = from.Add(m.opts.Retention)
	if log := m.calls.logs[memoryCallKey{stored.record.Tenant, stored.record.CallID}]; log != nil {
		log.expires = stored.expires
	}
}

func (m *Memory) purgeCalls() {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	m.purgeCallsLocked(m.opts.Now())
}

func (m *Memory) purgeCallsLocked(now time.Time) {
	c := &m.calls
	c.purged = now
	maps.DeleteFunc(c.records, func(_ memoryCallKey, r *memoryCall) bool { return !now.Before(r.expires) })
	maps.DeleteFunc(c.logs, func(_ memoryCallKey, l *memoryLog) bool { return !now.Before(l.expires) })
	maps.DeleteFunc(c.keys, func(_ memoryCallKey, k memoryIdem) bool { return !now.Before(k.expires) })
}

// clone returns a copy that shares nothing with r that anybody changes, without what only the pod knows that runs it.
func (r Record) clone() Record {
	r.Timeline, r.args, r.kept = slices.Clone(r.Timeline), nil, false
	if r.Result != nil {
		res := *r.Result
		res.Structured = bytes.Clone(res.Structured)
		r.Result = &res
	}
	return r
}

// stepLocked notes in the log of a call which state it is in.
func (m *Memory) stepLocked(stored *memoryCall, now time.Time) {
	r := &stored.record
	_ = m.logLocked(StateEvent(r.Tenant, r.CallID, r.State, now.UTC()), now) // without room there is a record without a log
}

// keep makes r what it is when told is kept.
func (r *Record) keep(told Record) {
	switch r.State.Keep(told.State) {
	case KeepReplace:
		*r = told
	case KeepFill:
		r.fillIn(told)
	case KeepLate:
		r.fillIn(told)
		r.Late, r.Err = true, nil
		r.Timeline = append(told.Timeline, r.lastSteps()...)
	case KeepAnswer:
		n := max(0, len(told.Timeline)-1)
		told.Timeline = slices.Insert(told.Timeline, n, r.lastSteps()...)
		told.Late = true
		*r = told
	}
}

// lastSteps returns the last step, if there is one.
func (r *Record) lastSteps() []Step { return r.Timeline[max(0, len(r.Timeline)-1):] }

// fillIn takes from r2 what r, which has its answer, does not know.
func (r *Record) fillIn(r2 Record) {
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
