package chat

import (
	"cmp"
	"encoding/json"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// maxSuspects is the maximum number of arguments of a call that are stored with its result.
const maxSuspects = 16

// origins records where the values of a conversation were seen. It learns the messages in order. The turn's goroutine
// owns it.
type origins struct {
	*provenance.Conversation
	learned int                          // number of learned messages of the history
	read    []uint64                     // their digests, if they are cached
	asked   map[string]provider.ToolCall // calls without a result so far
}

// knows returns the origins of all messages so far. It starts with the cached origins of earlier turns.
func (l *loop) knows() *origins {
	if l.origins == nil {
		if l.readings != nil {
			l.origins = l.readings.checkOut(l.key, l.history)
		}
		if l.origins == nil {
			l.origins = &origins{Conversation: provenance.New(), asked: make(map[string]provider.ToolCall)}
		}
		l.origins.System("the system prompt", l.base.System)
	}
	o := l.origins
	for ; o.learned < len(l.history); o.learned++ {
		m := l.history[o.learned]
		if l.readings != nil {
			o.read = append(o.read, l.readings.digest(m))
		}
		o.learn(m)
	}
	return o
}

// remember caches what was read of the conversation for its next turn.
func (l *loop) remember() {
	if l.readings != nil && l.origins != nil && l.origins.Tainted() {
		l.readings.checkIn(l.key, l.origins)
	}
}

// learn adds a message. A model's words are no source of values, but a taint on them stays.
func (o *origins) learn(m provider.Message) {
	if m.Tainted {
		o.Taint()
	}
	switch m.Role {
	case provider.RoleUser:
		o.Add(provenance.Person, "the person", m.Content)
	case provider.RoleAssistant:
		for _, c := range m.ToolCalls {
			o.asked[c.ID] = c
		}
	case provider.RoleTool:
		if m.Approved {
			call := o.asked[m.ToolCallID]
			o.Approve(call.Name, "an approved call", json.RawMessage(call.Args))
		}
		delete(o.asked, m.ToolCallID)
		if m.Foreign() {
			o.Add(provenance.Outside, "the result of "+cmp.Or(m.ToolName, "a tool"), m.Content)
		}
	}
}

// sourceOf returns the source of a call's result. err is the reason if there is no result. A tool of the gateway counts
// as reading untrusted content unless its annotations deny that.
func sourceOf(shown agent.ShownTool, err *registry.Error) string {
	switch a := shown.Spec.Annotations; {
	case err != nil && !quotes(err.Code):
		return provider.SourceGateway
	case shown.Source == registry.SourceLocal && a != nil && a.OpenWorldHint != nil && !*a.OpenWorldHint:
		return provider.SourceLocal
	default:
		return ""
	}
}

// quotes reports whether errors with a code may quote text of a device: its answer, the definition of its tool, or its
// name.
func quotes(c registry.Code) bool {
	switch c {
	case registry.CodeInvalidResult, registry.CodeInvalidArguments, registry.CodeToolNotFound,
		registry.CodeAmbiguousTarget:
		return true
	default:
		return false
	}
}

// suspectsOf returns the suspect arguments of a call, in the form that is stored.
func suspectsOf(p *agent.Provenance) []provider.Suspect {
	var list []provider.Suspect
	for _, a := range p.Suspects[:min(len(p.Suspects), maxSuspects)] {
		list = append(list, provider.Suspect{
			Pointer: a.Pointer, Value: a.Value, Source: string(a.Source), Where: a.Where,
		})
	}
	return list
}
