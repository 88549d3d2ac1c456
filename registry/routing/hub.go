// Package routing routes a call to the pod whose socket can answer it, and waits for the answer. It also maintains a
// pod's data in the store: its lease, its sessions, the records of its calls.
//
// The life of a session in this package:
//
//	device dials ──▶ Hub.Open               claims the session in the store; its generation is the fencing token
//	register     ──▶ LocalSession.PutTools  fenced by that generation
//	call         ──▶ Router.Call            to a socket of this pod, or over the bus to the pod that owns the session
//	answer       ──▶ LocalSession.Complete  matched by call id, passed to the pending call or sent back over the bus
//	device goes  ──▶ LocalSession.Leave     release-if-mine: a late close can never remove a successor
//
// Start with router.go: Router.Call is the whole path of a call. pending.go and wait.go wait for an answer. receive.go,
// inflight.go, complete.go and forward.go are the device's side. calls.go has calls that outlive their requests.
// upkeep.go is the background work. A Pod connects the pieces and owns their goroutines.
//
// Imports: registry and internal packages. The package does not depend on a specific store or bus.
package routing

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Conn is the part of a device's socket that a Hub needs. Its methods do not block and are safe for concurrent use.
type Conn interface {
	// Deliver queues a call for the device. After an error the device will not receive the call.
	Deliver(DeviceCall) error

	// Cancel tells the device, if it supports cancellations, that no caller waits for a call any more.
	Cancel(callID, reason string)

	// Ping calls answered once if the device sends anything from now on, or has just done so. The call may come after
	// the caller of Ping has stopped waiting.
	Ping(answered func())

	// Pulse returns the last pong of the device; zero: none yet.
	Pulse() registry.Pulse

	// Owner returns the owner who is charged for the memory of the session's tools.
	Owner() share.Owner

	// Close ends the socket. Once the socket is gone the connection calls LocalSession.Leave, as after any other end.
	Close(CloseCause)
}

// Expirer is a Conn whose device does not know a call's timeout. It follows the rules of Conn.
type Expirer interface {
	// Expired tells the device that a call it has is out of time.
	Expired(callID string)
}

// DeviceCall is a call as sent to the device.
type DeviceCall struct {
	ID      string
	Tool    string
	Args    registry.JSON
	Timeout time.Duration // the time left when the call is written
	Order   registry.Order
	Age     time.Duration // since the call was accepted, if an earlier attempt stood in a line
	Trace   string        // the header traceparent for the device; empty: none

	Approved bool   // a person decided that this very call may run
	UserID   string // the caller's user, who shares the session's calls in flight and bytes with others; empty: none
}

// CloseCause is why the Hub ends a socket. Package ws maps it to a close code.
type CloseCause string

// The causes.
const (
	CloseReplaced CloseCause = "replaced" // a newer connection claimed the session: do not reconnect
	CloseKicked   CloseCause = "kicked"   // an operator ended the session: do not reconnect
	CloseDraining CloseCause = "draining" // this pod is stopping: reconnect elsewhere
)

// Hub holds the sessions whose sockets are on this pod. It is safe for concurrent use.
type Hub struct {
	core
	maxInFlight int
	sendTimeout time.Duration // also of the callers' pods; see lostAfter
	ordered     *tasks        // deliveries of ordered calls that have waited
	late        *tasks        // late answers that wait for a record
	checks      *tasks        // checks of answers against the output schema of their tool
	// checkOutput returns an answer's schema violations; nil: answers are not checked.
	checkOutput func(ctx context.Context, tenant string, schema []byte, r registry.Result) []registry.Violation
	offered     *offeredTools
	offers      *toolBudget
	unreleased  *unreleased

	registered func(*LocalSession)            // called after a device has new tools, changed or left; must not block
	seen       func(*LocalSession, time.Time) // called then, and when it has left

	mu       sync.RWMutex
	sessions map[registry.Key]*LocalSession

	orders     *orderedCalls
	detached   detachedCalls
	completing completingCalls
	answered   *seenCalls        // calls without a record that have been answered
	verdicts   listeners[string] // on answers that were forwarded to other pods
	pings      listeners[bool]   // whether the pinged devices answered
}

func newHub(c core, cfg PodConfig, offers *toolBudget) *Hub {
	ordered := newTasks(maxOrdered, c.log)
	return &Hub{
		ordered: ordered, orders: &orderedCalls{most: max(1, cfg.MaxInFlight/2), start: ordered.start},
		core: c, maxInFlight: cfg.MaxInFlight, sendTimeout: cfg.SendTimeout,
		late: newTasks(maxLate, c.log), checks: newTasks(maxChecks, c.log),
		checkOutput: cfg.CheckOutput, offered: newOfferedTools(cfg.OfferedBytes), offers: offers,
		unreleased: newUnreleased(),
		sessions:   make(map[registry.Key]*LocalSession), answered: newSeenCalls(),
		completing: completingCalls{ids: make(map[string]int)},
	}
}

