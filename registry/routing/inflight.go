package routing

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// receiptAfter is how long an answer may take before the waiting pod is told that the call was written to the socket. A
// faster call costs one reply only (docs/architecture.md, "The path of a call", step 4).
const receiptAfter = 250 * time.Millisecond

// expiryGrace is how much longer than its caller the owning pod remembers a call, so that an answer in the last moment
// still reaches the caller.
const expiryGrace = 200 * time.Millisecond

// inFlightCall is a call that was written, or is about to be written, to a local socket.
type inFlightCall struct {
	key     registry.Key
	callID  string
	tool    string
	output  json.RawMessage              // schema of the tool's output; empty: it has none
	proof   string                       // of the device that may answer; empty: any device that has the session
	session atomic.Pointer[LocalSession] // its connection; the session's next one may take it over
	durable bool
	reply   func(registry.Reply) // called at most once with the final reply; may be called with receipts before
	done    atomic.Bool
	running atomic.Bool

	lastLine atomic.Int64 // the recorder's number of the last line of the call's log

	sending         sync.Mutex  // held while the call is given to the socket, or while it is decided not to
	sent            atomic.Bool // the socket has the call; written under sending
	connectionEnded bool        // the connection ended before that; guarded by sending

	timer   *time.Timer // first for the receipt, then for the expiry
	expires time.Time   // when it expires
	resume  *time.Timer // set while the call is detached

	logged  atomic.Int64 // bytes the device has reported
	logFull atomic.Bool
}

// finish ends the in-flight call with r. Only the first finish has an effect; the result reports whether it was this
// one.
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

// drop ends the in-flight call without an answer: its caller has stopped waiting. It reports whether the call was open.
func (f *inFlightCall) drop() bool {
	if !f.done.CompareAndSwap(false, true) {
		return false
	}
	f.timer.Stop()
	return true
}

// loseConnection ends the in-flight call because its connection has ended. A call that was not given to the socket yet
// has not reached the device: send is about to find the connection gone, and reports that to the caller.
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
		f.reply(registry.Reply{
			V: registry.EnvelopeVersion, CallID: f.callID, Delivered: true, Running: f.running.Load(),
		})
	}
}

// deliver writes a call to the socket and tracks it until it is finished, dropped, or expired. An error means that the
// device will not see the call. reply also gets a receipt if the answer takes longer than receiptAfter. A durable call
// is claimed in the store first, so deliver must not block a goroutine that others wait for. decided is what
// the call was decided on.
func (l *LocalSession) deliver(
	ctx context.Context, c DeviceCall, decided basis, durable bool, reply func(registry.Reply),
) (*inFlightCall, error) {
	spec, err := l.holds(c.Tool, decided)
	if err != nil {
		return nil, err
	}
	f := &inFlightCall{
		key: l.key, callID: c.ID, tool: spec.Name, output: spec.OutputSchema, durable: durable, reply: reply,
	}
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
	_, err = l.holds(c.Tool, decided) // claiming took a while
	if err == nil {
		err = f.send(l.conn, c)
	} else {
		f.abandon()
	}
	if err != nil && durable {
		l.unclaimCall(ctx, c.ID)
	}
	return f, err
}

// basis is what a call was decided on.
type basis struct {
	spec       string // hash of the tool's definition
	attributes uint64 // digest of the session's attributes; zero: they do not matter
}

func basisOf(r registry.Route) basis { return basis{r.Spec.Hash(), r.Attributes} }

// holds returns the definition of a tool, and no error if what a call was decided on still holds.
func (l *LocalSession) holds(tool string, decided basis) (registry.ToolSpec, error) {
	l.mu.Lock()
	tools, attributes := l.tools.all(), l.attributes
	l.mu.Unlock()
	spec, ok := toolOf(tools, tool)
	if !ok {
		e := registry.Errorf(registry.CodeToolNotFound,
			"The session does not offer the tool %q. List its tools and try again.", tool)
		return spec, e.With(registry.DispatchedNo)
	}
	if spec.Hash() != decided.spec || decided.attributes != 0 && decided.attributes != attributes {
		return spec, registry.StaleRoute()
	}
	return spec, nil
}

// send gives the call to the socket. If the socket does not take it, the in-flight call is forgotten, so that the call
// may be made anew under the same id.
func (f *inFlightCall) send(conn Conn, c DeviceCall) error {
	f.sending.Lock()
	defer f.sending.Unlock()
	switch {
	case f.connectionEnded:
		return registry.NotConnected()
	case f.done.Load(): // cancelled while it was being claimed
		return callCancelled(registry.DispatchedNo)
	}
	if err := conn.Deliver(c); err != nil {
		f.drop()
		f.remove()
		return registry.AsError(err).With(registry.DispatchedNo)
	}
	f.sent.Store(true)
	return nil
}

// unclaimCall gives a claim back. The device has not seen the call, so another pod may claim it, or it may be refused.
func (l *LocalSession) unclaimCall(ctx context.Context, callID string) {
	_, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, callID, registry.EventReturn, registry.Change{})
	if err != nil {
		l.hub.log.Warn("claim of a call not given back", "call", callID, "error", err)
	}
}

