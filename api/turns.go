package api

import (
	"context"
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// turnGrace is how much longer than the agent a request waits for the end of a turn. The agent ends it first, and says
// why.
const turnGrace = 5 * time.Second

// agent returns the agent, or an error that says what to configure.
func (h *handler) agent() (chat.Agent, error) {
	if len(h.models()) == 0 {
		return nil, registry.Errorf(registry.CodeNotFound,
			"This gateway has no language model. Set FARHAND_MODEL and its provider's key, and start it again.")
	}
	return h.Agent, nil
}

// turnContext bounds a turn, and gives its client time to receive the answer.
func (h *handler) turnContext(c *gin.Context) (context.Context, context.CancelFunc) {
	longest := h.TurnWait + h.MaxTurn // its time counts from when its conversation is free
	finishWritingBy(c, time.Now().Add(longest+writeMargin))
	return context.WithTimeout(c.Request.Context(), longest+turnGrace)
}

// streamTurn answers with the events of a turn, which run writes. A client that leaves, or does not read, ends the
// context that run gets.
func (h *handler) streamTurn(
	ctx context.Context, c *gin.Context, run func(context.Context, *ssewriter.TurnStream) ssewriter.Ending,
) error {
	// An app's backend holds those of all its users, so only its tenant's share bounds them.
	release, err := h.reserveStream(share.Owner{Tenant: caller(c).Tenant})
	if err != nil {
		return err
	}
	defer release()
	failure, gone := ssewriter.ServeTurn(ctx, c, h.StreamGrace, run)
	if gone != nil {
		h.Log.Debug("turn cut off", "route", c.FullPath(), "error", gone)
	}
	return failure
}

// turnCodes has the code of each failure of a turn over HTTP. AGENT_ERROR is not a fault of the gateway, which would be
// a 500 without a reason: most often the turn reached one of its limits, and another attempt may succeed.
var turnCodes = map[string]registry.Code{
	chat.CodeEmptyContent:  registry.CodeInvalidRequest,
	chat.CodeNoUserMessage: registry.CodeInvalidRequest,
	chat.CodeSessionBusy:   registry.CodeBusy,
	chat.CodeAuth:          registry.CodeProvider,
	chat.CodeProvider:      registry.CodeProvider,
	chat.CodeAgent:         registry.CodeAgent,
	chat.CodeAgentInit:     registry.CodeAgent,
}

// turnError returns why a turn has no answer. ctx is the turn's. aborted says that somebody ended it on purpose.
func turnError(ctx context.Context, err error, aborted bool) error {
	var failed *chat.Error
	switch {
	case errors.Is(context.Cause(ctx), registry.ErrDraining):
		return draining()
	case endedIdentity(ctx) != nil:
		return endedIdentity(ctx)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &registry.Error{
			Code: registry.CodeTimeout, Cause: err,
			Message: "The turn took longer than a turn may. What was said is kept.",
		}
	case ctx.Err() != nil:
		return registry.Errorf(registry.CodeCancelled, "The turn was stopped because its caller hung up.")
	case aborted:
		return registry.Errorf(registry.CodeCancelled, "The turn was aborted. What was said until then is kept.")
	case errors.As(err, &failed):
		return codedTurnError(failed)
	default:
		return err
	}
}

// codedTurnError keeps the chat protocol's code of a failure in the message.
func codedTurnError(failed *chat.Error) error {
	var cause *registry.Error
	coded := errors.As(failed.Cause, &cause)
	code, known := turnCodes[failed.Code]
	switch {
	case coded && (code == registry.CodeAgent || !known) && cause.Code != registry.CodeInternal:
		return cause // such as a store that is away: its own code says more
	case !known:
		return failed
	}
	e := registry.Errorf(code, "%s: %s", failed.Code, failed.Message)
	e.Cause, e.RetryAfter = failed.Cause, failed.RetryAfter()
	return e
}
