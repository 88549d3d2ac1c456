package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// Progress notes what the device reports of a running call: that it has begun, how far it is, a part of its output. A
// report of a call that has ended is ignored. The error is for the device, once per call: from here on nothing that it
// reports of the call is stored.
func (l *LocalSession) Progress(callID string, progress, total *float64, message, chunk string) error {
	l.mu.Lock()
	f := l.inFlight[callID]
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	if l.hub.calls.amends(f.tool) {
		message, chunk = "", "" // they may contain text that the amending takes out of the result
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
	// One line per call: otherwise a talkative device would push everything else out of the feed.
	l.hub.rec.activity(registry.Activity{
		Tenant: l.key.Tenant, Type: registry.ActivityCallProgress, SessionID: l.key.Session, Reason: message,
		Call: &registry.Record{
			CallID: f.callID, Tenant: l.key.Tenant, SessionID: l.key.Session,
			State: registry.StateRunning, Dispatched: registry.DispatchedYes,
		},
	})
	// These come first in the call's log, written here because the waiting pod may be slower to write them.
	for _, s := range []registry.State{registry.StateDelivered, registry.StateRunning} {
		f.noteLogLine(l.hub.rec.event(registry.StateEvent(l.key.Tenant, f.callID, s, time.Time{})))
	}
	if !f.durable {
		return
	}
	l.hub.tasks.start(l.key, func(ctx context.Context) {
		_, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, f.callID, registry.EventRun, registry.Change{})
		if err != nil {
			l.hub.log.Debug("beginning of a call not stored", "call", f.callID, "error", err)
		}
	})
}

// log adds an event to the log of a call, which is bounded in bytes. After the first event that does not fit, all later
// ones are dropped, too, because nobody could see a hole in the log.
func (l *LocalSession) log(f *inFlightCall, e registry.CallEvent) error {
	size := jsonSize(e.Message) + jsonSize(e.Chunk)
	var refused *registry.Error
	switch {
	case f.logFull.Load():
		return nil
	case f.logged.Add(size) > l.hub.callLog:
		refused = registry.Errorf(registry.CodePayloadTooLarge,
			"The log of the call %s is full: %d bytes are kept of what is reported of one call. The call goes on.",
			f.callID, l.hub.callLog)
	case l.hub.calls.spent(l.key.Tenant, l.key.Session) > 0:
		refused = registry.Errorf(registry.CodeRateLimited, "What is reported of the call %s is not kept: "+
			"too much is kept of calls of this device or tenant already. The call goes on.", f.callID)
	default:
		f.noteLogLine(l.hub.rec.event(e))
		return nil
	}
	if !f.logFull.CompareAndSwap(false, true) {
		return nil
	}
	f.noteLogLine(l.hub.rec.event(registry.CallEvent{
		Tenant: e.Tenant, CallID: e.CallID, Type: registry.CallEventTruncated, Message: refused.Message,
	}))
	return refused
}

// logWait is how long an answer waits until the reports before it are written, because the end of a call closes its
// log.
const logWait = 250 * time.Millisecond

// noteLogLine remembers the recorder's number of the last line of the call's log.
func (f *inFlightCall) noteLogLine(line int64) { f.lastLine.Store(line) }

// afterLog runs end when all reports of the call have been written, at once or soon.
func (p *Hub) afterLog(f *inFlightCall, end func()) {
	line := f.lastLine.Load()
	if p.rec.wrote(line) || !p.tasks.start(f.key, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, logWait)
		defer cancel()
		p.rec.waitFor(ctx, line)
		end()
	}) {
		end()
	}
}
