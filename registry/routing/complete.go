package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

// Complete handles a device's answer to a call. It calls acknowledge once, immediately or later. ignored is true if no
// open call had that id and the answer changed nothing. By then the answer to a durable call is in the store. A late
// answer is stored in the record of its call, if there is one.
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
	end := p.endCompleting(callID, acknowledge)
	late := func(ctx context.Context) { p.completeLate(ctx, l, callID, r, end) }
	if !p.completing.begin(callID) || !p.tasks.start(l.payer, late) { // only the first answer counts
		end(true)
	}
}

// endCompleting returns acknowledge for an answer that is being stored.
func (p *Hub) endCompleting(callID string, acknowledge func(ignored bool)) func(ignored bool) {
	return func(ignored bool) {
		p.completing.end(callID)
		acknowledge(ignored)
	}
}

// complete ends a call that was in flight here with its answer. The caller has already noted the answer (noteAnswer).
// The note stays until the answer can be found elsewhere, so that no other answer can come first.
func (p *Hub) complete(f *inFlightCall, r registry.Result, acknowledge func(ignored bool)) {
	end := func() { p.afterLog(f, func() { p.completeNow(f, r, acknowledge) }) }
	if p.checkOutput == nil || len(f.output) == 0 || !p.checks.start(f.payer, func(ctx context.Context) {
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
	end := p.endCompleting(f.callID, acknowledge)
	if !p.tasks.start(f.payer, func(ctx context.Context) { p.completeDurable(ctx, f, r, end) }) {
		e := registry.Errorf(registry.CodeStoreUnavailable, registry.StoreUnavailableAdvice)
		f.finish(registry.Reply{Err: e.With(registry.DispatchedYes)})
		end(true)
	}
}

// Fail ends a call that gets no answer, or an unreadable one. If the call is not here, it may be in flight at a former
// pod of the session: that pod ends it.
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
	p.tasks.start(l.payer, func(ctx context.Context) {
		p.sendToFormers(ctx, l, registry.Envelope{CallID: callID, Err: e})
	})
}

// Return gives back a call that the device has and did not run, because it wants a person to decide first: why is its
// reason. The call fails with CodeAsksPerson at its caller, who may call again under the same id. It does nothing if
// the call is not in flight here, for example because its caller stopped waiting.
func (l *LocalSession) Return(callID, why string) {
	p := l.hub
	f := l.takeCall(callID, nil)
	if f == nil {
		return
	}
	reply := registry.Reply{Err: registry.AsksPerson(why)}
	if !f.durable {
		f.finish(reply)
		return
	}
	// The record must be open again before the caller tries again.
	if !p.tasks.start(f.payer, func(ctx context.Context) {
		moved, err := p.calls.MoveCall(ctx, f.key.Tenant, callID, registry.EventReturn,
			registry.Change{Owner: p.pod})
		if err != nil || !moved.Applied {
			p.log.Warn("call that its device gave back not released", "call", callID, "error", err)
			reply.Err = notReleased()
		}
		f.finish(reply)
	}) {
		f.finish(registry.Reply{Err: notReleased()})
	}
}

// notReleased is the error of a call that its device gave back and that cannot be tried again.
func notReleased() *registry.Error {
	return registry.Errorf(registry.CodeApprovalDenied, "The device wants a person to decide about this call, and the "+
		"gateway could not ask now. Call again.").With(registry.DispatchedYes)
}

// completeDurable stores the answer before the caller gets it. If the store is unavailable, the caller gets that, and
// the answer is stored later. It calls end with true if the answer changed nothing.
func (p *Hub) completeDurable(ctx context.Context, f *inFlightCall, r registry.Result, end func(ignored bool)) {
	moved, err := p.storeAnswer(ctx, f, r)
	switch {
	case registry.IsCallNotFound(err): // the store was emptied; a waiting caller still gets the answer
		end(!f.finish(registry.Reply{Result: &r}))
	case err != nil:
		f.finish(registry.Reply{Err: registry.AsError(err).With(registry.DispatchedYes)})
		store := func(ctx context.Context) (registry.Moved, error) { return p.storeAnswer(ctx, f, r) }
		p.storeOnceBack(f.key, &r, err, store, func(moved registry.Moved, err error) {
			if err != nil {
				p.log.Error("answer not stored", "call", f.callID, "error", err)
			}
			end(err != nil || !moved.Applied)
		})
	case !moved.Applied:
		f.end()
		end(true)
	default:
		if stored := moved.Record.Result; stored != nil && p.calls.amends(f.tool) {
			r = *stored // the other pod must not get what the amending removed
		}
		f.finish(registry.Reply{Result: &r})
		end(false)
	}
}

// storeAnswer ends the record of a call with its answer.
func (p *Hub) storeAnswer(ctx context.Context, f *inFlightCall, r registry.Result) (registry.Moved, error) {
	change := registry.Change{Session: f.key, Result: &r}
	moved, err := p.calls.MoveCall(ctx, f.key.Tenant, f.callID, registry.EndEvent(r, nil), change)
	if err == nil && moved.Applied {
		p.notifyWatchers(moved)
	}
	return moved, err
}

// answerTries is how often the store is tried again for an answer, a second apart. It restarts within that time.
const answerTries = 30

// storeOnceBack stores an answer that the store could not take, once it can. Until then the device keeps the answer,
// and the call keeps its slot among the late ones: its tries are one task, each with the time of a task. It calls then
// with the store's result, or with the last error if it gives up: at once for large answers, which are not held here,
// and without slots, and after the current try if the pod closes.
func (p *Hub) storeOnceBack(
	key registry.Key, r *registry.Result, err error,
	store func(context.Context) (registry.Moved, error), then func(registry.Moved, error),
) {
	again := func() (registry.Moved, error) {
		ctx, cancel := context.WithTimeout(context.Background(), taskTimeout)
		defer cancel()
		_ = pause.For(ctx, endPause) // shorter than the task
		return store(ctx)
	}
	if resultSize(r) > largeAnswer || !p.late.start(p.payer(key), func(context.Context) {
		moved, err := again()
		for tries := 1; err != nil && !registry.IsCallNotFound(err); tries++ {
			if tries == answerTries || p.late.closing() {
				break
			}
			moved, err = again()
		}
		then(moved, err)
	}) {
		then(registry.Moved{}, err)
	}
}

const (
	// maxCallID is the longest id of a call in bytes. Ids of the gateway are shorter.
	maxCallID = 128

	// largeAnswer is the size in bytes above which the pod checks that the store has the call before it sends the
	// answer: a device may send any number of answers to unknown calls.
	largeAnswer = 64 << 10
)

// completeLate handles an answer to a call that is not in flight at this connection. The call may belong to a former
// connection, here or on another pod, or its caller may have stopped waiting. The pod that has the call decides whether
// the answer counts. If no pod has it, the record of the call decides.
func (p *Hub) completeLate(
	ctx context.Context, l *LocalSession, callID string, r registry.Result, acknowledge func(ignored bool),
) {
	if f := p.detached.take(l.key, callID, l.proofs(), p.noteAnswer); f != nil {
		p.complete(f, r, acknowledge)
		return
	}
	if p.answered.has(callID, 0) || p.detached.has(l.key, callID) { // or the call waits for another device
		acknowledge(true)
		return
	}
	if verdict := p.forwardAnswer(ctx, l, callID, r); verdict != answerUnknown {
		acknowledge(verdict == answerKnown)
		return
	}
	tries := 1
	if len(l.formerPods.current()) > 0 {
		tries = p.movedTries()
	}
	p.storeLateAnswer(ctx, l.key, l.proofs(), callID, r, tries, func(moved registry.Moved, err error) {
		if err != nil && !registry.IsCallNotFound(err) {
			p.log.Warn("late answer not stored", "call", callID, "error", err)
		}
		if err == nil && moved.Applied {
			// The call's pod may be about to write an end without this answer, and another answer must not count.
			p.answered.add(callID, 0, 0)
		}
		p.log.Debug("late answer of an unknown call", "call", callID, "stored", moved.Applied, "error", err)
		acknowledge(err != nil || !moved.Applied)
	})
}

const (
	latePause  = 3 * recorderPause      // before each try: as long as a recorder may take to write a record
	lateWrites = 700 * time.Millisecond // for the writes of a record, on top of lostAfter
)

// movedTries returns how often a missing record is looked for if the device's former pod may have died with the call.
// The caller's pod writes the record once it takes the call for lost (lostAfter). The tries end within taskTimeout:
// with a longer lostAfter, they may end before the record is there. If half of the slots are taken, it returns
// 1: many answers to unknown calls must not keep others from their slots.
func (p *Hub) movedTries() int {
	if p.late.slots.Stats().Held >= maxLate/2 { // what one tenant can hold
		return 1
	}
	return int(min(lostAfter(p.sendTimeout)+lateWrites, taskTimeout-2*latePause) / latePause)
}

// storeLateAnswer stores an answer without a waiting caller in the record of its call. It calls then, immediately or
// later, with the store's result. A missing record may be on its way to the store, so storeLateAnswer looks for it so
// many times more; a store that is unavailable is tried as by storeOnceBack. proofs are the device's, nil if another
// pod has checked them.
func (p *Hub) storeLateAnswer(
	ctx context.Context, key registry.Key, proofs []string, callID string, res registry.Result, tries int,
	then func(registry.Moved, error),
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
	if err != nil && !registry.IsCallNotFound(err) {
		p.storeOnceBack(key, &res, err, store, then)
		return
	}
	// A device may send any number of answers to unknown calls, so the waits for their records have their own slots.
	if err == nil || !p.late.start(p.payer(key), func(ctx context.Context) {
		for ; tries > 0 && registry.IsCallNotFound(err) && pause.For(ctx, latePause) == nil; tries-- {
			moved, err = store(ctx)
		}
		then(moved, err)
	}) {
		then(moved, err)
	}
}

// Progress handles a device's report of a running call: that it has begun, its progress, a part of its output. Reports
// of a finished call are ignored. The error is for the device, once per call: from here on its reports are not stored.
func (l *LocalSession) Progress(callID string, progress, total *float64, message, chunk string) error {
	l.mu.Lock()
	f := l.inFlight[callID]
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	if l.hub.calls.amends(f.tool) {
		message, chunk = "", "" // they may contain text that the amending removes from the result
	}
	if f.begin() {
		l.begun(f, message)
	}
	r := registry.Report{Progress: progress, Total: total, Message: message, Chunk: chunk}
	return l.hub.report(&f.log, l.key, callID, r, func(tooLong bool) *registry.Error {
		if tooLong {
			return registry.Errorf(registry.CodePayloadTooLarge, "The log of the call %s is full: it stores at most "+
				"%d bytes. The call continues.", callID, l.hub.logBytes)
		}
		return registry.Errorf(registry.CodeRateLimited, "The report of the call %s was not stored: the call logs of "+
			"this device or tenant are full. The call continues.", callID)
	})
}

func (l *LocalSession) begun(f *inFlightCall, message string) {
	f.sendReceipt()
	// One line per call: otherwise a device with many reports would push everything else out of the feed.
	l.hub.rec.activity(registry.Activity{
		Tenant: l.key.Tenant, Type: registry.ActivityCallProgress, SessionID: l.key.Session, Reason: message,
		Call: &registry.Record{
			CallID: f.callID, Tenant: l.key.Tenant, SessionID: l.key.Session, Tool: f.tool,
			State: registry.StateRunning, Dispatched: registry.DispatchedYes,
		},
	})
	// These come first in the call's log. They are written here because the waiting pod may write them later.
	for _, s := range []registry.State{registry.StateDelivered, registry.StateRunning} {
		f.log.note(l.hub.rec.event(registry.StateEvent(l.key.Tenant, f.callID, s, time.Time{})))
	}
	if !f.durable {
		return
	}
	l.hub.tasks.start(l.payer, func(ctx context.Context) {
		_, err := l.hub.calls.MoveCall(ctx, l.key.Tenant, f.callID, registry.EventRun, registry.Change{})
		if err != nil {
			l.hub.log.Debug("start of a call not stored", "call", f.callID, "error", err)
		}
	})
}

// begin records that the device has begun with the call, and reports whether this was the first report.
func (f *inFlightCall) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.running
	f.running = true
	return first
}

// afterLog runs end once all reports of the call have been written, immediately or later.
func (p *Hub) afterLog(f *inFlightCall, end func()) {
	line := f.log.lastLine()
	if p.rec.wrote(line) || !p.tasks.start(f.payer, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, logWait)
		defer cancel()
		p.rec.waitFor(ctx, line)
		end()
	}) {
		end()
	}
}
