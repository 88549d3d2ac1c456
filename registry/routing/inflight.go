package routing

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// receiptAfter is how long an answer may take before the waiting pod is told that the call was written to the
// socket. Faster calls cost one reply only (architecture.md, "A call across pods", step 5).
const receiptAfter = 250 * time.Millisecond

// expiryGrace is how much longer than its caller the owning pod remembers a call, so that an answer that makes it
// just in time still finds its way.
const expiryGrace = 200 * time.Millisecond

// inFlightCall is a call that was written, or is about to be written, to a local socket.
type inFlightCall struct {
	key     registry.Key
	callID  string
	owner   string                       // the proof of who may answer it; empty: whoever has the session
	session atomic.Pointer[LocalSession] // the connection it waits at; the next one of the session may take it over
	durable bool
	reply   func(registry.Reply) // called at most once with the final reply; may be called with receipts before
	done    atomic.Bool
	running atomic.Bool

	lastLine atomic.Int64 // of the call's log; of the recorder

	sending         sync.Mutex  // held while the socket is given the call, and while it is decided that it will not be
	sent            atomic.Bool // the socket has it; written under handing
	connectionEnded bool        // the connection ended before; guarded by handing

	timer   *time.Timer // first for the receipt, then for the expiry
	expires time.Time   // when it expires
	resume  *time.Timer // set while the in-flight call is an detached call

	logged  atomic.Int64 // bytes the device has reported
	logFull atomic.Bool
}

// finish ends the in-flight call with r. Only the first call has an effect; it reports whether it was the first.
func (f *inFlightCall) finish(r registry.Reply) bool {
	if !f.done.CompareAndSwap(false, true) {
		return false
	}
	f.timer.Stop()
	r.V, r.CallID = registry.EnvelopeVersion, f.callID
	if r.Result != nil && !f.durable {
		r.Tenant, r.Session = f.key.Tenant, f.key.Session
	}
	f.reply(r)
	return true
}

// drop ends the in-flight call without an answer: its caller has stopped waiting.
func (f *inFlightCall) drop() {
	if f.done.CompareAndSwap(false, true) {
		f.timer.Stop()
	}
}

// loseConnection ends the in-flight call because its connection has. One that was not given to the socket yet has not
// reached the device: who is about to do that finds the connection gone, and says so.
func (f *inFlightCall) loseConnection() {
	f.sending.Lock()
	sent := f.sent.Load()
	f.connectionEnded = !sent
	f.sending.Unlock()
	if !sent {
		f.drop()
		return
	}
	f.finish(registry.Reply{Err: registry.Errorf(registry.CodeConnectionLost,
		"The device disconnected before it answered; the tool may have run.").With(registry.DispatchedYes)})
}

// sendReceipt tells the waiting pod that the call was written and is not answered yet.
func (f *inFlightCall) sendReceipt() {
	if !f.done.Load() {
		f.reply(registry.Reply{V: registry.EnvelopeVersion, CallID: f.callID, Delivered: true, Running: f.running.Load()})
	}
}

// deliver writes a call to the socket and remembers it until it is settled, dropped, or expired. An error means the
// device will not see the call. reply also gets a receipt if the answer takes longer than receiptAfter. A durable
// call is claimed in the store first, which must not happen in a goroutine that others wait for.
func (l *LocalSession) deliver(ctx context.Context, c DeviceCall, durable bool, reply func(registry.Reply)) (*inFlightCall, error) {
	if _, ok := l.Tool(c.Tool); !ok {
		return nil, registry.Errorf(registry.CodeToolNotFound, "The session does not offer the tool %q. List its tools and try again.", c.Tool).
			With(registry.DispatchedNo)
	}
	f := &inFlightCall{key: l.key, callID: c.ID, durable: durable, reply: reply}
	f.session.Store(l)
	if err := l.track(f, c.Timeout); err != nil {
		return nil, err
	}
	if durable {
		if err := l.claimCall(ctx, c); err != nil {
			f.abandon()
			return nil, err
		}
	}
	err := f.send(l.conn, c)
	if err != nil && durable {
		l.unclaimCall(ctx, c.ID)
	}
	return f, err
}

// send gives the call to the socket. If the socket does not take it, nothing of the in-flight call is left: the call
// may be made anew, under the same id.
func (f *inFlightCall) send(conn Conn, c DeviceCall) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	switch {
	case f.connectionEnded:
		return registry.NotConnected()
	case f.done.Load(): // while it was claimed
		return callCancelled(registry.DispatchedNo)
	}
	if err := conn.Deliver(c); err != nil {
		f.abandon()
		return registry.AsError(err).With(registry.DispatchedNo)
	}
	f.sent.Store(true)
	return nil
}

// unclaimCall gives a claim back: the device has not seen the call, so another pod may take it, or it may be refused.
func (l *LocalSession) unclaimCall(ctx context.Context, callID string) {
	if _, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, callID, registry.EventReturn, registry.Change{}); err != nil {
		l.hub.log.Warn("claim of a call not given back", "call", callID, "error", err)
	}
}

