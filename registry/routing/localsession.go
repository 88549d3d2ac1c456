package routing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// LocalSession is a session whose socket is on this pod, with the tools it offers and the calls in flight to it. It
// holds the truth; the store has a copy, which is written again whenever the store has lost it. It is safe for
// concurrent use.
type LocalSession struct {
	hub        *Hub
	key        registry.Key
	conn       Conn
	formerPods formerPods

	stale bool // a write failed, so the copy is incomplete; guarded by the order of writes (see beginWrite)

	putting sync.Mutex // one change of the tools at a time

	mu         sync.Mutex
	session    registry.Session
	attributes uint64        // digest of the session's
	tools      *toolList     // in Hub.offered until closed; replaced, never changed in place
	lastWrite  chan struct{} // closed when the last queued write to the store has ended; nil if there is none
	inFlight   map[string]*inFlightCall
	closed     bool
	ended      bool              // nobody goes on with its calls: its credential has ended
	asked      time.Time         // when the claim was sent to the store, by this pod's clock: not after ConnectedAt
	named      string            // the device id of the claim before, if the device proved to be the same
	before     *registry.Session // the claim before; nil if unknown, or after Introduce
	gone       bool              // the device of that claim did not answer, or there was none
}

func newLocalSession(p *Hub, s registry.Session, asked time.Time, c Conn) *LocalSession {
	return &LocalSession{hub: p, key: s.Key, conn: c, session: s, attributes: s.AttributesDigest(), asked: asked}
}

// Session returns the session as it is now. The caller must not change its maps and slices.
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
func (l *LocalSession) proofs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.Proofs
}

// ownerProof returns the proof that the answer to a call must come with, if the call is given to the device now.
func (l *LocalSession) ownerProof() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session.OwnerProof()
}

// entry returns what the store keeps of the session.
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

// Update changes the attributes of the session. change must not alter the key, the pod or the generation. When the
// store is away the change stays local until the next announcement; only losing the session is an error.
func (l *LocalSession) Update(ctx context.Context, change func(*registry.Session)) error {
	s := l.Session().Clone()
	change(&s)
	if err := s.ValidateAttributes(); err != nil {
		return err
	}
	l.hub.rec.activity(registry.Activity{
		Tenant: s.Tenant, Type: registry.ActivityUpdated, SessionID: s.Key.Session, DeviceID: s.DeviceID,
		UserID: s.UserID,
	})
	return l.stored(ctx, func() {
		if s.DeviceID != l.session.DeviceID && s.DeviceID != l.named { // the session is this device's from now on only
			elapsed := time.Since(l.asked) + time.Millisecond // ConnectedAt is rounded down
			s.Since = l.session.ConnectedAt.Add(elapsed).Truncate(time.Millisecond)
		}
		s.Generation = l.session.Generation // a restore may have come in between
		l.session, l.attributes = s, s.AttributesDigest()
	}, func(ctx context.Context) error { return l.hub.store.Update(ctx, l.Session()) })
}

// PutTools adds or replaces the tools in put and removes those named in drop. When the store is away the change stays
// local until the next announcement; only losing the session is an error. More new definitions than the budget allows
// are an error, too (CodeRateLimited), and more than the sessions of this pod may offer: then nothing changes.
func (l *LocalSession) PutTools(ctx context.Context, put []registry.ToolSpec, drop []string) error {
	l.putting.Lock()
	defer l.putting.Unlock()
	offered, by := l.hub.offered, l.conn.Owner()
	by.Tenant = l.key.Tenant
	merged := registry.MergeTools(l.Tools(), put, drop)
	list, err := offered.add(by, merged)
	if err != nil {
		return err
	}
	if err := l.hub.offers.admit(ctx, l.key, merged); err != nil {
		offered.release(list)
		return err
	}
	return l.stored(ctx, func() {
		former := l.tools
		l.tools = list
		if l.closed { // and what it offered is released
			offered.release(list)
			return
		}
		offered.release(former)
		s := l.session
		l.hub.rec.activity(registry.Activity{
			Tenant: s.Tenant, Type: registry.ActivityTools, SessionID: s.Key.Session, DeviceID: s.DeviceID,
			UserID: s.UserID, Tools: toolNames(list.all()),
		})
	}, func(ctx context.Context) error { return l.hub.store.SetTools(ctx, l.Session(), l.Tools()) })
}

func toolNames(tools []registry.ToolSpec) []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return names
}

// Close ends the session on this pod. Its calls in flight fail with connection_lost, at once or, if the device can
// resume, after ResumeWait. The store forgets the session unless a newer connection has claimed it. Close is
// idempotent. ctx bounds the write to the store.
func (l *LocalSession) Close(ctx context.Context) { l.Leave(ctx, 0) }

// End is Close for a device whose credential has ended, or that an operator has sent away: it answers nothing any more,
// so the calls that wait for it fail with connection_lost immediately, also those of its connections before this one on
// this pod.
func (l *LocalSession) End(ctx context.Context) {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.Leave(ctx, 0)
	l.Detached().End()
}

