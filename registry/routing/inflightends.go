package routing

import (
	"time"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

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

// finish ends the in-flight call with r, and reports whether it was open.
func (f *inFlightCall) finish(r registry.Reply) bool {
	if !f.end() {
		return false
	}
	f.sendReply(r)
	return true
}

func (f *inFlightCall) sendReply(r registry.Reply) {
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
			f.sendReply(registry.Reply{Err: registry.NotConnected().With(registry.DispatchedNo)})
		}
		return
	}
	f.finish(registry.Reply{Err: registry.Errorf(registry.CodeConnectionLost,
		"The device disconnected before it answered; the tool may have run.").With(registry.DispatchedYes)})
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

func (f *inFlightCall) cancelAt(conn Conn, reason string) bool {
	sent, ended := f.endUnlessSent(false)
	if sent {
		conn.Cancel(f.callID, reason)
		return f.finish(registry.Reply{Err: callCancelled(registry.DispatchedYes)})
	}
	if ended { // a send finds that the call has ended
		f.sendReply(registry.Reply{Err: callCancelled(registry.DispatchedNo)})
	}
	return ended
}
