package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// Complete takes the device's answer to a call. acknowledge is called once, now or soon, and told whether the answer
// was to no open call and changed nothing. What is durable is in the store by then; what comes late is kept in the
// record of its call, if there is one.
func (l *LocalSession) Complete(callID string, r registry.Result, acknowledge func(ignored bool)) {
	p := l.hub
	if f := l.takeAnswered(callID); f != nil {
		p.complete(f, r, acknowledge)
		return
	}
	if !p.completing.begin(callID) { // of several answers the first counts
		p.completing.end(callID)
		acknowledge(true)
		return
	}
	if !p.tasks.run(func(ctx context.Context) {
		p.completeLate(ctx, l, callID, r, func(ignored bool) {
			p.completing.end(callID)
			acknowledge(ignored)
		})
	}) {
		p.completing.end(callID)
		acknowledge(true)
	}
}

// complete ends a call that was in flight here with its answer. From before it is taken out until the answer can be
// found elsewhere it is known that there is one, so that no other answer can come first.
func (p *Hub) complete(f *inFlightCall, r registry.Result, acknowledge func(ignored bool)) {
	p.afterLog(f, func() { p.completeNow(f, r, acknowledge) })
}

func (p *Hub) completeNow(f *inFlightCall, r registry.Result, acknowledge func(ignored bool)) {
	if !f.durable {
		acknowledge(!f.finish(registry.Reply{Result: &r}))
		return
	}
	if !p.tasks.run(func(ctx context.Context) {
		ignored := !p.completeDurable(ctx, f, r)
		p.completing.end(f.callID)
		acknowledge(ignored)
	}) {
		f.finish(registry.Reply{Err: registry.Errorf(registry.CodeStoreUnavailable, registry.StoreUnavailableAdvice).With(registry.DispatchedYes)})
		p.completing.end(f.callID)
		acknowledge(true)
	}
}

// Fail ends a call whose answer could not be understood. It reports whether the call was open.
func (l *LocalSession) Fail(callID string, e *registry.Error) bool {
	f := l.take(callID)
	if f == nil {
		f = l.hub.detached.take(l.key, callID, l.proofs())
	}
	return f != nil && f.finish(registry.Reply{Err: e.With(registry.DispatchedYes)})
}

// completeDurable stores the answer before anybody hears of it.
func (p *Hub) completeDurable(ctx context.Context, f *inFlightCall, r registry.Result) bool {
	moved, err := p.calls.MoveCall(ctx, f.key.Tenant, f.callID, registry.EndEvent(r, nil), registry.Change{Session: f.key, Result: &r})
	if registry.IsCallNotFound(err) { // the store was emptied; whoever waits still gets the answer
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
	f.finish(registry.Reply{Result: &r})
	return true
}

// completeLate finds out what an answer to a call that is not in flight at its connection is: of a call of a former
// one, here or on another pod, or one whose caller has stopped waiting. Who has the call decides; only if nobody does,
// its record.
func (p *Hub) completeLate(ctx context.Context, l *LocalSession, callID string, r registry.Result, acknowledge func(ignored bool)) {
	if f := p.detached.takeAnswered(l.key, callID, l.proofs(), p.noteAnswer); f != nil {
		p.complete(f, r, acknowledge)
		return
	}
	if p.answered.has(callID, 0) || p.detached.has(l.key, callID) { // or it waits for another device than this
		acknowledge(true)
		return
	}
	if said := p.forwardAnswer(ctx, l, callID, r); said != answerUnknown {
		acknowledge(said == answerKnown)
		return
	}
	p.keepLate(ctx, l.key, l.proofs(), callID, r, func(_ context.Context, moved registry.Moved, err error) {
		if err != nil && !registry.IsCallNotFound(err) {
			p.log.Warn("late answer not stored", "call", callID, "error", err)
		}
		if err == nil && moved.Applied { // its pod may be about to write how the call ended for its caller, as if there were none
			p.answered.add(callID, 0)
		}
		acknowledge(err != nil || !moved.Applied)
	})
}

// keepLate puts an answer that nobody waits for into the record of its call, and calls then, at once or soon, with what
// the store said. A record that is not there yet may be on its way: it is looked for a second time. proofs are those of
// the device, nil if another pod has looked at them.
func (p *Hub) keepLate(
	ctx context.Context, key registry.Key, proofs []string, callID string, r registry.Result, then func(context.Context, registry.Moved, error),
) {
	look := func(ctx context.Context) (registry.Moved, error) {
		moved, err := p.calls.MoveCall(ctx, key.Tenant, callID, registry.EndEvent(r, nil), registry.Change{Session: key, Proofs: proofs, Result: &r})
		if err == nil && moved.Applied {
			p.notifyWatchers(moved)
		}
		return moved, err
	}
	moved, err := look(ctx)
	// A device may send as many answers to calls nobody knows as it likes, so those that wait have slots of their own.
	if !registry.IsCallNotFound(err) || !p.late.run(func(ctx context.Context) {
		if waitABit(ctx) {
			moved, err = look(ctx)
		}
		then(ctx, moved, err)
	}) {
		then(ctx, moved, err)
	}
}

// waitABit waits as long as a recorder may take to write. It reports false if ctx ends first.
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

// notifyWatchers wakes the pods that watch a call which is final now.
func (p *Hub) notifyWatchers(m registry.Moved) { notifyWatchers(p.bus, p.log, m) }
