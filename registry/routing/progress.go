package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// Progress notes what the device says about a call on its way: that it has begun, how far it is, a part of its output.
// A call that is not open has ended meanwhile. The error is for the device: what it reports of this call is not kept
// from here on. It comes once for each call.
func (l *LocalSession) Progress(callID string, progress, total *float64, message, chunk string) error {
	l.mu.Lock()
	f := l.inFlight[callID]
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	if l.hub.calls.amending.on() {
		message, chunk = "", "" // they may tell what is to be taken out of the result
	}
	if f.running.CompareAndSwap(false, true) {
		l.begun(f, message)
	}
	if progress == nil && message == "" && chunk == "" {
		return nil
	}
	e := registry.CallEvent{
		Tenant: l.key.Tenant, CallID: callID, Type: registry.CallEventProgress, At: time.Now().UTC(),
		Progress: progress, Total: total, Message: message, Chunk: chunk, Session: l.key.Session,
	}
	return l.log(f, e)
}

// begun notes that the device has begun with a call.
func (l *LocalSession) begun(f *inFlightCall, message string) {
	f.sendReceipt()
	// Once a call, or one talkative device would push everything else out of the feed.
	l.hub.rec.activity(registry.Activity{
		Tenant: l.key.Tenant, Type: registry.ActivityCallProgress, SessionID: l.key.Session, Reason: message,
		Call: &registry.Record{CallID: f.callID, Tenant: l.key.Tenant, SessionID: l.key.Session, State: registry.StateRunning, Dispatched: registry.DispatchedYes},
	})
	// Its log says so before it says anything else: the pod that waits may be slower to tell.
	for _, s := range []registry.State{registry.StateDelivered, registry.StateRunning} {
		f.noteLogLine(l.hub.rec.event(registry.StateEvent(l.key.Tenant, f.callID, s, time.Time{})))
	}
	if !f.durable {
		return
	}
	l.hub.tasks.run(func(ctx context.Context) {
		if _, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, f.callID, registry.EventRun, registry.Change{}); err != nil {
			l.hub.log.Debug("beginning of a call not stored", "call", f.callID, "error", err)
		}
	})
}

// log adds to the log of a call, which is bounded in bytes. What is behind the first thing that has no room is left
// out, too: a log with a hole would be read as a whole one.
func (l *LocalSession) log(f *inFlightCall, e registry.CallEvent) error {
	size := jsonSize(e.Message) + jsonSize(e.Chunk)
	var refused *registry.Error
	switch {
	case f.logFull.Load():
		return nil
	case f.logged.Add(size) > l.hub.callLog:
		refused = registry.Errorf(registry.CodePayloadTooLarge, "The log of the call %s is full: %d bytes are kept of what is reported of one call. "+
			"The call goes on.", f.callID, l.hub.callLog)
	case l.hub.calls.spent(l.key) > 0:
		refused = registry.Errorf(registry.CodeRateLimited, "What is reported of the call %s is not kept: too much is kept of calls of this device "+
			"or tenant already. The call goes on.", f.callID)
	default:
		f.noteLogLine(l.hub.rec.event(e))
		return nil
	}
	if !f.logFull.CompareAndSwap(false, true) {
		return nil
	}
	f.noteLogLine(l.hub.rec.event(registry.CallEvent{Tenant: e.Tenant, CallID: e.CallID, Type: registry.CallEventTruncated, Message: refused.Message}))
	return refused
}

// logWait is how long an answer waits for what was reported before it: the end of a call closes its log.
const logWait = 250 * time.Millisecond

// noteLogLine remembers the last line of the call's log.
func (f *inFlightCall) noteLogLine(line int64) { f.lastLine.Store(line) }

// afterLog runs settle when all that was reported of the call has been written, at once or soon.
func (p *Hub) afterLog(f *inFlightCall, settle func()) {
	line := f.lastLine.Load()
	if p.rec.wrote(line) || !p.tasks.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, logWait)
		defer cancel()
		p.rec.waitFor(ctx, line)
		settle()
	}) {
		settle()
	}
}
