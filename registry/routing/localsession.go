package routing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// LocalSession is a session whose socket is on this pod, with the tools it offers and the calls in flight to it. It is
// the source of truth. The store has a copy, which is written again whenever the store has lost it. It is safe for
// concurrent use.
type LocalSession struct {
	hub        *Hub
	key        registry.Key
	conn       Conn
	payer      share.Owner // of its tasks
	formerPods formerPods

	stale bool // a write failed, so the copy is incomplete; guarded by the order of writes (see beginWrite)

	toolsMu sync.Mutex // serializes changes of the tools

	mu         sync.Mutex
	session    registry.Session
	attributes uint64        // digest of the session's attributes
	tools      *toolList     // in Hub.offered until closed; replaced, never changed in place
	lastWrite  chan struct{} // closed when the last queued store write has ended; nil if none
	inFlight   map[string]*inFlightCall
	closed     bool
	ended      bool              // its calls cannot be resumed: its credential has ended
	asked      time.Time         // when the claim was sent, by this pod's clock: not after ConnectedAt
	named      string            // the device id of the previous claim, if this device proved that it is the same one
	before     *registry.Session // the previous claim; nil if unknown, or after Introduce
	remembered time.Time         // when its device was last remembered
	gone       bool              // the previous claim's device did not answer, or there was no previous claim
}

// Session returns the current session. The caller must not change its maps and slices.
func (l *LocalSession) Session() registry.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// Tools returns the tools offered now, ordered by name. The caller must not change the slice.
func (l *LocalSession) Tools() []registry.ToolSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tools.all()
}

// Tool returns the tool of that name.
func (l *LocalSession) Tool(name string) (registry.ToolSpec, bool) { return toolOf(l.Tools(), name) }

func toolOf(tools []registry.ToolSpec, name string) (registry.ToolSpec, bool) {
	byName := func(t registry.ToolSpec, n string) int { return strings.Compare(t.Name, n) }
	i, ok := slices.BinarySearchFunc(tools, name, byName)
	if !ok {
		return registry.ToolSpec{}, false
	}
	return tools[i], true
}

func (l *LocalSession) generation() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.Generation
}

// proofs returns the proofs of the device. They decide which calls it may answer.
func (l *LocalSession) proofs() []string { return l.Session().Proofs }

// ownerProof returns the proof that an answer must have if the call is given to the device now.
func (l *LocalSession) ownerProof() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.OwnerProof()
}

// entry returns the session as the store keeps it.
func (l *LocalSession) entry() registry.Entry {
	e, _ := l.entryWithDigest()
	e.Pulse = l.conn.Pulse()
	return e
}

// entryWithDigest returns the entry, without a pulse, and the digest of its attributes.
func (l *LocalSession) entryWithDigest() (e registry.Entry, attributes uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return registry.Entry{Session: l.session, Tools: l.tools.all()}, l.attributes
}

// proofLimit is how many proofs a session keeps. A device that reconnects more often during a call cannot answer it.
const proofLimit = 4

// Introduce handles the device's introduction, which decides which calls it may answer. The calls of its former
// connection are in flight here from now on. Introduce is called once. It reports whether the caller must store the
// change with Update.
func (l *LocalSession) Introduce(said registry.Introduction) (changed bool) {
	l.mu.Lock()
	before := l.before
	l.before = nil
	s := inherit(l.session, said, before, l.gone)
	if before != nil && before.DeviceID == said.DeviceID && !s.Since.IsZero() {
		l.named = said.DeviceID
	}
	changed = len(s.Proofs) != len(l.session.Proofs) || len(s.ReclaimableBy) != len(l.session.ReclaimableBy) ||
		s.OwnerProof() != l.session.OwnerProof()
	l.session.Proofs, l.session.Since = s.Proofs, s.Since
	l.session.ReclaimableBy, l.session.ReclaimableUntil = s.ReclaimableBy, s.ReclaimableUntil
	l.mu.Unlock()
	if l.hub.Get(l.key) == l { // a connection that has lost the session takes over no calls
		l.rejoin(l.hub.detached.takeAll(l.key, s.Proofs))
	}
	return changed
}

