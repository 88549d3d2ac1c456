package agent

import (
	"context"
	"sync"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// DeviceCall is a call that a local tool makes to a device's tool.
type DeviceCall struct {
	Tool    string
	Args    registry.JSON   // an object; none means {}
	Target  registry.Target // must name a session
	Timeout time.Duration   // zero: the timeout in the request to the local tool, else that of the device's tool
}

// CallDevice calls a device's tool on behalf of the caller of a local tool. The call has the same identity, turn,
// conversation and context, and counts as a model's call if a model called the local tool. Policy, limits, guards,
// hooks, approvals, audit log and records apply as to any other call. It ends a little before the call of the local
// tool, whatever Timeout says. The clock of the local tool stops while the call waits for approval.
//
// ctx is that of the tool's Execute, or derived from it. The error is that of Invoker.Invoke. A tool that returns it
// unchanged reports correctly whether the device can have acted, and who refused.
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
	if from := outer.Provenance; from != nil { // the other fields are about the arguments of the outer call
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
	return call.invoker.Invoke(deadlineOnly{ctx}, req) // hides the tool context's values from the hooks of this call
}

// answerMargin is how long before its own deadline a local tool gets the outcome of a device's call, at the latest.
const answerMargin = time.Second

// AskedByModel reports whether a model, not the caller itself, calls the local tool. ctx is that of the tool's Execute,
// Validate or Authorize.
func AskedByModel(ctx context.Context) bool {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	return call != nil && call.inv.Model
}

// CallerOf returns the caller of a local tool. ctx is that of the tool's Execute, Validate or Authorize. For any other
// context the identity is zero.
func CallerOf(ctx context.Context) auth.Identity {
	call, _ := ctx.Value(toolCallKey{}).(*toolCall)
	if call == nil {
		return auth.Identity{}
	}
	return call.inv.Caller
}

// Asker returns the Asker for calls of other tools during the call of a local tool: its own caller, called the same
// way. ctx is that of the tool's Execute, Validate or Authorize.
func (sc SessionContext) Asker(ctx context.Context) Asker {
	by := Asker{Who: sc.Caller, Context: sc.Kind}
	if call, _ := ctx.Value(toolCallKey{}).(*toolCall); call != nil {
		by.Model, by.Endpoint = call.inv.Model, call.inv.Endpoint
	}
	return by
}

type toolCallKey struct{}

// toolCall is the call for which a local tool runs or is checked.
type toolCall struct {
	inv      *Invocation
	invoker  *Invoker // nil: the tool does not run yet
	prepared *prepared
	clock    *toolClock

	mu     sync.Mutex
	losses []string // losses to report before the result
}
