package routing

import (
	"context"
	"time"

	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

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
			span.End(string(registry.CodeOf(err)))
		}
	}()
	f = &inFlightCall{
		key: l.key, callID: c.ID, tool: spec.Name, output: spec.OutputSchema, durable: durable, reply: reply,
		session: l, span: span, payer: l.payer, log: callLog{user: c.UserID},
	}
	f.turn = l.hub.orders.newTurn(l.key, spec.Name, c.Order, c.Age)
	if f.turn != nil {
		f.turn.begin = func(ctx context.Context) { f.takeTurn(ctx, c, decided) }
	}
	if err := l.track(f, c.Timeout); err != nil {
		return nil, false, err
	}
	if f.turn != nil {
		if waits, err = l.hub.orders.join(f); waits {
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
		back := registry.Change{Owner: l.hub.pod}
		_, failed := l.hub.calls.MoveCall(ctx, l.key.Tenant, c.ID, registry.EventReturn, back)
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