// inherit returns s with what its device has proven: which calls it may answer, and which heirs may take it back.
// former is the previous claim, nil if none is remembered; gone reports that its device was really gone.
func inherit(
	s registry.Session, said registry.Introduction, former *registry.Session, gone bool,
) registry.Session {
	var proofs []string
	presented := said.Proof()
	if presented != "" {
		proofs = append(proofs, presented)
	}
	proofs = append(proofs, s.Proofs...)
	if former != nil {
		same := presented != "" && slices.Contains(former.Proofs, presented)
		alike := presented == "" && gone && !former.Can(registry.CapabilityResumeToken) &&
			former.DeviceID == said.DeviceID && registry.SameHolder(former.OwnerProof(), s.OwnerProof())
		if same || alike {
			proofs = append(proofs, former.Proofs...)
			s.Since = former.Seniority()
		}
	}
	s.Proofs = nil
	for _, p := range proofs {
		if len(s.Proofs) < proofLimit && !slices.Contains(s.Proofs, p) {
			s.Proofs = append(s.Proofs, p)
		}
	}
	if slices.ContainsFunc(s.Proofs, func(p string) bool { return slices.Contains(s.ReclaimableBy, p) }) {
		s.ReclaimableBy, s.ReclaimableUntil = nil, time.Time{}
	}
	return s
}

// Update changes the attributes of the session. change must not alter the key, the pod or the generation. If the store
// is unavailable, the change stays local until the next announcement. Only a lost session is an error.
func (l *LocalSession) Update(ctx context.Context, change func(*registry.Session)) error {
	s := l.Session().Clone()
	change(&s)
	if err := s.ValidateAttributes(); err != nil {
		return err
	}
	l.hub.noteSession(registry.ActivityUpdated, &s)
	defer l.noted()
	return l.stored(ctx, func() {
		if s.DeviceID != l.session.DeviceID && s.DeviceID != l.named { // the session is this device's only from now on
			elapsed := time.Since(l.asked) + time.Millisecond // ConnectedAt is rounded down
			s.Since = l.session.ConnectedAt.Add(elapsed).Truncate(time.Millisecond)
		}
		s.Generation = l.session.Generation // a restore may have come in between
		l.session, l.attributes = s, s.AttributesDigest()
	}, func(ctx context.Context) error { return l.hub.store.Update(ctx, l.Session()) })
}

// PutTools adds or replaces the tools in put and removes those named in drop. If the store is unavailable, the change
// stays local until the next announcement. It fails if the session is lost, and with CodeRateLimited if the new
// definitions exceed the budget or the limit of this pod's sessions. On CodeRateLimited nothing changes.
func (l *LocalSession) PutTools(ctx context.Context, put []registry.ToolSpec, drop []string) error {
	l.toolsMu.Lock()
	defer l.toolsMu.Unlock()
	offered, by := l.hub.offered, l.conn.Owner()
	by.Tenant = l.key.Tenant
	merged := registry.MergeTools(l.Tools(), put, drop)
	list, err := offered.add(by, merged)
	if err != nil {
		return err
	}
	session := l.Session()
	if err := l.hub.offers.admit(ctx, &session, merged); err != nil {
		offered.release(list)
		return err
	}
	defer l.noted()
	names := make([]string, len(merged))
	for i, t := range merged {
		names[i] = t.Name
	}
	return l.stored(ctx, func() {
		former := l.tools
		l.tools = list
		if l.closed { // its offered tools are released
			offered.release(list)
			return
		}
		offered.release(former)
		l.hub.noteSession(registry.ActivityTools, &l.session, names...)
	}, func(ctx context.Context) error { return l.hub.store.SetTools(ctx, l.Session(), l.Tools()) })
}

// noted reports that the session has new tools or attributes. They are in the store, unless it is slow: a refresh finds
// the calls that wait then.
func (l *LocalSession) noted() {
	l.hub.registered(l)
	l.hub.seen(l, time.Now())
}

// owner returns the session with only what says whose it is.
func (l *LocalSession) owner() registry.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.Away()
}

