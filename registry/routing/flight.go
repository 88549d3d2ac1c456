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

// flight is a call that was written, or is about to be written, to a local socket.
type flight struct {
	key     registry.Key
	callID  string
	owner   string                // the proof of who may answer it; empty: whoever has the session
	home    atomic.Pointer[Local] // the connection it waits at; the next one of the session may take it over
	durable bool
	reply   func(registry.Reply) // called at most once with the final reply; may be called with receipts before
	done    atomic.Bool
	running atomic.Bool

	lastLine atomic.Int64 // of the call's log; of the recorder

	handing sync.Mutex  // held while the socket is given the call, and while it is decided that it will not be
	sent    atomic.Bool // the socket has it; written under handing
	cut     bool        // the connection ended before; guarded by handing

	timer  *time.Timer // first for the receipt, then for the expiry
	ends   time.Time   // when it expires
	resume *time.Timer // set while the flight is an orphan

	logged  atomic.Int64 // bytes the device has reported
	logFull atomic.Bool
}

// finish ends the flight with r. Only the first call has an effect; it reports whether it was the first.
func (f *flight) finish(r registry.Reply) bool {
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

// drop ends the flight without an answer: its caller has stopped waiting.
func (f *flight) drop() {
	if f.done.CompareAndSwap(false, true) {
		f.timer.Stop()
	}
}

// loseConnection ends the flight because its connection has. One that was not given to the socket yet has not reached the
// device: who is about to do that finds the connection gone, and says so.
func (f *flight) loseConnection() {
	f.handing.Lock()
	sent := f.sent.Load()
	f.cut = !sent
	f.handing.Unlock()
	if !sent {
		f.drop()
		return
	}
	f.finish(registry.Reply{Err: registry.Errorf(registry.CodeConnectionLost,
		"The device disconnected before it answered; the tool may have run.").With(registry.DispatchedYes)})
}

// sendReceipt tells the waiting pod that the call was written and is not answered yet.
func (f *flight) sendReceipt() {
	if !f.done.Load() {
		f.reply(registry.Reply{V: registry.EnvelopeVersion, CallID: f.callID, Delivered: true, Running: f.running.Load()})
	}
}

// deliver writes a call to the socket and remembers it until it is settled, dropped, or expired. An error means the
// device will not see the call. reply also gets a receipt if the answer takes longer than receiptAfter. A durable
// call is claimed in the store first, which must not happen in a goroutine that others wait for.
func (l *Local) deliver(ctx context.Context, c DeviceCall, durable bool, reply func(registry.Reply)) (*flight, error) {
	if _, ok := l.Tool(c.Tool); !ok {
		return nil, registry.Errorf(registry.CodeToolNotFound, "The session does not offer the tool %q. List its tools and try again.", c.Tool).
			With(registry.DispatchedNo)
	}
	f := &flight{key: l.key, callID: c.ID, durable: durable, reply: reply}
	f.home.Store(l)
	if err := l.board(f, c.Timeout); err != nil {
		return nil, err
	}
	if durable {
		if err := l.claimCall(ctx, c); err != nil {
			f.abandon()
			return nil, err
		}
	}
	err := f.hand(l.conn, c)
	if err != nil && durable {
		l.unclaimCall(ctx, c.ID)
	}
	return f, err
}

// hand gives the call to the socket. If the socket does not take it, nothing of the flight is left: the call may be made
// anew, under the same id.
func (f *flight) hand(conn Conn, c DeviceCall) error {
	f.handing.Lock()
	defer f.handing.Unlock()
	switch {
	case f.cut:
		return registry.NotConnected()
	case f.done.Load(): // while it was claimed
		return registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(registry.DispatchedNo)
	}
	if err := conn.Deliver(c); err != nil {
		f.abandon()
		return registry.AsError(err).With(registry.DispatchedNo)
	}
	f.sent.Store(true)
	return nil
}

// unclaimCall gives a claim back: the device has not seen the call, so another pod may take it, or it may be refused.
func (l *Local) unclaimCall(ctx context.Context, callID string) {
	if _, err := l.presence.calls.MoveCall(ctx, l.key.Tenant, callID, registry.EventReturn, registry.Change{}); err != nil {
		l.presence.log.Warn("claim of a call not given back", "call", callID, "error", err)
	}
}

// claimCall makes this pod the one that delivers a durable call. Nobody else can from then on. It takes no longer than a
// task, nor than the call may.
func (l *Local) claimCall(ctx context.Context, c DeviceCall) error {
	ctx, cancel := context.WithTimeout(ctx, min(taskTimeout, c.Timeout))
	defer cancel()
	moved, err := l.presence.calls.MoveCall(ctx, l.key.Tenant, c.ID, registry.EventDeliver, registry.Change{Owner: l.presence.pod, Proof: l.owner()})
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

// board adds the flight, within the limit of calls in flight per session, and starts its timers. Both happen under
// the lock, so whoever takes the flight out under it sees the timers it has to stop.
func (l *Local) board(f *flight, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return registry.NotConnected()
	case l.flights[f.callID] != nil:
		return registry.Internal(nil).With(registry.DispatchedUnknown)
	case len(l.flights) >= l.presence.maxInFlight:
		e := registry.Errorf(registry.CodeBusy, "The device already has %d calls in flight. Wait for some to finish.", l.presence.maxInFlight)
		e.RetryAfter = time.Second
		return e.With(registry.DispatchedNo)
	}
	if l.flights == nil {
		l.flights = make(map[string]*flight)
	}
	l.flights[f.callID] = f
	f.owner = l.session.OwnerProof()
	f.ends = time.Now().Add(timeout + expiryGrace)
	f.timer = time.AfterFunc(min(receiptAfter, timeout+expiryGrace), f.tick)
	return nil
}

// tick is called when the receipt is due, and again when the flight expires. One timer serves both, because most calls
// need neither. There is no receipt for a call that the socket does not have yet: its claim takes long.
func (f *flight) tick() {
	left := time.Until(f.ends)
	if left <= 0 {
		f.expire()
		return
	}
	if f.sent.Load() {
		f.sendReceipt()
	} else {
		left = min(left, receiptAfter)
	}
	l := f.home.Load()
	l.mu.Lock() // board may still hold it, and has not set the timer yet then
	defer l.mu.Unlock()
	if !f.done.Load() {
		f.timer.Reset(left)
	}
}

// expire ends the flight because nobody waits for it any more.
func (f *flight) expire() {
	f.done.Store(true) // the timer is this one, and board may not have set it yet
	f.remove()
}

// abandon ends the flight, unless it has, because its call does not reach the device or nobody waits for it any more.
func (f *flight) abandon() {
	if f.done.Load() {
		return // whoever ended it has taken it out
	}
	f.drop()
	f.remove()
}

// remove forgets the flight wherever it is: at a connection, or waiting for the next one. It is done before it is looked
// for, so a connection that takes it over just now finds that out, or is the one found.
func (f *flight) remove() {
	l := f.home.Load()
	l.leave(f)
	l.presence.orphans.leave(f)
}

// cancel gives a call up: the device is told if it has it, and whoever waits gets cancelled. It reports whether the call
// was open.
func (l *Local) cancel(callID, reason string) bool {
	f := l.take(callID)
	return f != nil && f.cancel(l.conn, reason)
}

// giveUp is Local.cancel wherever the flight is by now.
func (f *flight) giveUp(reason string) {
	f.cancel(f.home.Load().conn, reason)
	f.remove()
}

func (f *flight) cancel(conn Conn, reason string) bool {
	f.handing.Lock()
	defer f.handing.Unlock()
	dispatched := registry.DispatchedNo // whoever is about to give it to the socket finds that it has ended
	if f.sent.Load() {
		conn.Cancel(f.callID, reason)
		dispatched = registry.DispatchedYes
	}
	return f.finish(registry.Reply{Err: registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(dispatched)})
}

// leave forgets this very flight; another one of the same id stays.
func (l *Local) leave(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights[f.callID] == f {
		delete(l.flights, f.callID)
	}
}

func (l *Local) take(callID string) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flights[callID]
	delete(l.flights, callID)
	return f
}

// takeAnswered is take for who has the call's answer.
func (l *Local) takeAnswered(callID string) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flights[callID]
	delete(l.flights, callID)
	l.presence.noteAnswer(f)
	return f
}

// noteAnswer has everybody know that a call has its answer who does not find the flight any more, nil if there is none. What
// is durable can be found in the store, as soon as it is there.
func (p *Presence) noteAnswer(f *flight) {
	switch {
	case f == nil:
	case f.durable:
		p.settling.begin(f.callID)
	default:
		p.answered.first(f.callID, 0)
	}
}
