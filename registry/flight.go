package registry

import (
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
	callID string
	reply  func(Reply) // called at most once with the final reply; may be called with receipts before
	done   atomic.Bool
	expiry *time.Timer
	notice *time.Timer // nil when nobody wants a receipt
}

// finish ends the flight with r. Only the first call has an effect; it reports whether it was the first.
func (f *flight) finish(r Reply) bool {
	if !f.done.CompareAndSwap(false, true) {
		return false
	}
	f.stopTimers()
	r.V, r.CallID = EnvelopeVersion, f.callID
	f.reply(r)
	return true
}

// drop ends the flight without an answer: its caller has stopped waiting.
func (f *flight) drop() {
	if f.done.CompareAndSwap(false, true) {
		f.stopTimers()
	}
}

func (f *flight) stopTimers() {
	if f.expiry != nil {
		f.expiry.Stop()
	}
	if f.notice != nil {
		f.notice.Stop()
	}
}

// deliver writes a call to the socket and remembers it until it is settled, dropped, or expired. When receipts is
// set, reply also gets a receipt if the answer takes longer than receiptAfter. An error means the device will not
// see the call.
func (l *Local) deliver(c DeviceCall, receipts bool, reply func(Reply)) error {
	if _, ok := l.Tool(c.Tool); !ok {
		return Errorf(CodeToolNotFound, "The session does not offer the tool %q. List its tools and try again.", c.Tool).
			With(DispatchedNo)
	}
	f := &flight{callID: c.ID, reply: reply}
	if err := l.board(f, c.Timeout, receipts); err != nil {
		return err
	}
	if err := l.conn.Deliver(c); err != nil {
		l.forget(f.callID)
		return AsError(err).With(DispatchedNo)
	}
	return nil
}

// board adds the flight, within the limit of calls in flight per session, and starts its timers. Both happen under
// the lock, so whoever takes the flight out sees the timers it has to stop.
func (l *Local) board(f *flight, timeout time.Duration, receipts bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return notConnected()
	case len(l.flights) >= l.presence.maxInFlight:
		e := Errorf(CodeBusy, "The device already has %d calls in flight. Wait for some to finish.", l.presence.maxInFlight)
		e.RetryAfter = time.Second
		return e.With(DispatchedNo)
	}
	if l.flights == nil {
		l.flights = make(map[string]*flight)
	}
	l.flights[f.callID] = f
	f.expiry = time.AfterFunc(timeout+expiryGrace, func() { l.forget(f.callID) })
	if receipts {
		f.notice = time.AfterFunc(receiptAfter, f.sendReceipt)
	}
	return nil
}

// sendReceipt tells the waiting pod that the call was written and is not answered yet.
func (f *flight) sendReceipt() {
	if !f.done.Load() {
		f.reply(Reply{V: EnvelopeVersion, CallID: f.callID, Delivered: true})
	}
}

// Settle hands the device's answer to whoever waits for it. It reports whether the call was open; an answer to no
// open call changes nothing.
func (l *Local) Settle(callID string, r Result) bool {
	f := l.take(callID)
	return f != nil && f.finish(Reply{Result: &r})
}

// forget drops a call nobody waits for any more.
func (l *Local) forget(callID string) {
	if f := l.take(callID); f != nil {
		f.drop()
	}
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
