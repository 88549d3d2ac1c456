package agent

import (
	"context"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Asker describes a possible caller of a tool, and how it would call.
type Asker struct {
	Who      auth.Identity
	Context  ContextKind // of the conversation, in addition to the credentials
	Model    bool        // a model would call, not a person's program
	Endpoint Endpoint    // where the call would arrive
	Waits    bool        // tools that are expected back shortly count as present: their calls wait
}

func (by Asker) policyQuestion(spec registry.ToolSpec, from policy.Source) policy.Question {
	return policy.Question{
		Who: by.Who, Tool: spec, Source: from, Context: by.Context, Model: by.Model,
		OverMCP: by.Endpoint == EndpointMCP,
	}
}

// Asker returns the Asker for calls that a local tool makes. ctx is that of its Execute, Validate or Authorize.
func (sc SessionContext) Asker(ctx context.Context) Asker {
	inv := toolCallOf(ctx).inv
	return Asker{Who: sc.Caller, Context: sc.Kind, Model: inv.Model, Endpoint: inv.Endpoint}
}

// RestingTool is an optional interface of a local Tool whose backend can be away temporarily. Models do not see it
// then, and lists say why. A call is still tried. Resting does not block. An empty reason means that the tool works.
type RestingTool interface {
	Resting() (reason string)
}

// MayCall returns whether a caller can call a tool now, and why not, for every list of tools. t is a local tool, made
// for the context of the asker; nil: the tool is that of a connected device.
func MayCall(rules *Policy, by Asker, spec registry.ToolSpec, t Tool) *policy.Decision {
	from := policy.Remote
	if t != nil {
		_, from = SourceOf(t)
	}
	d := rules.Decide(by.policyQuestion(spec, from))
	if !d.Allowed || t == nil {
		return d
	}
	why := WhyNot(t)
	if why == "" || by.Waits && isReturning(t) {
		return d
	}
	return &policy.Decision{Code: registry.CodeToolNotFound, Reason: why, Level: d.Level, Effects: d.Effects}
}

// WhyNot returns why a local tool cannot work now. It is empty if the tool works. MayCall uses it for every caller.
func WhyNot(t Tool) string {
	why := unavailable(t)
	if r, ok := madeBy(t).(RestingTool); ok && why == "" {
		why = r.Resting()
	}
	return why
}

// Devices selects the devices that the tools of a turn or call can list and call. It returns false if there are none.
// Outside of conversations, directly or with a model over MCP, these are the devices that the caller can call. In a
// conversation with one trusted person, a model reaches the devices of that person. In other conversations, or if the
// credentials name no user, it reaches only the device of the conversation. If a conversation with one trusted person
// has neither a user nor a device, the model reaches the devices that the caller can call.
func (sc SessionContext) Devices(model bool) (registry.Query, bool) {
	q := registry.Query{Tenant: sc.Caller.Tenant, Target: registry.Target{Viewer: sc.Caller.Viewer()}}
	if !model || sc.Channel == ChannelCall {
		return q, true
	}
	if sc.Kind == ContextMain && sc.Caller.User != "" {
		q.Viewer = sc.Caller.User // an admin's model reaches the admin's own devices only
		return q, true
	}
	q.SessionID = sc.Key.Session
	return q, q.SessionID != "" || sc.Kind == ContextMain
}
