package routing

import (
	"context"
	"encoding/json"
	"sync"
	"time"

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
	durable bool
	reply   func(registry.Reply) // called at most once with the final reply; may be called with receipts before
	expires time.Time            // when it expires; set by track, then never changed
	resume  *time.Timer          // set while the call is detached; guarded by detachedCalls.mu

	mu      sync.Mutex    // only lines.mu is taken while it is held; LocalSession.mu may be held before
	session *LocalSession // its connection; the session's next one may take it over
	state   flightState
	ended   bool
	left    bool          // the connection ended before the call was sent
	running bool          // the device has begun
	passed  chan struct{} // closed when the state is no longer sending; nil: no goroutine waits for that
	timer   *time.Timer   // first for the receipt, then for the expiry

	log callLog

	place *place // in a line of ordered calls; nil: none

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
	if f.place != nil {
		f.place.lines.leave(f)
	}
	return true
}

// endUnlessSent ends the in-flight call if the socket does not have it, and reports whether the socket has it, and
// whether this ended the call. left means that the connection has ended.
func (f *inFlightCall) endUnlessSent(left bool) (sent, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sentLocked() {
		return true, false
	}
	f.left = f.left || left
	return false, f.endLocked()
}

// sentLocked reports whether the socket has the call. It waits while the call is being passed to the socket.
func (f *inFlightCall) sentLocked() bool {
	for f.state == flightSending {
		if f.passed == nil {
			f.passed = make(chan struct{})
		}
		passed := f.passed
		f.mu.Unlock()
		<-passed
		f.mu.Lock()
	}
	return f.state == flightSent
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

// finish ends the in-flight call with r, and reports whether it was open.
func (f *inFlightCall) finish(r registry.Reply) bool {
	if !f.end() {
		return false
	}
	f.tell(r)
	return true
}

func (f *inFlightCall) tell(r registry.Reply) {
	r.CallID = f.callID
	if r.Result != nil && !f.durable {
		r.Tenant, r.Session = f.key.Tenant, f.key.Session
	}
	f.span.End(failureOfReply(r))
	f.reply(r)
}

// failureOfReply returns what a span says of a reply: the code of its error, or that the tool failed.
func failureOfReply(r registry.Reply) string {
	switch {
	case r.Err != nil:
		return string(r.Err.Code)
	case r.Result != nil && !r.Result.Success:
		return trace.ToolFailed
	default:
		return ""
	}
}

// loseConnection ends the in-flight call because its connection has ended. If the socket did not get the call yet, the
// device has not received it: send will find the connection gone and report that to the caller.
func (f *inFlightCall) loseConnection() {
	if sent, ended := f.endUnlessSent(true); !sent {
		if ended && f.leftWaiting() { // nothing will send it
			f.tell(registry.Reply{Err: registry.NotConnected().With(registry.DispatchedNo)})
		}
		return
	}
	f.finish(registry.Reply{Err: registry.Errorf(registry.CodeConnectionLost,
		"The device disconnected before it answered; the tool may have run.").With(registry.DispatchedYes)})
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

// deliver writes a call to the socket and tracks it until it is finished, dropped, or expired. After an error the
// device will not receive the call. reply also gets a receipt if the answer takes longer than receiptAfter. A durable
// call is first claimed in the store, so deliver must not run on a goroutine that others wait for. An ordered call may
// have to wait for its turn (waits): then it is written later, and reply gets a receipt, or an error.
func (l *LocalSession) deliver(
	ctx context.Context, c DeviceCall, decided basis, durable bool, reply func(registry.Reply),
) (f *inFlightCall, waits bool, err error) {
	spec, err := l.holds(c.Tool, decided)
	if err != nil {
		return nil, false, err
	}
	ctx, span := l.hub.tracer.Start(ctx, trace.Client, "device", spec.Name)
	c.Trace = trace.Parent(ctx)
	span.Text(trace.Device, l.key.Session).Text(trace.ToolCall, c.ID).Text(trace.Pod, l.hub.pod)
	defer func() {
		if err != nil {
			span.End(failureOf(err))
		}
	}()
	f = &inFlightCall{
		key: l.key, callID: c.ID, tool: spec.Name, output: spec.OutputSchema, durable: durable, reply: reply,
		session: l, span: span,
	}
	f.place = l.hub.lines.place(l.key, spec.Name, c.Order, c.Age)
	if f.place != nil {
		f.place.turn = func(ctx context.Context) { f.takeTurn(ctx, c, decided) }
	}
	if err := l.track(f, c.Timeout); err != nil {
		return nil, false, err
	}
	if f.place != nil {
		if waits, err = l.hub.lines.join(f); waits {
			return f, true, nil
		} else if err != nil {
			f.abandon()
			return nil, false, err
		}
	}
	return f, false, l.dispatch(ctx, f, c, decided)
}

// takeTurn delivers an ordered call that has waited, to the connection that its session has now.
func (f *inFlightCall) takeTurn(ctx context.Context, c DeviceCall, decided basis) {
	c.Timeout = time.Until(f.expires) - expiryGrace
	err := registry.AsError(registry.TimedOut(c.Timeout, registry.DispatchedNo))
	if c.Timeout > 0 {
		if failed := f.connection().dispatch(ctx, f, c, decided); failed == nil {
			f.sendReceipt()
			return
		} else {
			err = registry.AsError(failed)
		}
	}
	f.abandon()
	f.span.End(string(err.Code))
	f.reply(registry.Reply{CallID: f.callID, Err: err})
}

// dispatch claims a durable call, and writes a tracked call to the socket. After an error the call is not tracked.
func (l *LocalSession) dispatch(ctx context.Context, f *inFlightCall, c DeviceCall, decided basis) (err error) {
	durable := f.durable
	if durable {
		if err := l.claimCall(ctx, c); err != nil {
			f.abandon()
			return err
		}
	}
	if _, err = l.holds(c.Tool, decided); err == nil { // claiming took a while
		err = f.send(l.conn, c)
	} else {
		f.abandon()
	}
	if err != nil && durable { // another pod may claim the call, or it may be rejected
		_, failed := l.hub.calls.MoveCall(ctx, l.key.Tenant, c.ID, registry.EventReturn, registry.Change{})
		if failed != nil {
			l.hub.log.Warn("claim of a call not released", "call", c.ID, "error", failed)
		}
	}
	return err
}

// basis is what the decision about a call was based on.
type basis struct {
	spec       string // hash of the tool's definition
	attributes uint64 // digest of the session's attributes; zero: unused
}

// holds returns the definition of a tool, and no error if the basis of the call's decision is still valid.
func (l *LocalSession) holds(tool string, decided basis) (registry.ToolSpec, error) {
	l.mu.Lock()
	tools, attributes, background := l.tools.all(), l.attributes, l.session.InBackground()
	l.mu.Unlock()
	spec, ok := toolOf(tools, tool)
	if !ok {
		return spec, registry.Errorf(registry.CodeToolNotFound,
			"The session does not offer the tool %q. List its tools and retry.", tool).With(registry.DispatchedNo)
	}
	if spec.Hash() != decided.spec || decided.attributes != 0 && decided.attributes != attributes {
		return spec, registry.StaleRoute()
	}
	if background && spec.Effects.Foreground() {
		return spec, registry.NeedsForeground(tool)
	}
	return spec, nil
}

// send passes the call to the socket. If the socket rejects it, the in-flight call is removed, so that the call can be
// retried under the same id.
func (f *inFlightCall) send(conn Conn, c DeviceCall) error {
	if err := f.beginSending(); err != nil {
		return err
	}
	if err := f.pass(conn, c); err != nil {
		f.remove()
		return registry.AsError(err).With(registry.DispatchedNo)
	}
	return nil
}

// pass passes the call to the socket. The mutex is not held: the device may answer, and the connection may end,
// meanwhile.
func (f *inFlightCall) pass(conn Conn, c DeviceCall) (err error) {
	taken := false
	defer func() { f.endSending(taken) }() // also if the connection panics
	err = conn.Deliver(c)
	taken = err == nil
	return err
}

func (f *inFlightCall) beginSending() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.left:
		return registry.NotConnected()
	case f.ended: // cancelled while it was being claimed
		return callCancelled(registry.DispatchedNo)
	}
	f.state = flightSending
	return nil
}