// claimCall makes this pod the only one that may deliver a durable call. It takes no longer than a task, nor than the
// call's timeout.
func (l *LocalSession) claimCall(ctx context.Context, c DeviceCall) error {
	ctx, cancel := context.WithTimeout(ctx, min(taskTimeout, c.Timeout))
	defer cancel()
	change := registry.Change{Owner: l.hub.pod, Proof: l.ownerProof()}
	moved, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, c.ID, registry.EventDeliver, change)
	switch {
	case registry.IsCallNotFound(err): // the store was emptied since the record was written
		return registry.StoreUnavailable("claim call", err).With(registry.DispatchedNo)
	case err != nil:
		return registry.AsError(err).With(registry.DispatchedNo)
	case !moved.Applied:
		e := registry.Errorf(registry.CodeCancelled, "The call is %s already.", moved.Record.State)
		return e.With(registry.DispatchedNo)
	default:
		return nil
	}
}

// track adds the in-flight call, within the limit of calls in flight per session, and starts its timer. Both happen
// under the lock, so a goroutine that takes the call out sees the timer that it has to stop.
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
		e := registry.Errorf(registry.CodeBusy,
			"The device already has %d calls in flight. Wait for some to finish.", l.hub.maxInFlight)
		e.RetryAfter = time.Second
		return e.With(registry.DispatchedNo)
	}
	if l.inFlight == nil {
		l.inFlight = make(map[string]*inFlightCall)
	}
	l.inFlight[f.callID] = f
	f.proof = l.session.OwnerProof()
	f.expires = time.Now().Add(timeout + expiryGrace)
	f.timer = time.AfterFunc(min(receiptAfter, timeout+expiryGrace), f.tick)
	return nil
}

// tick is called when the receipt is due, and again when the in-flight call expires. One timer serves both, because
// most calls need neither. While the socket does not have the call, because its claim takes long, there is no receipt.
func (f *inFlightCall) tick() {
	next := time.Until(f.expires)
	if next <= 0 {
		f.expire()
		return
	}
	if f.sent.Load() {
		f.sendReceipt()
	} else {
		next = min(next, receiptAfter)
	}
	l := f.session.Load()
	l.mu.Lock() // track may still hold the lock, and has not set the timer then
	defer l.mu.Unlock()
	f.timer.Reset(next)
	if f.done.Load() { // it has ended meanwhile, and perhaps stopped the timer before it was set again
		f.timer.Stop()
	}
}

// expire ends the in-flight call because nobody waits for it any more.
func (f *inFlightCall) expire() {
	if f.done.CompareAndSwap(false, true) { // not drop: the timer has fired, and track may not have noted it yet
		f.tellExpired()
	}
	f.remove()
}

// tellExpired tells the device that nobody waits for the call any more, if it has the call and cannot know. It waits
// while the call is being given to the socket.
func (f *inFlightCall) tellExpired() {
	f.sending.Lock()
	sent := f.sent.Load()
	f.sending.Unlock()
	if conn, ok := f.session.Load().conn.(Expirer); ok && sent {
		conn.Expired(f.callID)
	}
}

// abandon ends the in-flight call, if it is open, because the call does not reach the device or nobody waits for it any
// more.
func (f *inFlightCall) abandon() {
	if !f.drop() {
		return // the goroutine that ended it has taken it out
	}
	f.tellExpired()
	f.remove()
}

// remove forgets the in-flight call wherever it is: at a connection, or detached. done is set before, so a connection
// that takes the call over at this moment either sees that it is done, or is the connection found here.
func (f *inFlightCall) remove() {
	l := f.session.Load()
	l.untrack(f)
	l.hub.detached.remove(f)
}

// cancel ends a call as cancelled, and tells the device if it has the call. It reports whether the call was open.
func (l *LocalSession) cancel(callID, reason string) bool {
	f := l.takeCall(callID, nil)
	return f != nil && f.cancelAt(l.conn, reason)
}

// cancel is LocalSession.cancel for a call that may have moved to another connection.
func (f *inFlightCall) cancel(reason string) {
	f.cancelAt(f.session.Load().conn, reason)
	f.remove()
}

func (f *inFlightCall) cancelAt(conn Conn, reason string) bool {
	f.sending.Lock()
	defer f.sending.Unlock()
	dispatched := registry.DispatchedNo // send, if it comes now, finds that the call has ended
	if f.sent.Load() {
		conn.Cancel(f.callID, reason)
		dispatched = registry.DispatchedYes
	}
	return f.finish(registry.Reply{Err: callCancelled(dispatched)})
}

// untrack removes this very in-flight call; another one with the same id stays.
func (l *LocalSession) untrack(f *inFlightCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[f.callID] == f {
		delete(l.inFlight, f.callID)
	}
}

// takeCall removes and returns the in-flight call with that id, nil if there is none. If the call is answered, note is
// Hub.noteAnswer, else nil. It is called under the lock, so that nobody finds neither the call nor the note.
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

// noteAnswer notes that an in-flight call, which is about to be taken out, has been answered. The note of a durable
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
	if f == nil || f.done.Load() {
		return 0, false
	}
	return time.Until(f.expires), true
}
