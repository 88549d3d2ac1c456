package routing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// Local is a session whose socket is on this pod, with the tools it offers and the calls in flight to it. What it
// holds is the truth; the store has a copy that is written again whenever the store lost it. Safe for concurrent use.
type Local struct {
	presence *Presence
	key      registry.Key
	conn     Conn
	formers  formers

	stale bool // a write failed: the store lacks something; of whoever writes (see takeTurn)

	mu      sync.Mutex
	session registry.Session
	tools   []registry.ToolSpec // ordered by name; replaced, never changed in place
	last    chan struct{}       // closed when the last write to the store that was queued has ended; nil if there is none
	flights map[string]*flight
	closed  bool
	asked   time.Time         // when the claim was sent to the store: not after ConnectedAt, by this pod's clock
	named   string            // the device it went by before, if it proved to be the same
	before  *registry.Session // the claim before this one, nil if none is remembered or the device has introduced itself
	gone    bool              // the device of that claim was really gone
}

func newLocal(p *Presence, s registry.Session, asked time.Time, c Conn) *Local {
	return &Local{presence: p, key: s.Key, conn: c, session: s, asked: asked}
}

// Session returns the session as it is now. The caller must not change its map and slice.
func (l *Local) Session() registry.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// Tools returns the tools offered now, ordered by name. The caller must not change the slice.
func (l *Local) Tools() []registry.ToolSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tools
}

// Tool returns the tool of that name.
func (l *Local) Tool(name string) (registry.ToolSpec, bool) {
	tools := l.Tools()
	i, ok := slices.BinarySearchFunc(tools, name, func(t registry.ToolSpec, n string) int { return strings.Compare(t.Name, n) })
	if !ok {
		return registry.ToolSpec{}, false
	}
	return tools[i], true
}

func (l *Local) generation() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.Generation
}

// proofs are those of the device: whose calls it may answer.
func (l *Local) proofs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.Proofs
}

// owner is the proof that calls given to the device now belong to.
func (l *Local) owner() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.OwnerProof()
}

func (l *Local) entry() registry.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return registry.Entry{Session: l.session, Tools: l.tools}
}

// Introduce takes what the device says of itself: it decides whose calls it may answer. Calls of its connection before this
// one are in flight here from now on. It is called once, and reports whether the store must be told, by Update.
func (l *Local) Introduce(said registry.Introduction) (changed bool) {
	l.mu.Lock()
	before := l.before
	l.before = nil
	s := l.session.Inherit(said, before, l.gone)
	if before != nil && before.DeviceID == said.DeviceID && !s.Since.IsZero() {
		l.named = said.DeviceID
	}
	changed = len(s.Proofs) != len(l.session.Proofs) || len(s.Heirs) != len(l.session.Heirs) || s.OwnerProof() != l.session.OwnerProof()
	l.session.Proofs, l.session.Heirs, l.session.HeirsUntil, l.session.Since = s.Proofs, s.Heirs, s.HeirsUntil, s.Since
	l.mu.Unlock()
	if l.presence.Get(l.key) == l { // what has lost the session takes over nothing
		l.rejoin(l.presence.orphans.takeAll(l.key, s.Proofs))
	}
	return changed
}

// storeWait is how long a change waits for the store. A device that registers is told once everybody can see its tools;
// but its reader also brings the answers to calls, and must not stand still because the store does.
const storeWait = 250 * time.Millisecond

// Update changes the attributes of the session. change must not alter the key, the pod or the generation. When the
// store is away the change stays local until the next announcement; only losing the session is an error.
func (l *Local) Update(ctx context.Context, change func(*registry.Session)) error {
	s := l.Session().Clone()
	change(&s)
	if err := s.ValidateAttributes(); err != nil {
		return err
	}
	l.mu.Lock()
	if s.DeviceID != l.session.DeviceID && s.DeviceID != l.named { // it has been this device from now on only
		elapsed := time.Since(l.asked) + time.Millisecond // ConnectedAt is rounded down
		s.Since = l.session.ConnectedAt.Add(elapsed).Truncate(time.Millisecond)
	}
	s.Generation = l.session.Generation // a restore may have come in between
	l.session = s
	l.mu.Unlock()
	l.presence.rec.activity(registry.Activity{Tenant: s.Tenant, Type: registry.ActivityUpdated, SessionID: s.Key.Session, DeviceID: s.DeviceID})
	return l.stored(ctx, func(ctx context.Context) error { return l.presence.store.Update(ctx, l.Session()) })
}

// PutTools adds or replaces the tools in put and removes those named in drop. When the store is away the change
// stays local until the next announcement; only losing the session is an error, and so are more new definitions than the
// store has room for (CodeRateLimited): then nothing changes.
func (l *Local) PutTools(ctx context.Context, put []registry.ToolSpec, drop []string) error {
	if err := l.presence.offers.admit(ctx, l.key, mergeTools(l.Tools(), put, drop)); err != nil {
		return err
	}
	l.mu.Lock()
	l.tools = l.presence.lists.share(mergeTools(l.tools, put, drop))
	s, tools := l.session, l.tools
	l.mu.Unlock()
	l.presence.rec.activity(registry.Activity{
		Tenant: s.Tenant, Type: registry.ActivityTools, SessionID: s.Key.Session, DeviceID: s.DeviceID, Tools: toolNames(tools),
	})
	return l.stored(ctx, func(ctx context.Context) error { return l.presence.store.SetTools(ctx, l.Session(), l.Tools()) })
}

func toolNames(tools []registry.ToolSpec) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}

