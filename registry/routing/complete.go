package routing

import (
	"context"
	"log/slog"
	"time"

	"github.com/farhand/farhand/registry"
)

// Complete takes the device's answer to a call. It calls acknowledge once, now or soon; ignored is true if no open call
// had that id and the answer changed nothing. The answer to a durable call is in the store by then. A late answer is
// stored in the record of its call, if there is one.
func (l *LocalSession) Complete(callID string, r registry.Result, acknowledge func(ignored bool)) {
	p := l.hub
	if f := l.takeCall(callID, p.noteAnswer); f != nil {
		p.complete(f, r, acknowledge)
		return
	}
	if len(callID) > maxCallID {
		acknowledge(true)
		return
	}
	if !p.completing.begin(callID) { // only the first answer counts
		p.completing.end(callID)
		acknowledge(true)
		return
	}
	if !p.tasks.start(l.key, func(ctx context.Context) {
		p.completeLate(ctx, l, callID, r, func(ignored bool) {
			p.completing.end(callID)
			acknowledge(ignored)
		})
	}) {
		p.completing.end(callID)
		acknowledge(true)
	}
}

// complete ends a call that was in flight here with its answer. The caller has noted the answer already (noteAnswer),
// and the note stays until the answer can be found elsewhere, so that no other answer can come first.
func (p *Hub) complete(f *inFlightCall, r registry.Result, acknowledge func(ignored bool)) {
	end := func() { p.afterLog(f, func() { p.completeNow(f, r, acknowledge) }) }
	if p.checkOutput == nil || len(f.output) == 0 || !p.checks.start(f.key, func(ctx context.Context) {
		defer end()
		ctx, cancel := context.WithDeadline(ctx, f.expires.Add(-expiryGrace)) // a caller still waits for the answer
		defer cancel()
		r.Violations = p.checkOutput(ctx, f.key.Tenant, f.output, r)
	}) {
		end()
	}
}

func (p *Hub) completeNow(f *inFlightCall, r registry.Result, acknowledge func(ignored bool)) {
	if !f.durable {
		acknowledge(!f.finish(registry.Reply{Result: &r}))
		return
	}
	if !p.tasks.start(f.key, func(ctx context.Context) {
		ignored := !p.completeDurable(ctx, f, r)
		p.completing.end(f.callID)
		acknowledge(ignored)
	}) {
		e := registry.Errorf(registry.CodeStoreUnavailable, registry.StoreUnavailableAdvice)
		f.finish(registry.Reply{Err: e.With(registry.DispatchedYes)})
		p.completing.end(f.callID)
		acknowledge(true)
	}
}

// Fail ends a call that gets no answer, or none that can be read. A call that is not here may be in flight at a pod
// that held the session before: that pod ends it.
func (l *LocalSession) Fail(callID string, e *registry.Error) {
	p := l.hub
	e = e.With(registry.DispatchedYes)
	f := l.takeCall(callID, nil)
	if f == nil {
		f = p.detached.take(l.key, callID, l.proofs(), nil)
	}
	if f != nil {
		f.finish(registry.Reply{Err: e})
		return
	}
	if len(callID) > maxCallID {
		return
	}
	p.tasks.start(l.key, func(ctx context.Context) {
		p.sendToFormers(ctx, l, registry.Envelope{CallID: callID, Err: e})
	})
}

// completeDurable stores the answer before anybody gets it. It reports false if the answer changed nothing.
func (p *Hub) completeDurable(ctx context.Context, f *inFlightCall, r registry.Result) bool {
	change := registry.Change{Session: f.key, Result: &r}
	moved, err := p.calls.MoveCall(ctx, f.key.Tenant, f.callID, registry.EndEvent(r, nil), change)
	if registry.IsCallNotFound(err) { // the store was emptied; a waiting caller still gets the answer
		return f.finish(registry.Reply{Result: &r})
	}
	if err != nil {
		p.log.Error("answer not stored", "call", f.callID, "error", err)
		f.finish(registry.Reply{Err: registry.AsError(err).With(registry.DispatchedYes)})
		return false
	}
	if !moved.Applied {
		f.drop()
		return false
	}
	p.notifyWatchers(moved)
	if stored := moved.Record.Result; stored != nil && p.calls.amends(f.tool) {
		r = *stored // the other pod is not told what nobody may read
	}
	f.finish(registry.Reply{Result: &r})
	return true
}