// Detached are the calls that wait on a pod for a device to come back. It does not keep the session in memory.
type Detached struct {
	hub    *Hub
	key    registry.Key
	proofs []string
}

// Detached returns the calls that wait for the device of the session.
func (l *LocalSession) Detached() Detached { return Detached{l.hub, l.key, l.proofs()} }

// Any reports whether there are such calls now.
func (d Detached) Any() bool { return d.hub.detached.waits(d.key, d.proofs) }

// End ends them, as LocalSession.End does, when the connection is gone already.
func (d Detached) End() {
	for _, f := range d.hub.detached.takeAll(d.key, d.proofs) {
		f.loseConnection()
	}
}

// Leave is Close for a device that is expected to connect again within the time back: calls of what it offered wait for
// it.
func (l *LocalSession) Leave(ctx context.Context, back time.Duration) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	s, tools := l.session, l.tools
	l.mu.Unlock()

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
	l.hub.rec.activity(registry.Activity{
		Tenant: s.Tenant, Type: registry.ActivityDisconnected, SessionID: s.Key.Session, DeviceID: s.DeviceID,
		UserID: s.UserID,
	})
	defer l.beginWrite()()
	if _, err := l.hub.store.Release(ctx, l.Session(), back); err != nil {
		l.hub.log.Warn("session not released; its keys expire by themselves",
			"session", l.key.Session, "error", err)
	}
}

// rejoin takes over the calls in flight of the former connection, except those that end meanwhile (see
// inFlightCall.remove). If a call with the same id was made anew here already, because the former connection did not
// take it, that one stays.
func (l *LocalSession) rejoin(calls []*inFlightCall) {
	l.mu.Lock()
	closed := l.closed
	for _, f := range calls {
		if closed {
			break
		}
		if l.inFlight == nil {
			l.inFlight = make(map[string]*inFlightCall)
		}
		if l.inFlight[f.callID] != nil {
			continue
		}
		l.inFlight[f.callID] = f
		f.session.Store(l)
		if f.done.Load() {
			delete(l.inFlight, f.callID)
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

// replaced ends the socket because a newer connection has the session. It removes the session from the table at once,
// so that calls made from now on go to the newer connection while this socket is still closing.
func (l *LocalSession) replaced() {
	l.hub.counts.replaced.Add(1)
	l.hub.remove(l)
	l.detach()
	l.conn.Close(CloseReplaced)
}

// detach makes the calls in flight of a device that can resume wait for its next connection, which may be there
// already.
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

// kicked ends the socket because an operator wants the session gone.
func (l *LocalSession) kicked() {
	l.hub.remove(l)
	l.conn.Close(CloseKicked)
}

// localReports writes what calls that run on this pod report of themselves to their logs, within the bounds that hold
// for the reports of devices.
type localReports struct {
	rec     hubRecorder
	calls   hubCalls
	callLog int64 // bytes of the log of one call
}

// localReport is what one call reports. It is safe for concurrent use.
type localReport struct {
	*localReports
	tenant, callID string
	silent         bool // no text is kept: it may hold what is taken out of the result

	mu     sync.Mutex
	logged int64 // bytes
	last   int64 // the recorder's number of the last line; zero: none
	full   bool
}

func (l *localReports) of(c *registry.Call) *localReport {
	return &localReport{
		localReports: l, tenant: c.Record.Tenant, callID: c.ID, silent: l.calls.amends(c.Record.Tool),
	}
}

// add adds a line to the log of the call. After the first one that does not fit, all later ones are dropped, too.
func (r *localReport) add(report registry.Report) {
	if r.silent {
		report.Message, report.Chunk = "", ""
	}
	if report == (registry.Report{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return
	}
	if r.last == 0 {
		r.last = r.rec.event(registry.StateEvent(r.tenant, r.callID, registry.StateRunning, time.Time{}))
	}
	e := registry.CallEvent{
		Tenant: r.tenant, CallID: r.callID, Type: registry.CallEventProgress, At: time.Now().UTC(),
		Progress: report.Progress, Total: report.Total, Message: report.Message, Chunk: report.Chunk,
	}
	r.logged += jsonSize(report.Message) + jsonSize(report.Chunk)
	if r.logged > r.callLog || r.calls.spent(r.tenant, "") > 0 {
		r.full = true
		e.Type, e.Progress, e.Total, e.Chunk = registry.CallEventTruncated, nil, nil, ""
		e.Message = "No more is kept of what this call reports: too much is kept already. The call goes on."
	}
	r.last = r.rec.event(e)
}

// written waits until all lines are written, because the end of a call closes its log. It waits logWait at most.
func (r *localReport) written(ctx context.Context) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	if last == 0 || r.rec.wrote(last) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), logWait)
	defer cancel()
	r.rec.waitFor(ctx, last)
}
