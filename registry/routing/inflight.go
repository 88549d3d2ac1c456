package routing

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// receiptAfter is how long an answer may take before the waiting pod gets a receipt: the call was written to the
// socket. A faster call costs only one reply (docs/architecture.md, "The path of a call", step 4).
const receiptAfter = 250 * time.Millisecond

// expiryGrace is how much longer than its caller the owning pod keeps a call, so that a last-moment answer still
// reaches the caller.
const expiryGrace = 200 * time.Millisecond

// inFlightCall is a call that was written, or is about to be written, to a local socket. It is safe for concurrent use.
//
//	           send            the socket takes it
//	unsent ───────────▶ sending ─────────────────▶ sent
//	   │                   │                         │
//	   └───────────────────┴───────────┬─────────────┘
//	                                   ▼
//	   ended: answered, cancelled, expired, refused by the socket, or its connection ended
//
// A durable call is unsent while it is claimed in the store. The first end counts: it stops the timer, and its
// goroutine takes the call out of the table. A call may end while it is being passed to the socket, so ended is a field
// beside the state. An end that depends on whether the device has the call, which is a cancellation or the end of the
// connection, waits for that.
type inFlightCall struct {
	key     registry.Key
	callID  string
	tool    string
	output  json.RawMessage // schema of the tool's output; empty: none
	proof   string          // of the device that may answer; empty: any device of the session
	payer   share.Owner     // of its tasks
	durable bool
	reply   func(registry.Reply) // called at most once with the final reply; may be called with receipts before
	expires time.Time            // when it expires; set by track, then never changed
	resume  *time.Timer          // set while the call is detached; guarded by detachedCalls.mu

	mu      sync.Mutex    // only orderedCalls.mu is taken while it is held; LocalSession.mu may be held before
	session *LocalSession // its connection; the session's next one may take it over
	state   flightState
	ended   bool
	left    bool          // the connection ended before the call was sent
	running bool          // the device has begun
	passed  chan struct{} // closed when the state is no longer sending; nil: no goroutine waits for that
	timer   *time.Timer   // first for the receipt, then for the expiry

	log callLog

	turn *turn // in a line of ordered calls; nil: none

	span trace.Span // from the writing of the call to its end
}

// flightState is how far a call in flight has come.
type flightState uint8

const (
	flightUnsent flightState = iota
	flightSending
	flightSent
)

// end ends the in-flight call without telling its caller. It reports whether the call was open.
func (f *inFlightCall) end() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.endLocked()
}

func (f *inFlightCall) endLocked() bool {
	if f.ended {
		return false
	}
	f.ended = true
	f.timer.Stop()
	if f.turn != nil {
		f.turn.of.leave(f)
	}
	return true
}

// connection returns the session whose connection has the call now.
func (f *inFlightCall) connection() *LocalSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session
}

// moveTo makes the in-flight call one of another connection. It returns false if the call has ended.
func (f *inFlightCall) moveTo(l *LocalSession) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session = l
	return !f.ended
}

// sendReceipt tells the waiting pod that the call was written and is not answered yet.
func (f *inFlightCall) sendReceipt() {
	f.mu.Lock()
	ended, running := f.ended, f.running
	f.mu.Unlock()
	if !ended {
		f.reply(registry.Reply{CallID: f.callID, Delivered: true, Running: running})
	}
}

// track adds the in-flight call, within the limit of calls in flight per session, and starts its timer. Both happen
// under the lock, so a goroutine that takes the call out sees the timer that it has to stop. The timer waits for f.mu.
func (l *LocalSession) track(f *inFlightCall, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return registry.NotConnected()
	case l.inFlight[f.callID] != nil:
		return registry.Internal(nil).With(registry.DispatchedUnknown)
	case len(l.inFlight) >= l.hub.maxInFlight:
		l.hub.counts.add(&l.hub.counts.DeviceBusy, 1)
		return registry.Errorf(registry.CodeBusy,
			"The device already has %d calls in flight. Wait for some to finish.", l.hub.maxInFlight).
			RetryIn(time.Second).With(registry.DispatchedNo)
	}
	if err := l.shareLocked(f); err != nil {
		l.hub.counts.add(&l.hub.counts.DeviceBusy, 1)
		return err
	}
	l.addLocked(f)
	f.proof = l.session.OwnerProof()
	f.expires = time.Now().Add(timeout + expiryGrace)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.AfterFunc(min(receiptAfter, timeout+expiryGrace), f.tick)
	return nil
}

// inFlightShare is the divisor of a session's limits of calls in flight that gives the share of one user: a user of a
// shared device must not take all of its calls. A user without a call there may make one.
const inFlightShare = 2

// shareLocked returns an error if the caller's user has its share of the session's calls in flight, or of its ordered
// ones. The user of the device may take all of them, and so may a caller without a user: it may call for many. They are
// counted only when they are many.
func (l *LocalSession) shareLocked(f *inFlightCall) error {
	most, ordered := l.hub.maxInFlight/inFlightShare, l.hub.orders.most/inFlightShare
	user := f.log.user
	if user == "" || user == l.session.UserID || len(l.inFlight) < min(most, ordered) {
		return nil
	}
	calls, turns := 0, 0
	for _, other := range l.inFlight {
		if other.log.user != user {
			continue
		}
		if calls++; other.turn != nil {
			turns++
		}
	}
	switch {
	case calls > 0 && calls >= most:
		return registry.Errorf(registry.CodeBusy, "The device already has %d calls of this user in flight, half of "+
			"what it takes. Wait for some to finish.", calls).RetryIn(time.Second).With(registry.DispatchedNo)
	case f.turn != nil && turns > 0 && turns >= ordered:
		return registry.Errorf(registry.CodeBusy, "The device already has %d ordered calls of this user, half of "+
			"what it takes. Wait for some to finish.", turns).RetryIn(time.Second).With(registry.DispatchedNo)
	}
	return nil
}

func (l *LocalSession) addLocked(f *inFlightCall) {
	if l.inFlight == nil { // most sessions are idle
		l.inFlight = make(map[string]*inFlightCall)
	}
	l.inFlight[f.callID] = f
}

// cancel ends a call as cancelled, and tells the device if it has the call. It reports whether the call was open.
func (l *LocalSession) cancel(callID, reason string) bool {
	f := l.takeCall(callID, nil)
	return f != nil && f.cancelAt(l.conn, reason)
}

// cancel is LocalSession.cancel for a call that may have moved to another connection.
func (f *inFlightCall) cancel(reason string) {
	f.cancelAt(f.connection().conn, reason)
	f.remove()
}

func (l *LocalSession) untrack(f *inFlightCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[f.callID] == f {
		delete(l.inFlight, f.callID)
	}
}

// takeCall removes and returns the in-flight call with that id, nil if there is none. If the call is answered, note is
// Hub.noteAnswer, else nil. It is called under the lock, so that other goroutines always find the call or the note.
func (l *LocalSession) takeCall(callID string, note func(*inFlightCall)) *inFlightCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.inFlight[callID]
	delete(l.inFlight, callID)
	if f != nil && note != nil {
		note(f)
	}
	return f
}

// noteAnswer records that an in-flight call, which is about to be taken out, has been answered. The note of a durable
// call is needed only until the store has its answer.
func (p *Hub) noteAnswer(f *inFlightCall) {
	if f.durable {
		p.completing.begin(f.callID)
	} else {
		p.answered.add(f.callID, 0, 0)
	}
}

// Remaining returns how long the caller of a call in flight still waits; false if there is no such call.
func (l *LocalSession) Remaining(callID string) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.inFlight[callID]
	if f == nil {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.expires), !f.ended
}