const (
	// maxCallID is the longest id of a call in bytes. Those of the gateway are shorter.
	maxCallID = 128

	// largeAnswer is from how many bytes on an answer is sent to the store only after that was asked whether it has the
	// call at all: a device may send any number of answers to unknown ones.
	largeAnswer = 64 << 10
)

// completeLate handles an answer to a call that is not in flight at the connection it came from. The call may belong to
// a former connection, here or on another pod, or its caller may have stopped waiting. The pod that has the call
// decides whether the answer counts; if none has it, the record of the call decides.
func (p *Hub) completeLate(
	ctx context.Context, l *LocalSession, callID string, r registry.Result, acknowledge func(ignored bool),
) {
	if f := p.detached.take(l.key, callID, l.proofs(), p.noteAnswer); f != nil {
		p.complete(f, r, acknowledge)
		return
	}
	if p.answered.has(callID, 0) || p.detached.has(l.key, callID) { // or the call waits for a different device
		acknowledge(true)
		return
	}
	if verdict := p.forwardAnswer(ctx, l, callID, r); verdict != answerUnknown {
		acknowledge(verdict == answerKnown)
		return
	}
	p.storeLateAnswer(ctx, l.key, l.proofs(), callID, r, func(_ context.Context, moved registry.Moved, err error) {
		if err != nil && !registry.IsCallNotFound(err) {
			p.log.Warn("late answer not stored", "call", callID, "error", err)
		}
		if err == nil && moved.Applied {
			// The pod of the call may be about to write an end without this answer, and another answer must not count.
			p.answered.add(callID, 0, 0)
		}
		acknowledge(err != nil || !moved.Applied)
	})
}

// storeLateAnswer stores an answer that nobody waits for in the record of its call. It calls then, at once or soon,
// with what the store returned. A record that is missing may be on its way to the store, so storeLateAnswer tries a
// second time. proofs are those of the device, nil if another pod has checked them.
func (p *Hub) storeLateAnswer(
	ctx context.Context, key registry.Key, proofs []string, callID string, res registry.Result,
	then func(context.Context, registry.Moved, error),
) {
	store := func(ctx context.Context) (registry.Moved, error) {
		if resultSize(&res) > largeAnswer {
			if _, err := p.calls.ReadCall(ctx, key.Tenant, callID); registry.IsCallNotFound(err) {
				return registry.Moved{}, err
			}
		}
		change := registry.Change{Session: key, Proofs: proofs, Result: &res}
		moved, err := p.calls.MoveCall(ctx, key.Tenant, callID, registry.EndEvent(res, nil), change)
		if err == nil && moved.Applied {
			p.notifyWatchers(moved)
		}
		return moved, err
	}
	moved, err := store(ctx)
	// A device may send any number of answers to unknown calls, so the waits for their records have slots of their own.
	if !registry.IsCallNotFound(err) || !p.late.start(key, func(ctx context.Context) {
		if waitABit(ctx) {
			moved, err = store(ctx)
		}
		then(ctx, moved, err)
	}) {
		then(ctx, moved, err)
	}
}

// waitABit waits for as long as a recorder may take to write a record. It reports false if ctx ends first.
func waitABit(ctx context.Context) bool {
	timer := time.NewTimer(3 * recorderPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// notifyWatchers tells the pods that watch a call that it is final now.
func (p *Hub) notifyWatchers(m registry.Moved) { notifyWatchers(p.bus, p.log, m) }

// notifyWatchers tells the pods that watch a call that it is final. A pod that misses the message reads the record
// again after watchPause.
func notifyWatchers(bus registry.Bus, log *slog.Logger, m registry.Moved) {
	for _, pod := range m.Watchers {
		wake := registry.Reply{V: registry.EnvelopeVersion, CallID: m.Record.CallID, Wake: true}
		if err := bus.Reply(pod, wake); err != nil {
			log.Debug("watcher not notified", "call", m.Record.CallID, "pod", pod, "error", err)
		}
	}
}

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