// Open claims the session for a new socket. It closes the connection that held it before, on this pod or another;
// resumed reports that there was one. Open fails with a *Held if the holder must be asked first. The caller must call
// LocalSession.Introduce once the device has introduced itself, and LocalSession.Close once the socket is gone.
func (p *Hub) Open(ctx context.Context, s registry.Session, c Conn) (l *LocalSession, resumed bool, err error) {
	s.Generation = 0
	return p.open(ctx, s, c, false)
}

// Replace claims a session from a holder that was asked first; gone says that its device did not answer. It fails with
// a *Held if another connection was faster.
func (p *Hub) Replace(
	ctx context.Context, s registry.Session, c Conn, holder registry.Session, gone bool,
) (*LocalSession, error) {
	s.Generation = holder.Generation
	l, _, err := p.open(ctx, s, c, gone)
	return l, err
}

func (p *Hub) open(
	ctx context.Context, s registry.Session, c Conn, gone bool,
) (l *LocalSession, resumed bool, err error) {
	if err := s.Validate(); err != nil {
		return nil, false, err
	}
	if err := p.CheckOwner(ctx, s); err != nil {
		return nil, false, err
	}
	s.Pod = p.pod
	asked := time.Now()
	claim, err := p.store.Claim(ctx, s)
	if err != nil {
		return nil, false, err
	}
	p.counts.add(&p.counts.SessionsOpened, 1)
	if claim.Previous != nil {
		p.counts.add(&p.counts.SessionsResumed, 1)
	}
	l = &LocalSession{
		hub: p, key: s.Key, conn: c, payer: payerOf(&claim.Session), session: claim.Session,
		attributes: claim.Session.AttributesDigest(), asked: asked,
		before: claim.Before, gone: gone || claim.Previous == nil, formerPods: newFormerPods(claim.Formers, p.pod),
	}
	if prev := claim.Previous; prev != nil && prev.Pod != p.pod {
		// If the message is lost, that pod finds out with its next refresh of the session.
		p.trySend(ctx, prev.Pod, eviction(prev, CloseReplaced))
	}
	if old := p.adopt(l); old != nil {
		old.replaced()
	}
	if len(s.Proofs) == 0 { // the device has no proofs, so there is no introduction to wait for
		l.Introduce(registry.Introduction{DeviceID: s.DeviceID})
	}
	p.noteSession(registry.ActivityConnected, &claim.Session)
	return l, claim.Previous != nil, nil
}

// adopt puts l into the table, unless a newer claim of the same session is there. It returns the loser: the former
// entry, l itself, or nil.
func (p *Hub) adopt(l *LocalSession) *LocalSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.sessions[l.key]
	if old != nil && old.generation() > l.generation() {
		return l
	}
	p.sessions[l.key] = l
	return old
}

// eviction is the message to a session's pod to close its socket.
func eviction(s *registry.Session, why CloseCause) registry.Envelope {
	return registry.Envelope{
		Kind: registry.EnvelopeEvict, Tenant: s.Tenant, Session: s.Key.Session, Generation: s.Generation,
		Reason: string(why),
	}
}

// Kick ends a session on any pod, and tells the device not to reconnect.
func (p *Hub) Kick(ctx context.Context, s registry.Session) error {
	if s.Pod != p.pod {
		return p.send(ctx, s.Pod, eviction(&s, CloseKicked))
	}
	l := p.Get(s.Key)
	if l == nil {
		return registry.ErrNoReceiver
	}
	l.kicked()
	return nil
}

// Get returns the session if its socket is on this pod, else nil.
func (p *Hub) Get(key registry.Key) *LocalSession {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.sessions[key]
}

// All returns the current sessions on this pod, in no order.
func (p *Hub) All() []*LocalSession {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Collect(maps.Values(p.sessions))
}

// MaxInFlight returns how many calls one session may have in flight.
func (p *Hub) MaxInFlight() int { return p.maxInFlight }

// handleEvict closes the socket that an eviction names, unless a newer one has replaced it.
func (p *Hub) handleEvict(e registry.Envelope) {
	l := p.Get(e.Key())
	switch {
	case l == nil:
	case e.Reason == string(CloseKicked): // a kick ends the session, whichever connection has it
		l.kicked()
	case l.generation() <= e.Generation:
		l.replaced()
	}
}

func (p *Hub) remove(l *LocalSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sessions[l.key] == l {
		delete(p.sessions, l.key)
	}
}

// CheckOwner checks that the user and the device in the credentials may claim a session. It fails with
// registry.ErrForeignSession if the session, or its conversation, belongs to another user or device. A claim with
// AnyOwner passes without a store request. The claim itself checks the session again, in the store.
func (p *Hub) CheckOwner(ctx context.Context, s registry.Session) error {
	if s.AnyOwner {
		return nil
	}
	e, err := p.store.Entry(ctx, s.Key)
	switch {
	case err == nil, errors.Is(err, registry.CodeNotConnected):
		if !e.Session.BelongsTo(&s) {
			return registry.ErrForeignSession
		}
	case !errors.Is(err, registry.CodeSessionNotFound):
		return err
	}
	infos, err := p.store.DescribeConversations(ctx, s.Key)
	if err == nil && !infos[0].Owner.Admits(&s) {
		err = registry.ErrForeignSession
	}
	return err
}
