package agent

import (
	"cmp"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// Asker is who would call a tool, and how.
type Asker struct {
	Who      auth.Identity
	Context  ContextKind // of the conversation, beside what the credentials say
	Model    bool        // a model would, not a person's program
	Endpoint Endpoint    // where the call would come in
	Waits    bool        // what is expected back in a moment counts as there: calls of it wait
}

// question returns what policy is asked about a tool from a source.
func (by Asker) question(spec registry.ToolSpec, from policy.Source) policy.Question {
	return policy.Question{
		Who: by.Who, Tool: spec, Source: from, Context: by.Context, Model: by.Model,
		OverMCP: by.Endpoint == EndpointMCP,
	}
}

// RestingTool is what a local Tool may be besides, if what it stands on can be away for a time, as an engine can. Lists
// say so and models are not offered it, but a call is tried: only the call finds out that the engine is back. Resting
// asks and waits for nothing. An empty reason: the tool works, as far as is known.
type RestingTool interface {
	Resting() (reason string)
}

// MayCall says whether somebody can call a tool now, and why not. Every list of tools asks it, so that no two lists
// disagree, nor a list and a call. t is the tool if it is a local one, made for where the asker is; nil: it is a
// device's, which is connected.
func MayCall(rules *Policy, by Asker, spec registry.ToolSpec, t Tool) *policy.Decision {
	from := policy.Remote
	if t != nil {
		_, from = SourceOf(t)
	}
	d := rules.Decide(by.question(spec, from))
	if !d.Allowed || t == nil {
		return d
	}
	why := WhyNot(t)
	if why == "" || by.Waits && isReturning(t) {
		return d
	}
	return &policy.Decision{Code: registry.CodeToolNotFound, Reason: why, Level: d.Level, Effects: d.Effects}
}

// Devices selects the devices that a turn or call reaches: what its tools show, and what they call. Who calls outside
// of conversations, directly or with a model over MCP, reaches what they could call themselves. A model reaches, in a
// conversation with one trusted person, the devices of that person; in any other conversation, and without a person
// whom the credentials name, only the device that the conversation is held with. false: none.
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

// WhyNot returns why a local tool cannot work now, empty if it can: what MayCall says of it, whoever asks.
func WhyNot(t Tool) string { return cmp.Or(unavailable(t), resting(t)) }

// resting returns why a tool does not work for the time being, empty if it does.
func resting(t Tool) string {
	if r, ok := inner(t).(RestingTool); ok {
		return r.Resting()
	}
	return ""
}

// inner returns a tool as its factory has made it.
func inner(t Tool) Tool {
	if made, ok := t.(madeTool); ok {
		return made.Tool
	}
	return t
}

// absentTool stands for a tool that a factory does not make somewhere.
type absentTool struct {
	Tool
	why string
}

// Unavailable implements UnavailableTool.
func (t absentTool) Unavailable() string { return t.why }

// Tool returns a tool as it is in a context; what is absent there is unavailable.
func (t *LocalTools) Tool(in ContextKind, name string) Tool {
	tool, err := t.find(SessionContext{Kind: in}, name)
	switch {
	case err != nil:
		return absentTool{why: "It could not be made. The log of the gateway says why."}
	case tool == nil:
		return absentTool{why: "It is absent in such conversations."}
	}
	return tool
}
