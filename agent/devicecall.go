package agent

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// DeviceCall is a call of a device's tool that a local tool makes.
type DeviceCall struct {
	Tool    string
	Args    registry.JSON   // an object; none means {}
	Target  registry.Target // must name a session
	Timeout time.Duration   // zero: what the caller of the local tool asked for, else that of the device's tool
}

// CallDevice calls a tool of a device for whoever called a local tool, as if they had called the device's tool
// themselves: by the same identity, in the same turn, conversation and context, by a model if a model asked. Policy,
// limits, guards, hooks, approvals, audit log and records are about that call like about any other. It ends a little
// before the call of the local tool does, whatever Timeout says. While a person is asked about it, the time of the
// local tool does not pass.
//
// ctx is that of the tool's Execute, or derived from it. The error is that of Invoker.Invoke. A tool that returns it as
// it is tells its caller the truth: whether the device can have acted, and who refused.
func CallDevice(ctx context.Context, c DeviceCall) (Outcome, error) {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	if call == nil || call.invoker == nil || c.Target.SessionID == "" {
		return Outcome{}, registry.Errorf(registry.CodeInternal,
			"A device is called by a local tool that runs, and by the session of the device.",
		).With(registry.DispatchedNo)
	}
	outer := &call.prepared.inv
	req := Request{
		Caller: outer.Caller, Tool: c.Tool, Args: c.Args, Target: c.Target, Timeout: c.Timeout,
		Endpoint: outer.Endpoint, Conversation: outer.Conversation, Turn: outer.Turn,
		history: outer.CallHistory, Model: outer.Model, Context: outer.Context, OnApproval: call.prepared.onApproval,
	}
	if req.Timeout <= 0 {
		req.Timeout = call.prepared.timeout
	}
	if from := outer.Provenance; from != nil { // the rest of it is about the arguments of the other call
		req.Provenance = &Provenance{Conversation: from.Conversation}
	}
	req.outer = call.clock
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		req.atMost = left - min(left/10, answerMargin)
	}
	if end := call.prepared.within; !end.IsZero() {
		req.within = end.Add(-min(time.Until(end)/10, answerMargin))
	}
	return call.invoker.Invoke(deadlineOnly{ctx}, req) // hooks must not take the values of a tool's context for theirs
}

// answerMargin is how long before its own end a local tool learns at the latest how a device's call ended.
const answerMargin = time.Second

// AskedByModel reports whether a model asks for the call of a local tool, and not its caller. ctx is that of the tool's
// Execute, Validate or Authorize.
func AskedByModel(ctx context.Context) bool {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	return call != nil && call.inv.Model
}

// CallerOf returns who made the call of a local tool. ctx is that of the tool's Execute, Validate or Authorize; of another
// one the identity is zero.
func CallerOf(ctx context.Context) auth.Identity {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	if call == nil {
		return auth.Identity{}
	}
	return call.inv.Caller
}

// Asker returns who would call another tool in the course of the call of a local tool: its own caller, as it was
// called. ctx is that of the tool's Execute, Validate or Authorize.
func (sc SessionContext) Asker(ctx context.Context) Asker {
	by := Asker{Who: sc.Caller, Context: sc.Kind}
	if call, _ := ctx.Value(toolCallKey{}).(*toolCall); call != nil {
		by.Model, by.Endpoint = call.inv.Model, call.inv.Endpoint
	}
	return by
}

type toolCallKey struct{}

// toolCall is the call that a local tool is run or asked for.
type toolCall struct {
	inv      *Invocation
	invoker  *Invoker // nil: the tool does not run yet
	prepared *prepared
	clock    *toolClock

	mu     sync.Mutex
	losses []string // what the result tells before anything else
}
