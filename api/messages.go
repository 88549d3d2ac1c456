package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/registry"
)

// turnAnswer is the answer to a message, once the turn has ended.
type turnAnswer struct {
	Turn         string              `json:"turn_id"`
	SessionID    string              `json:"session_id"`
	FullResponse string              `json:"full_response"`
	ToolCalls    []chat.CallReport   `json:"tool_calls"`
	Stop         provider.StopReason `json:"stop_reason,omitempty"`
	Usage        provider.Usage      `json:"usage"`
	MessageCount int                 `json:"message_count"`
	Title        string              `json:"title,omitempty"`
	DurationMS   int64               `json:"duration_ms"`
}

// postMessage sends a message to a session. It answers with the whole turn at its end, or with events while it runs.
func (h *handler) postMessage(c *gin.Context, _ params) error {
	r, streamed, err := h.readMessage(c)
	if err != nil {
		return err
	}
	agent, err := h.agent()
	if err != nil {
		return err
	}
	key, owner, err := h.conversation(c, agent)
	if err != nil {
		return err
	}
	ask := chat.Ask{
		Key: key, Owner: owner, Caller: caller(c), Content: r.content, Regenerate: r.regenerate,
		Debug: r.debug && !h.IgnoreDebug, Format: r.format, Kind: r.kind,
	}
	ctx, cancel := h.turnContext(c)
	defer cancel()
	if streamed {
		return h.streamTurn(ctx, c, func(ctx context.Context, t *ssewriter.TurnStream) ssewriter.Ending {
			return relay(ctx, agent, ask, t)
		})
	}
	return h.answerTurn(ctx, c, agent, ask)
}

// conversation returns the session that the path names, and the owner of its conversation if that begins now. It fails
// if no device is connected and nothing was said before.
func (h *handler) conversation(c *gin.Context, agent chat.Agent) (registry.Key, registry.Owner, error) {
	if h.Closing.Err() != nil {
		return registry.Key{}, registry.Owner{}, draining()
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	owner := ownerOf(caller(c), k.session)
	switch {
	case err == nil && (k.session != nil || k.info.Messages > 0):
		return k.key, owner, nil
	case err == nil:
		err = registry.UnknownSession() // it has a name and nothing else
	case k.foreign || !isAbsent(err) || k.key.Validate() != nil:
		return k.key, owner, err
	}
	switch n, countErr := agent.CountMessages(ctx, k.key); {
	case countErr != nil:
		return k.key, owner, countErr
	case n > 0:
		return k.key, owner, nil
	}
	if errors.Is(err, registry.CodeNotConnected) { // until its device is back
		due, failure := h.expected(ctx, caller(c), k.key)
		if failure != nil || due != nil {
			return k.key, ownerOf(caller(c), due), failure
		}
	}
	return k.key, owner, err
}

// answerTurn runs a turn to its end.
func (h *handler) answerTurn(ctx context.Context, c *gin.Context, agent chat.Agent, ask chat.Ask) error {
	aborted := false
	reply, err := agent.Ask(ctx, ask, func(e chat.Event) { aborted = e.Type == chat.EventAborted })
	if err != nil {
		return turnError(ctx, err, aborted)
	}
	calls := append([]chat.CallReport{}, reply.Calls...)
	for i := range calls {
		calls[i].Args = shownArgs(calls[i].Args)
	}
	return h.writeJSON(c, http.StatusOK, turnAnswer{
		Turn: reply.Turn, SessionID: ask.Key.Session, FullResponse: reply.FullResponse, ToolCalls: calls,
		Stop: reply.Stop, Usage: reply.Usage, MessageCount: reply.MessageCount, Title: reply.Title,
		DurationMS: reply.Duration.Milliseconds(),
	})
}

// relay runs a turn and sends its events. The last event waits for the turn's reply, which says more.
func relay(ctx context.Context, agent chat.Agent, ask chat.Ask, t *ssewriter.TurnStream) ssewriter.Ending {
	reader := ask.Caller
	var last chat.Event
	reply, err := agent.Ask(ctx, ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventDone, chat.EventAborted, chat.EventError:
			last = e
		default:
			t.Send(string(e.Type), turnEvent(e, reader))
		}
	})
	switch {
	case err == nil:
		return ssewriter.Ending{Tell: func(t *ssewriter.TurnStream) { t.Send(string(chat.EventDone), doneOf(reply)) }}
	case last.Type == chat.EventAborted && ctx.Err() == nil:
		return ssewriter.Ending{Tell: func(t *ssewriter.TurnStream) {
			t.Send(string(last.Type), turnEvent(last, reader))
		}}
	}
	failure := turnError(ctx, err, false)
	return ssewriter.Ending{Failure: failure, Tell: func(t *ssewriter.TurnStream) {
		t.Send(string(chat.EventError), turnEvent(failureEvent(err, failure), reader))
	}}
}

// failureEvent is the event of a failure in a stream that has begun: as the agent has it, otherwise as a problem would.
func failureEvent(err, failure error) chat.Event {
	e := chat.Event{Type: chat.EventError, Code: chat.CodeAgent}
	var failed *chat.Error
	if errors.As(err, &failed) {
		e.Code, e.Message, e.RetryAfter = failed.Code, failed.Message, failed.RetryAfter()
		return e
	}
	e.Message = registry.AsError(failure).Message
	return e
}