// claimCall makes this pod the one that delivers a durable call. Nobody else can from then on. It takes no longer than
// a task, nor than the call may.
func (l *LocalSession) claimCall(ctx context.Context, c DeviceCall) error {
	ctx, cancel := context.WithTimeout(ctx, min(taskTimeout, c.Timeout))
	defer cancel()
	moved, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, c.ID, registry.EventDeliver, registry.Change{Owner: l.hub.pod, Proof: l.owner()})
	switch {
	case registry.IsCallNotFound(err): // the store was emptied since the record was written
		return registry.StoreUnavailable("claim call", err).With(registry.DispatchedNo)
	case err != nil:
		return registry.AsError(err).With(registry.DispatchedNo)
	case !moved.Applied:
		return registry.Errorf(registry.CodeCancelled, "The call is %s already.", moved.Record.State).With(registry.DispatchedNo)
	default:
		return nil
	}
}

// track adds the in-flight call, within the limit of calls in flight per session, and starts its timers. Both happen
// under the lock, so whoever takes the in-flight call out under it sees the timers it has to stop.
func (l *LocalSession) track(f *inFlightCall, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return registry.NotConnected()
	case l.inFlight[f.callID] != nil:
		return registry.Internal(nil).With(registry.DispatchedUnknown)
	case len(l.inFlight) >= l.hub.maxInFlight:
		l.hub.counts.deviceBusy.Add(1)
		e := registry.Errorf(registry.CodeBusy, "The device already has %d calls in flight. Wait for some to finish.", l.hub.maxInFlight)
		e.RetryAfter = time.Second
		return e.With(registry.DispatchedNo)
	}
	if l.inFlight == nil {
		l.inFlight = make(map[string]*inFlightCall)
	}
	l.inFlight[f.callID] = f
	f.owner = l.session.OwnerProof()
	f.expires = time.Now().Add(timeout + expiryGrace)
	f.timer = time.AfterFunc(min(receiptAfter, timeout+expiryGrace), f.tick)
	return nil
}

// tick is called when the receipt is due, and again when the in-flight call expires. One timer serves both, because
// most calls need neither. There is no receipt for a call that the socket does not have yet: its claim takes long.
func (f *inFlightCall) tick() {
	left := time.Until(f.expires)
	if left <= 0 {
		f.expire()
		return
	}
	if f.sent.Load() {
		f.sendReceipt()
	} else {
		left = min(left, receiptAfter)
	}
	l := f.session.Load()
	l.mu.Lock() // board may still hold it, and has not set the timer yet then
	defer l.mu.Unlock()
	if !f.done.Load() {
		f.timer.Reset(left)
	}
}

// expire ends the in-flight call because nobody waits for it any more.
func (f *inFlightCall) expire() {
	f.done.Store(true) // the timer is this one, and board may not have set it yet
	f.remove()
}

// abandon ends the in-flight call, unless it has, because its call does not reach the device or nobody waits for it any
// more.
func (f *inFlightCall) abandon() {
	if f.done.Load() {
		return // whoever ended it has taken it out
	}
	f.drop()
	f.remove()
}

// remove forgets the in-flight call wherever it is: at a connection, or waiting for the next one. It is done before it
// is looked for, so a connection that takes it over just now finds that out, or is the one found.
func (f *inFlightCall) remove() {
	l := f.session.Load()
	l.untrack(f)
	l.hub.detached.remove(f)
}

// cancel gives a call up: the device is told if it has it, and whoever waits gets cancelled. It reports whether the
// call was open.
func (l *LocalSession) cancel(callID, reason string) bool {
	f := l.take(callID)
	return f != nil && f.cancelAt(l.conn, reason)
}

// cancel is LocalSession.cancel wherever the in-flight call is by now.
func (f *inFlightCall) cancel(reason string) {
	f.cancelAt(f.session.Load().conn, reason)
	f.remove()
}

func (f *inFlightCall) cancelAt(conn Conn, reason string) bool {
	f.sending.Lock()
	defer f.sending.Unlock()
	dispatched := registry.DispatchedNo // whoever is about to give it to the socket finds that it has ended
	if f.sent.Load() {
		conn.Cancel(f.callID, reason)
		dispatched = registry.DispatchedYes
	}
	return f.finish(registry.Reply{Err: registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(dispatched)})
}

// untrack forgets this very in-flight call; another one of the same id stays.
func (l *LocalSession) untrack(f *inFlightCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[f.callID] == f {
		delete(l.inFlight, f.callID)
	}
}

func (l *LocalSession) take(callID string) *inFlightCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.inFlight[callID]
	delete(l.inFlight, callID)
	return f
}

// takeAnswered is take for who has the call's answer.
func (l *LocalSession) takeAnswered(callID string) *inFlightCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.inFlight[callID]
	delete(l.inFlight, callID)
	l.hub.noteAnswer(f)
	return f
}

// noteAnswer has everybody know that a call has its answer who does not find the in-flight call any more, nil if there
// is none. What is durable can be found in the store, as soon as it is there.
func (p *Hub) noteAnswer(f *inFlightCall) {
	switch {
	case f == nil:
	case f.durable:
		p.completing.begin(f.callID)
	default:
		p.answered.add(f.callID, 0)
	}
}
