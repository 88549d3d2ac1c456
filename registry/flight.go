package registry

import (
	"context"
	"sync/atomic"
	"time"
)

// receiptAfter is how long an answer may take before the waiting pod is told that the call was written to the
// socket. Faster calls cost one reply only (architecture.md, "A call across pods", step 5).
const receiptAfter = 250 * time.Millisecond

// expiryGrace is how much longer than its caller the owning pod remembers a call, so that an answer that makes it
// just in time still finds its way.
const expiryGrace = 200 * time.Millisecond

// flight is a call that was written, or is about to be written, to a local socket.
type flight struct {
	key     Key
	callID  string
	home    atomic.Pointer[Local] // the connection it waits at; the next one of the session may take it over
	durable bool
	reply   func(Reply) // called at most once with the final reply; may be called with receipts before
	done    atomic.Bool
	sent    atomic.Bool // it was given to the socket
	running atomic.Bool
	timer   *time.Timer // first for the receipt, then for the expiry
	ends    time.Time   // when it expires
	resume  *time.Timer // set while the flight is an orphan
}

// finish ends the flight with r. Only the first call has an effect; it reports whether it was the first.
func (f *flight) finish(r Reply) bool {
	if !f.done.CompareAndSwap(false, true) {
		return false
	}
	f.timer.Stop()
	r.V, r.CallID = EnvelopeVersion, f.callID
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
// device: who is about to do that finds the connection closed, and says so.
func (f *flight) loseConnection() {
	if !f.sent.Load() {
		f.drop()
		return
	}
	f.finish(Reply{Err: Errorf(CodeConnectionLost,
		"The device disconnected before it answered; the tool may have run.").With(DispatchedYes)})
}

// sendReceipt tells the waiting pod that the call was written and is not answered yet.
func (f *flight) sendReceipt() {
	if !f.done.Load() {
		f.reply(Reply{V: EnvelopeVersion, CallID: f.callID, Delivered: true, Running: f.running.Load()})
	}
}

// deliver writes a call to the socket and remembers it until it is settled, dropped, or expired. An error means the
// device will not see the call. reply also gets a receipt if the answer takes longer than receiptAfter. A durable
// call is claimed in the store first, which must not happen in a goroutine that others wait for.
func (l *Local) deliver(ctx context.Context, c DeviceCall, durable bool, reply func(Reply)) error {
	if _, ok := l.Tool(c.Tool); !ok {
		return Errorf(CodeToolNotFound, "The session does not offer the tool %q. List its tools and try again.", c.Tool).
			With(DispatchedNo)
	}
	f := &flight{key: l.key, callID: c.ID, durable: durable, reply: reply}
	f.home.Store(l)
	if err := l.board(f, c.Timeout); err != nil {
		return err
	}
	if durable {
		if err := l.claimCall(ctx, c); err != nil {
			l.forget(f.callID)
			return err
		}
	}
	err := l.hand(f, c)
	if err != nil && durable {
		l.unclaimCall(ctx, c.ID)
	}
	return err
}

// hand gives a call that is aboard to the socket.
func (l *Local) hand(f *flight, c DeviceCall) error {
	if f.done.Load() { // while it was claimed
		if l.isClosed() {
			return notConnected()
		}
		return Errorf(CodeCancelled, "The call was cancelled.").With(DispatchedNo)
	}
	f.sent.Store(true)
	if err := l.conn.Deliver(c); err != nil {
		f.sent.Store(false)
		l.forget(f.callID)
		return AsError(err).With(DispatchedNo)
	}
	return nil
}

func (l *Local) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// unclaimCall gives a claim back: the device has not seen the call, so another pod may take it, or it may be refused.
func (l *Local) unclaimCall(ctx context.Context, callID string) {
	if _, err := l.presence.calls.MoveCall(ctx, l.key.Tenant, callID, EventReturn, Change{}); err != nil {
		l.presence.log.Warn("claim of a call not given back", "call", callID, "error", err)
	}
}

// claimCall makes this pod the one that delivers a durable call. Nobody else can from then on. It takes no longer than a
// task, nor than the call may.
func (l *Local) claimCall(ctx context.Context, c DeviceCall) error {
	ctx, cancel := context.WithTimeout(ctx, min(taskTimeout, c.Timeout))
	defer cancel()
	moved, err := l.presence.calls.MoveCall(ctx, l.key.Tenant, c.ID, EventDeliver, Change{Owner: l.presence.pod})
	switch {
	case IsCallNotFound(err): // the store was emptied since the record was written
		return StoreUnavailable("claim call", err).With(DispatchedNo)
	case err != nil:
		return AsError(err).With(DispatchedNo)
	case !moved.Applied:
		return Errorf(CodeCancelled, "The call is %s already.", moved.Record.State).With(DispatchedNo)
	default:
		l.presence.rec.event(stateEvent(moved.Record))
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
		return notConnected()
	case l.flights[f.callID] != nil:
		return Errorf(CodeInternal, unknownErrorMessage).With(DispatchedUnknown)
	case len(l.flights) >= l.presence.maxInFlight:
		e := Errorf(CodeBusy, "The device already has %d calls in flight. Wait for some to finish.", l.presence.maxInFlight)
		e.RetryAfter = time.Second
		return e.With(DispatchedNo)
	}
	if l.flights == nil {
		l.flights = make(map[string]*flight)
	}
	l.flights[f.callID] = f
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

// expire ends the flight wherever it is: at a connection, or waiting for the next one. It is done before it is looked
// for, so a connection that takes it over just now finds that out, or is the one found.
func (f *flight) expire() {
	f.done.Store(true) // the timer is this one, and board may not have set it yet
	l := f.home.Load()
	l.forget(f.callID)
	l.presence.orphans.take(f.key, f.callID)
}

// forget drops a call nobody waits for any more.
func (l *Local) forget(callID string) {
	if f := l.take(callID); f != nil {
		f.drop()
	}
}

// cancel gives a call up: the device is told, and whoever waits gets cancelled. It reports whether the call was open.
func (l *Local) cancel(callID, reason string) bool {
	f := l.take(callID)
	if f == nil {
		return false
	}
	l.conn.Cancel(callID, reason)
	return f.finish(Reply{Err: Errorf(CodeCancelled, "The call was cancelled.").With(DispatchedYes)})
}

func (l *Local) take(callID string) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flights[callID]
	delete(l.flights, callID)
	return f
}

func notConnected() *Error {
	return Errorf(CodeNotConnected, "The device is not connected. Retry when it is back.").With(DispatchedNo)
}
