package chat

import (
	"cmp"
	"encoding/json"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// maxSuspects is how many arguments of a call are stored with its result.
const maxSuspects = 16

// origins knows where the values of a conversation were seen. It learns from the messages in their order, and belongs
// to the turn's goroutine.
type origins struct {
	*provenance.Conversation
	learned int                          // messages of the history
	read    []uint64                     // their digests, if they are remembered
	asked   map[string]provider.ToolCall // calls that have no result yet
}

// knows returns the origins of all messages until now. It begins with what is remembered of former turns.
func (l *loop) knows() *origins {
	if l.origins == nil {
		if l.readings != nil {
			l.origins = l.readings.take(l.key, l.history)
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

// remember keeps what was read of the conversation for its next turn.
func (l *loop) remember() {
	if l.readings != nil && l.origins != nil && l.origins.Tainted() {
		l.readings.put(l.key, l.origins)
	}
}

// learn notes a message. The words of a model are nobody's, but a mark on them stays.
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

// sourceOf returns the source of what a call returned. err is why it has no result. A tool of the gateway itself is
// taken to read what strangers wrote unless it says that it does not.
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

// quotes reports whether errors of a code may repeat what a device has written: in its answer, in the definition of its
// tool, or as its name.
func quotes(c registry.Code) bool {
	switch c {
	case registry.CodeInvalidResult, registry.CodeInvalidArguments, registry.CodeToolNotFound,
		registry.CodeAmbiguousTarget:
		return true
	default:
		return false
	}
}

// suspectsOf returns what is stored of the arguments of a call that asked.
func suspectsOf(p *agent.Provenance) []provider.Suspect {
	var list []provider.Suspect
	for _, a := range p.Suspects[:min(len(p.Suspects), maxSuspects)] {
		list = append(list, provider.Suspect{
			Pointer: a.Pointer, Value: a.Value, Source: string(a.Source), Where: a.Where,
		})
	}
	return list
}
