package chat

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// Calls reads records of calls. *routing.Calls is one.
type Calls interface {
	Get(ctx context.Context, tenant, callID string) (registry.Record, error)
}

// waitingText says to a model that its call waits. stored reports whether the gateway stores the conversation, and so
// adds the outcome to it.
func waitingText(out agent.Outcome, stored bool) string {
	waits := "The call waits for a person's approval, and then for its device, which sleeps."
	if out.State == registry.StateQueued {
		waits = out.QueueText()
	}
	outcome := "a later message has the outcome."
	if !stored {
		outcome = "the record of the call " + out.CallID + " has the outcome."
	}
	return waits + " Go on without its result and do not repeat it: " + outcome
}

const (
	maxOutcomes   = 16 // that one turn learns
	noteOutcome   = "This is the outcome of an earlier call that waited for its device."
	noteForgotten = "The call ended too long ago: its outcome is not known any more."
)

// outcomes returns messages with the outcomes of calls of earlier turns that waited for their devices: for each a
// request and its result. A conversation gets each outcome once. If a record cannot be read now, a later turn adds it.
func (t *turn) outcomes(ctx context.Context, history []provider.Message) (added []provider.Message) {
	if t.engine.cfg.Calls == nil {
		return nil
	}
	asked, known := make(map[string]provider.ToolCall), make(map[string]bool)
	for _, m := range history {
		for _, c := range m.ToolCalls {
			asked[c.ID] = c
		}
		known[m.OutcomeOf] = true
	}
	for _, m := range history {
		if m.Queued == "" || known[m.Queued] || len(added) >= 2*maxOutcomes {
			continue
		}
		rec, err := t.engine.cfg.Calls.Get(ctx, t.ask.Key.Tenant, m.Queued)
		if err != nil && !registry.IsCallNotFound(err) || err == nil && !rec.State.Final() {
			continue
		}
		c := asked[m.ToolCallID]
		c.ID = "call_" + uuid.NewString()
		c.Name = m.ToolName
		result := toolMessage(c, noteForgotten, true, t.loop.turn)
		if err == nil {
			t.setOutcome(&result, &rec)
		}
		result.Notice, result.OutcomeOf, result.Tainted = noteOutcome, m.Queued, result.Foreign()
		request := provider.Message{
			Role: provider.RoleAssistant, ToolCalls: []provider.ToolCall{c}, At: time.Now().UTC(), Turn: t.loop.turn,
		}
		added = append(added, request, result)
	}
	return added
}

// setOutcome sets the content of a message to the outcome of a call.
func (t *turn) setOutcome(m *provider.Message, rec *registry.Record) {
	limit := t.loop.limits.MaxResult
	res, err := rec.Outcome()
	if err != nil {
		m.Content, m.Source = readable(explain(registry.AsError(err)), limit), provider.SourceGateway
		return
	}
	m.Failed, m.Content = !res.Success, readable(textsafe.WithoutData(res.Output), limit)
	if rec.Brief {
		m.Content = "The tool has run. Its output is not stored any more."
		m.Source = provider.SourceGateway
	}
}