// deviceKey returns the DeviceKey of the session.
func (l *LocalSession) deviceKey() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.DeviceKey()
}

// Close ends the session on this pod. Its calls in flight fail with connection_lost, immediately or, if the device can
// resume, after ResumeWait. The store drops the session unless a newer connection has claimed it. Close is idempotent.
// ctx limits the write to the store.
func (l *LocalSession) Close(ctx context.Context) { l.Leave(ctx, 0) }

// End is Close for a device that will not answer any more: its credential has ended, or an operator has kicked it.
// Calls that wait for it, also those of its earlier connections to this pod, fail with connection_lost immediately.
func (l *LocalSession) End(ctx context.Context) {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.Leave(ctx, 0)
	l.Detached().End()
}

// Detached are a pod's calls that wait for a device to reconnect. It does not keep the session in memory.
type Detached struct {
	hub    *Hub
	key    registry.Key
	proofs []string
}

// Detached returns the calls that wait for the session's device.
func (l *LocalSession) Detached() Detached { return Detached{l.hub, l.key, l.proofs()} }

// Any reports whether there are such calls now.
func (d Detached) Any() bool { return d.hub.detached.waits(d.key, d.proofs) }

// End ends them, as LocalSession.End does, after the connection is gone.
func (d Detached) End() {
	for _, f := range d.hub.detached.takeAll(d.key, d.proofs) {
		f.loseConnection()
	}
}

// Leave is Close for a device that is expected to reconnect within the time back: calls of its tools wait for it.
func (l *LocalSession) Leave(ctx context.Context, back time.Duration) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	s, tools, ended := l.session, l.tools, l.ended
	l.mu.Unlock()

	if !ended { // a revoked device is forgotten
		l.hub.seen(l, time.Now())
	}
	l.hub.offered.release(tools)
	l.hub.remove(l)
	l.detach()
	l.mu.Lock()
	calls := l.inFlight
	l.inFlight = nil
	l.mu.Unlock()
	for _, f := range calls {
		f.loseConnection()
	}
	l.hub.noteSession(registry.ActivityDisconnected, &s)
	defer l.beginWrite()()
	e := registry.Entry{Session: l.Session(), Tools: tools.all()}
	if err := l.hub.unreleased.release(ctx, l.hub.store, e, back); err != nil {
		l.hub.log.Warn("session not released, and too many others wait to be", "session", l.key.Session, "error", err)
	}
	if !ended {
		l.hub.registered(l) // calls may still wait for the device
	}
}

// rejoin takes over the calls in flight of the former connection, except those that end meanwhile (see
// inFlightCall.remove). If the former connection did not take a call and the call was retried here under the same id,
// the retry stays.
func (l *LocalSession) rejoin(calls []*inFlightCall) {
	l.mu.Lock()
	closed := l.closed
	for _, f := range calls {
		if !closed && l.inFlight[f.callID] == nil && f.moveTo(l) {
			l.addLocked(f)
		}
	}
	l.mu.Unlock()
	for _, f := range calls {
		if closed {
			f.loseConnection()
		}
	}
}

// InFlight returns how many calls wait for an answer of this device.
func (l *LocalSession) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inFlight)
}

// replaced ends the socket because a newer connection has the session. It removes the session from the table
// immediately, so that new calls go to the newer connection while this socket is still closing.
func (l *LocalSession) replaced() {
	l.hub.counts.add(&l.hub.counts.SessionsReplaced, 1)
	l.hub.remove(l)
	l.detach()
	l.conn.Close(CloseReplaced)
}

// detach makes the calls in flight of a device that can resume wait for its next connection, which may already exist.
func (l *LocalSession) detach() {
	l.mu.Lock()
	var calls map[string]*inFlightCall
	if l.session.Can(registry.CapabilityResume) && !l.ended {
		calls, l.inFlight = l.inFlight, nil
	}
	l.mu.Unlock()
	for _, f := range calls {
		l.hub.detached.add(f)
	}
}

// kicked ends the socket because an operator kicked the session.
func (l *LocalSession) kicked() {
	l.hub.remove(l)
	l.conn.Close(CloseKicked)
}