// endSending records whether the socket has taken the call. The call may have ended meanwhile.
func (f *inFlightCall) endSending(taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = flightSent
	if !taken {
		f.state = flightUnsent
		f.endLocked()
	}
	if f.passed != nil {
		close(f.passed)
	}
}

// claimCall makes this pod the only one that may deliver a durable call. It takes no longer than a task, or than the
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
		return registry.Errorf(registry.CodeCancelled, "The call is already %s.", moved.Record.State).
			With(registry.DispatchedNo)
	default:
		return nil
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
	l.addLocked(f)
	f.proof = l.session.OwnerProof()
	f.expires = time.Now().Add(timeout + expiryGrace)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer = time.AfterFunc(min(receiptAfter, timeout+expiryGrace), f.tick)
	return nil
}

func (l *LocalSession) addLocked(f *inFlightCall) {
	if l.inFlight == nil { // most sessions are idle
		l.inFlight = make(map[string]*inFlightCall)
	}
	l.inFlight[f.callID] = f
}

// tick is called when the receipt is due, and again when the in-flight call expires. One timer serves both, because
// most calls need neither. There is no receipt while a slow claim keeps the call from the socket.
func (f *inFlightCall) tick() {
	next := time.Until(f.expires)
	if next <= 0 {
		f.abandon()
		return
	}
	f.mu.Lock()
	sent := f.state == flightSent
	if !sent {
		next = min(next, receiptAfter)
	}
	if !f.ended {
		f.timer.Reset(next)
	}
	f.mu.Unlock()
	if sent {
		f.sendReceipt()
	}
}

// abandon ends the in-flight call, if it is open, because the call does not reach the device or no caller waits for it
// any more. The device learns that, if it has the call and cannot know. If the call is not open, the goroutine that
// ended it has taken it out.
func (f *inFlightCall) abandon() {
	if !f.end() {
		return
	}
	f.mu.Lock()
	sent, l := f.sentLocked(), f.session
	f.mu.Unlock()
	if sent {
		f.span.End(string(registry.CodeTimeout))
	}
	if conn, ok := l.conn.(Expirer); ok && sent {
		conn.Expired(f.callID)
	}
	f.remove()
}

// remove removes the in-flight call from its connection, or from the detached calls. The call has ended before, so a
// connection that takes it over at this moment either sees that, or is the connection found here.
func (f *inFlightCall) remove() {
	l := f.connection()
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
	f.cancelAt(f.connection().conn, reason)
	f.remove()
}

func (f *inFlightCall) cancelAt(conn Conn, reason string) bool {
	sent, ended := f.endUnlessSent(false)
	if sent {
		conn.Cancel(f.callID, reason)
		return f.finish(registry.Reply{Err: callCancelled(registry.DispatchedYes)})
	}
	if ended { // a send finds that the call has ended
		f.tell(registry.Reply{Err: callCancelled(registry.DispatchedNo)})
	}
	return ended
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