// stored writes a change to the store and waits a little for it. What a failure means for the device: nothing, unless
// the session is no longer ours.
func (l *Local) stored(ctx context.Context, write func(context.Context) error) error {
	written, done := make(chan error, 1), make(chan struct{})
	l.mu.Lock()
	before := l.last
	queued := l.presence.tasks.run(func(ctx context.Context) {
		defer l.endTurn(done)
		if before != nil {
			<-before // changes are written in the order they were made
		}
		written <- l.writeNow(ctx, write)
	})
	if queued {
		l.last = done
	}
	l.mu.Unlock()
	if !queued {
		return nil // the next refresh finds out
	}
	patience := time.NewTimer(storeWait)
	defer patience.Stop()
	select {
	case err := <-written:
		return err
	case <-patience.C:
	case <-ctx.Done():
	}
	return nil
}

// takeTurn waits until all writes to the store that were queued before have ended, and returns what ends its own. Two writes
// of one session never overtake each other. The wait is bounded, because each write is.
func (l *Local) takeTurn() (end func()) {
	done := make(chan struct{})
	l.mu.Lock()
	before := l.last
	l.last = done
	l.mu.Unlock()
	if before != nil {
		<-before
	}
	return func() { l.endTurn(done) }
}

// endTurn lets the write after the one that done belongs to begin. An idle session keeps nothing of it.
func (l *Local) endTurn(done chan struct{}) {
	close(done)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == done {
		l.last = nil
	}
}

// writeNow writes a change, or everything if an earlier change did not get through. The turn must be its own.
func (l *Local) writeNow(ctx context.Context, write func(context.Context) error) error {
	var err error
	if l.stale {
		err = l.restoreNow(ctx)
	} else {
		err = write(ctx)
	}
	switch {
	case err == nil:
		l.stale = false
		return nil
	case errors.Is(err, registry.ErrNotOwner):
		l.replaced()
		return registry.ErrNotOwner
	default:
		l.stale = true
		l.presence.log.Warn("store write put off until the next announcement", "session", l.key.Session, "error", err)
		return nil
	}
}

// restore writes the session to the store again after the store lost it.
func (l *Local) restore(ctx context.Context) error {
	defer l.takeTurn()()
	return l.restoreNow(ctx)
}

// restoreNow is restore for whoever has the turn.
func (l *Local) restoreNow(ctx context.Context) error {
	l.mu.Lock()
	e, closed := registry.Entry{Session: l.session, Tools: l.tools}, l.closed
	l.mu.Unlock()
	if closed {
		return nil
	}
	s, err := l.presence.store.Restore(ctx, e)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.session.Generation = s.Generation
	l.mu.Unlock()
	l.stale = false
	return nil
}

// Close ends the session's stay on this pod: its calls in flight fail with connection_lost, at once or, if the device
// can resume, after ResumeWait; and the store forgets it unless a newer connection has claimed it. It is idempotent.
// ctx bounds the store's part.
func (l *Local) Close(ctx context.Context) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	s := l.session
	l.mu.Unlock()

	l.presence.remove(l)
	l.orphan()
	l.mu.Lock()
	flights := l.flights
	l.flights = nil
	l.mu.Unlock()
	for _, f := range flights {
		f.loseConnection()
	}
	l.presence.rec.activity(registry.Activity{
		Tenant: s.Tenant, Type: registry.ActivityDisconnected, SessionID: s.Key.Session, DeviceID: s.DeviceID,
	})
	defer l.takeTurn()()
	if _, err := l.presence.store.Release(ctx, l.Session()); err != nil {
		l.presence.log.Warn("session not released; its keys expire by themselves",
			"session", l.key.Session, "error", err)
	}
}

// rejoin takes over the calls in flight of the connection before this one, but for those that end meanwhile (see
// flight.remove). One that has come here anew already, because the former connection did not take it, stays as it is.
func (l *Local) rejoin(flights []*flight) {
	l.mu.Lock()
	closed := l.closed
	for _, f := range flights {
		if closed {
			break
		}
		if l.flights == nil {
			l.flights = make(map[string]*flight)
		}
		if l.flights[f.callID] != nil {
			continue
		}
		l.flights[f.callID] = f
		f.home.Store(l)
		if f.done.Load() {
			delete(l.flights, f.callID)
		}
	}
	l.mu.Unlock()
	for _, f := range flights {
		if closed {
			f.loseConnection()
		}
	}
}

// InFlight returns how many calls wait for an answer of this device.
func (l *Local) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flights)
}

// replaced ends the socket because a newer connection has the session. It leaves the table at once: calls made from
// now on go to the newer one, while this socket is still saying goodbye.
func (l *Local) replaced() {
	l.presence.remove(l)
	l.orphan()
	l.conn.Close(CloseReplaced)
}

// orphan lets the calls in flight of a device that can resume wait for its next connection, which may be there already.
func (l *Local) orphan() {
	l.mu.Lock()
	var flights map[string]*flight
	if l.session.Can(registry.CapabilityResume) {
		flights, l.flights = l.flights, nil
	}
	l.mu.Unlock()
	for _, f := range flights {
		l.presence.orphans.add(f)
	}
}

// kicked ends the socket because an operator wants the session gone.
func (l *Local) kicked() {
	l.presence.remove(l)
	l.conn.Close(CloseKicked)
}

func mergeTools(have, put []registry.ToolSpec, drop []string) []registry.ToolSpec {
	byName := make(map[string]registry.ToolSpec, len(have)+len(put))
	for _, t := range have {
		byName[t.Name] = t
	}
	for _, name := range drop {
		delete(byName, name)
	}
	for _, t := range put {
		byName[t.Name] = t
	}
	merged := make([]registry.ToolSpec, 0, len(byName))
	for _, t := range byName {
		merged = append(merged, t)
	}
	slices.SortFunc(merged, func(a, b registry.ToolSpec) int { return strings.Compare(a.Name, b.Name) })
	return merged
}
