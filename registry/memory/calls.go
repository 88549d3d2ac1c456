package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// maxCalls is the limit of records of all tenants. A full store rejects new ones.
const maxCalls = 100_000

// calls are the records of calls, with their logs and keys.
type calls struct {
	mu      sync.Mutex
	records shared[string, *storedCall]     // by call
	logs    shared[string, *callLog]        // by call
	keys    expiring[tenantKey, *keyHolder] // by idempotency key
	purges  throttle
}

type storedCall struct {
	life
	record   registry.Record
	watchers map[string]bool
	waits    bool // until BeginCall
	light    bool // from KeepCalls, not CreateCall: the waiting caller stores the end of the call
}

// keyHolder is the call that has an idempotency key.
type keyHolder struct {
	life
	callID string
}

func (m *Store) CreateCall(_ context.Context, r registry.Record) (registry.Record, bool, error) {
	c := &m.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	now := m.opts.Now()
	if known := m.callLocked(r.Tenant, r.CallID, now); known != nil {
		return known.record.Clone(), false, nil
	}
	key := tenantKey{r.Tenant, r.IdempotencyKey}
	if winner := m.holderLocked(key, now); winner != nil {
		return winner.record.Clone(), false, nil
	}
	at := now.UTC().Truncate(time.Microsecond)
	r = r.Clone()
	state, wait := r.FirstState()
	r.State, r.Dispatched, r.Late, r.Result, r.Err = state, registry.DispatchedNo, false, nil, nil
	r.Timeline = []registry.Step{{State: state, At: at}}
	r.Deadline = at.Truncate(time.Millisecond).Add(wait)
	stored := &storedCall{record: r, watchers: make(map[string]bool), waits: r.HoldMS > 0}
	if err := m.addCallLocked(stored, now); err != nil {
		return registry.Record{}, false, err
	}
	m.logStateLocked(&stored.record, now)
	m.extendLocked(stored, now)
	if r.IdempotencyKey != "" {
		c.keys[key] = &keyHolder{life{now.Add(m.opts.IdempotencyTTL)}, r.CallID}
	}
	return r.Clone(), true, nil
}

func (m *Store) BeginCall(
	_ context.Context, tenant, callID, pod string, timeout time.Duration,
) (registry.Record, bool, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	stored := m.callLocked(tenant, callID, now)
	if stored == nil {
		return registry.Record{}, false, registry.ErrNoCall
	}
	begun := stored.waits && now.Before(stored.record.Deadline)
	if begun && stored.record.State != registry.StateAccepted {
		at := now.UTC().Truncate(time.Microsecond)
		if begun = stored.record.Apply(registry.EventAccept, registry.Change{}, at); begun {
			m.logStateLocked(&stored.record, now)
		}
	}
	if begun {
		stored.waits, stored.record.Pod = false, pod
		stored.record.Deadline = now.UTC().Truncate(time.Millisecond).Add(timeout)
		m.extendLocked(stored, now)
	}
	return stored.record.Clone(), begun, nil
}

func (m *Store) CallByKey(_ context.Context, tenant, key string) (registry.Record, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	holder := m.holderLocked(tenantKey{tenant, key}, m.opts.Now())
	if holder == nil {
		return registry.Record{}, registry.ErrNoCall
	}
	return holder.record.Clone(), nil
}

// holderLocked returns the call that has an idempotency key. A key whose record has expired is free, because the
// outcome of that call is no longer known. A key is also free if its call certainly never ran.
func (m *Store) holderLocked(key tenantKey, now time.Time) *storedCall {
	holder := m.calls.keys.get(key, now)
	if holder == nil {
		return nil
	}
	stored := m.callLocked(key.tenant, holder.callID, now)
	if stored != nil && stored.record.NeverRan() {
		return nil
	}
	return stored
}

// addCallLocked stores one more record. It fails if there is no room.
func (m *Store) addCallLocked(stored *storedCall, now time.Time) error {
	c := &m.calls
	if c.purges.due(now, m.opts.Retention/purgesPerLife) {
		c.purge(now)
	}
	return c.records.put(stored.record.Tenant, stored.record.CallID, stored)
}

func (m *Store) MoveCall(
	_ context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Moved, error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	stored := m.calls.records.get(tenant, callID, now)
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
	another := e == registry.EventReturn && change.Owner != "" && change.Owner != stored.record.Owner
	if another || !stored.record.Apply(e, change, now.UTC().Truncate(time.Microsecond)) {
		if change.Reported && stored.record.State.Answered() && change.Result == nil {
			stored.record.Late = true
		}
		return registry.Moved{Record: stored.record.Clone()}, nil
	}
	stored.record = stored.record.Clone() // the caller keeps its own result
	stored.waits = stored.waits || e == registry.EventQueue
	if stored.light && stored.record.State.Answered() {
		stored.record.Late = true
	}
	m.logStateLocked(&stored.record, now)
	m.extendLocked(stored, now)
	moved := registry.Moved{Record: stored.record.Clone(), Applied: true}
	if stored.record.State.Final() {
		moved.Watchers = slices.Collect(maps.Keys(stored.watchers))
		clear(stored.watchers)
	}
	return moved, nil
}

