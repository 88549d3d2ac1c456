package registry

import (
	"context"
	"time"
)

// Progress notes what the device says about a call on its way: that it has begun, how far it is, a part of its output. A call
// that is not open has ended meanwhile. The error is for the device: what it reports of this call is not kept from here on. It
// comes once for each call.
func (l *Local) Progress(callID string, progress, total *float64, message, chunk string) error {
	l.mu.Lock()
	f := l.flights[callID]
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	if f.running.CompareAndSwap(false, true) {
		l.begun(f, message)
	}
	if progress == nil && message == "" && chunk == "" {
		return nil
	}
	e := CallEvent{
		Tenant: l.key.Tenant, CallID: callID, Type: CallEventProgress, At: time.Now().UTC(),
		Progress: progress, Total: total, Message: message, Chunk: chunk, session: l.key.Session,
	}
	return l.log(f, e)
}

// begun notes that the device has begun with a call.
func (l *Local) begun(f *flight, message string) {
	f.sendReceipt()
	// Once a call, or one talkative device would push everything else out of the feed.
	l.presence.rec.activity(Activity{
		Tenant: l.key.Tenant, Type: ActivityCallProgress, SessionID: l.key.Session, Reason: message,
		Call: &Record{CallID: f.callID, Tenant: l.key.Tenant, SessionID: l.key.Session, State: StateRunning, Dispatched: DispatchedYes},
	})
	if !f.durable {
		return
	}
	l.presence.tasks.run(func(ctx context.Context) {
		if m, err := l.presence.calls.MoveCall(ctx, l.key.Tenant, f.callID, EventRun, Change{}); err == nil && m.Applied {
			l.presence.rec.event(stateEvent(m.Record))
		}
	})
}

// log adds to the log of a call, which is bounded in bytes. What is behind the first thing that has no room is left out, too:
// a log with a hole would be read as a whole one.
func (l *Local) log(f *flight, e CallEvent) error {
	size := jsonSize(e.Message) + jsonSize(e.Chunk)
	var refused *Error
	switch {
	case f.logFull.Load():
		return nil
	case f.logged.Add(size) > l.presence.callLog:
		refused = Errorf(CodePayloadTooLarge, "The log of the call %s is full: %d bytes are kept of what is reported of one call. "+
			"The call goes on.", f.callID, l.presence.callLog)
	case l.presence.calls.spent(l.key) > 0:
		refused = Errorf(CodeRateLimited, "What is reported of the call %s is not kept: too much is kept of calls of this device "+
			"or tenant already. The call goes on.", f.callID)
	default:
		l.presence.rec.event(e)
		return nil
	}
	if !f.logFull.CompareAndSwap(false, true) {
		return nil
	}
	l.presence.rec.event(CallEvent{Tenant: e.Tenant, CallID: e.CallID, Type: CallEventTruncated, Message: refused.Message})
	return refused
}