func (m *Store) ReadCall(ctx context.Context, tenant, callID string) (registry.Record, error) {
	return m.WatchCall(ctx, tenant, callID, "")
}

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

func (m *Store) KeepCalls(_ context.Context, records []registry.Record) (full error) {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	now := m.opts.Now()
	for _, r := range records {
		stored := m.calls.records.get(r.Tenant, r.CallID, now)
		if stored == nil {
			stored = &storedCall{record: r.Clone(), watchers: make(map[string]bool), light: true}
			if err := m.addCallLocked(stored, now); err != nil {
				full = err
				continue
			}
		} else {
			keep(&stored.record, r.Clone())
		}
		m.logStateLocked(&stored.record, now)
		if remaining := r.TimeLeft(); remaining > 0 && !stored.record.State.Final() {
			stored.record.Deadline = now.UTC().Add(remaining)
		}
		m.extendLocked(stored, now)
	}
	return full
}

func (m *Store) FreeKey(_ context.Context, tenant, key, callID string) error {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	at := tenantKey{tenant, key}
	if holder := m.calls.keys[at]; holder != nil && holder.callID == callID {
		delete(m.calls.keys, at)
	}
	return nil
}

// callLocked returns the record of a call, nil if there is none. It first ends a call whose deadline has passed and
// whose pod has not ended it.
func (m *Store) callLocked(tenant, callID string, now time.Time) *storedCall {
	stored := m.calls.records.get(tenant, callID, now)
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

// extendLocked extends the life of a record and its events by one retention time. For a call that may still run, it
// counts from the deadline: otherwise a call with a long timeout would expire before it ends.
func (m *Store) extendLocked(stored *storedCall, now time.Time) {
	from := now
	if r := stored.record; !r.State.Final() && r.Deadline.After(now) {
		from = r.Deadline
	}
	stored.expires = from.Add(m.opts.Retention)
	if log := m.calls.logs.byTenant[stored.record.Tenant][stored.record.CallID]; log != nil {
		log.expires = stored.expires
	}
}

func (m *Store) purgeCalls() {
	m.calls.mu.Lock()
	defer m.calls.mu.Unlock()
	m.calls.purge(m.opts.Now())
}

func (c *calls) purge(now time.Time) {
	c.records.purge(now, nil)
	c.logs.purge(now, nil)
	maps.DeleteFunc(c.keys, func(key tenantKey, holder *keyHolder) bool { // a key whose record has gone is free
		return c.records.get(key.tenant, holder.callID, now) == nil || !now.Before(holder.expires)
	})
}

// keep merges newer into the stored record r by the rules of State.Keep.
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

// fillIn copies from newer the fields that r, which has the answer, lacks.
func fillIn(r *registry.Record, newer registry.Record) {
	r.Owner, r.Proof = cmp.Or(r.Owner, newer.Owner), cmp.Or(r.Proof, newer.Proof)
	r.SessionID, r.DeviceID = cmp.Or(r.SessionID, newer.SessionID), cmp.Or(r.DeviceID, newer.DeviceID)
}

const (
	maxLogs   = 100_000 // calls that have events, of all tenants
	maxEvents = 2048    // stored per call
)

// callLog is the event log of one call.
type callLog struct {
	life
	capped[registry.CallEvent]
}

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

// logLocked adds an event to the log of a call, unless the log already has an event of a higher rank.
func (m *Store) logLocked(e registry.CallEvent, now time.Time) error {
	if e.Rank() < 0 {
		return nil
	}
	c := &m.calls
	log := c.logs.get(e.Tenant, e.CallID, now)
	if log == nil {
		log = &callLog{}
		if err := c.logs.put(e.Tenant, e.CallID, log); err != nil {
			return err
		}
	}
	if n := len(log.lines); n > 0 {
		if last, rank := log.lines[n-1].entry.Rank(), e.Rank(); rank < last || rank == last && rank%2 == 0 {
			return nil
		}
	}
	id := log.last.Next(now)
	e.ID = id.String()
	log.add(id, e, 0)
	if log.isOver(maxEvents, 0) {
		log.dropFirst()
	}
	log.expires = now.Add(m.opts.Retention)
	if stored := c.records.get(e.Tenant, e.CallID, now); stored != nil && stored.expires.After(log.expires) {
		log.expires = stored.expires
	}
	return nil
}

// logStateLocked adds the call's state to its log. If the log has no room, the state is not logged.
func (m *Store) logStateLocked(r *registry.Record, now time.Time) {
	_ = m.logLocked(registry.StateEvent(r.Tenant, r.CallID, r.State, now.UTC()), now)
}

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
	return log.after(start, limit), nil
}
