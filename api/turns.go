package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// turnGrace is how much longer than the agent a request waits for the end of a turn. So the agent ends the turn first,
// and gives the reason.
const turnGrace = 5 * time.Second

// agent returns the agent, or an error that says how to configure a model.
func (h *handler) agent() (chat.Agent, error) {
	if len(h.models()) == 0 {
		return nil, registry.Errorf(registry.CodeNotFound,
			"This gateway has no language model. Set FARHAND_MODEL and its provider's key, and restart it.")
	}
	return h.Agent, nil
}

// turnContext bounds a turn, and sets a deadline that leaves its client time to receive the answer.
func (h *handler) turnContext(c *gin.Context) (context.Context, context.CancelFunc) {
	longest := h.TurnWait + h.MaxTurn // MaxTurn counts from when the conversation is free
	finishWritingBy(c, time.Now().Add(longest+writeMargin))
	return context.WithTimeout(c.Request.Context(), longest+turnGrace)
}

// streamTurn answers with the events of a turn, which run writes. The context of run ends if the client disconnects or
// does not read.
func (h *handler) streamTurn(ctx context.Context, c *gin.Context, run ssewriter.Turn) error {
	// An app's backend holds the streams of all its users, so only the share of its tenant bounds them.
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

// turnCodes maps the failures of a turn to codes of HTTP errors. AGENT_ERROR is not a fault of the gateway, which would
// be a 500 without a reason. Usually the turn reached one of its limits, and a retry may succeed.
var turnCodes = map[string]registry.Code{
	chat.CodeEmptyContent:  registry.CodeInvalidRequest,
	chat.CodeNoUserMessage: registry.CodeInvalidRequest,
	chat.CodeSessionBusy:   registry.CodeBusy,
	chat.CodeAuth:          registry.CodeProvider,
	chat.CodeProvider:      registry.CodeProvider,
	chat.CodeAgent:         registry.CodeAgent,
	chat.CodeAgentInit:     registry.CodeAgent,
}

// turnError returns why a turn has no answer. ctx is the turn's. aborted says that the turn was aborted deliberately.
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
			Message: "The turn exceeded its time limit. Its messages so far are stored.",
		}
	case ctx.Err() != nil:
		return registry.Errorf(registry.CodeCancelled, "The turn was stopped because its caller disconnected.")
	case aborted:
		return registry.Errorf(registry.CodeCancelled, "The turn was aborted. Its messages so far are stored.")
	case errors.As(err, &failed):
		return codedTurnError(failed)
	default:
		return err
	}
}

// codedTurnError returns the error of a failed turn. Its message keeps the chat protocol's code.
func codedTurnError(failed *chat.Error) error {
	var cause *registry.Error
	coded := errors.As(failed.Cause, &cause)
	code, known := turnCodes[failed.Code]
	switch {
	case coded && (code == registry.CodeAgent || !known) && cause.Code != registry.CodeInternal:
		return cause // for example, the store is unavailable: its own code says more
	case !known:
		return failed
	}
	e := registry.Errorf(code, "%s: %s", failed.Code, failed.Message)
	e.Cause, e.RetryAfter = failed.Cause, failed.RetryAfter()
	return e
}

// promptEvent is wire.TurnPrompt with all that the model is sent.
type promptEvent struct {
	Type            string             `json:"type"`
	Messages        []provider.Message `json:"messages"`
	EstimatedTokens int                `json:"estimated_tokens"`
}

// turnEvent returns the data of an event as shown to reader. doneOf makes the data of done, which needs the reply.
func turnEvent(e chat.Event, reader auth.Identity) any {
	switch kind := string(e.Type); e.Type {
	case chat.EventChunk, chat.EventThinking:
		return wire.TurnText{Type: kind, Content: e.Content}
	case chat.EventToolCall:
		return wire.TurnToolCall{
			Type: kind, ID: e.ID, Name: e.Name, Args: shownArgs(e.Args), Status: string(e.Status),
		}
	case chat.EventToolResult:
		return wire.TurnToolResult{
			Type: kind, ID: e.ID, Name: e.Name, Output: e.Output, Status: string(e.Status), Parts: e.Parts,
		}
	case chat.EventTitle:
		return wire.TurnTitle{Type: kind, Title: e.Title}
	case chat.EventDebugPrompt:
		return promptEvent{kind, append([]provider.Message{}, e.Messages...), e.EstimatedTokens}
	case chat.EventApprovalRequest, chat.EventApprovalDecided:
		return wire.TurnApproval{Type: kind, Approval: approvalOf(*e.Approval, reader)}
	case chat.EventError:
		return wire.TurnFailed{Type: kind, Message: e.Message, Code: e.Code, RetryMS: e.RetryAfter.Milliseconds()}
	default:
		return wire.TurnMark{Type: kind}
	}
}

func doneOf(r chat.Reply) wire.TurnDone {
	return wire.TurnDone{
		Type: string(chat.EventDone), FullResponse: r.FullResponse, Turn: r.Turn, Stop: string(r.Stop),
		Usage: usageOf(r.Usage), MessageCount: r.MessageCount, DurationMS: r.Duration.Milliseconds(),
	}
}

func usageOf(u provider.Usage) wire.TokenUsage {
	return wire.TokenUsage{InputTokens: u.Input, OutputTokens: u.Output}
}

// shownArgs returns arguments as JSON. If a model wrote text that is not JSON, it is returned as a string.
func shownArgs(args json.RawMessage) json.RawMessage {
	switch {
	case len(args) == 0:
		return json.RawMessage("{}")
	case json.Valid(args):
		return args
	}
	text, _ := json.Marshal(string(args)) // cannot fail: it is a string
	return text
}

const (
	// abortWait is how long an abort waits for the end of the turn. abortAgain is when it is sent again, because
	// messages between pods can be lost. A turn of a dead pod ends later, with that pod's lease. abortLook is the pause
	// between two checks of the turn. It is polled, because no event announces its end.
	abortWait  = 3 * time.Second
	abortAgain = 500 * time.Millisecond
	abortLook  = 20 * time.Millisecond

	maxRunning      = 1000 // running conversations on one page
	maxRunningPages = 5    // pages of the tenant's conversations read for one page
)

// States of a session, with ClawSeed's names.
const (
	stateIdle    = "idle"
	stateRunning = "running"
)

// abortSession ends the running turn, on any pod. It answers after the turn has ended, so that a client can read its
// messages. A session without a turn is not an error.
func (h *handler) abortSession(c *gin.Context, _ *params) error {
	body, err := h.readBody(c)
	if err == nil {
		_, err = readBodyObject(orNothing(body))
	}
	if err != nil {
		return err
	}
	ctx := storeContext(c)
	k, err := h.findSession(ctx, c)
	if err != nil && !errors.Is(err, registry.CodeNotConnected) {
		return err
	}
	if k.info.Turn.IsZero() {
		return h.writeUncached(c, http.StatusOK, wire.SessionAborted{Status: "no_active_response"})
	}
	if err := h.abort(ctx, k); err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusOK, wire.SessionAborted{Status: "aborted"})
}

// abort sends aborts until the turn has ended or abortWait has passed.
func (h *handler) abort(ctx context.Context, k knownSession) error {
	deadline, again := time.Now().Add(abortWait), time.Time{}
	look := time.NewTicker(abortLook)
	defer look.Stop()
	for time.Now().Before(deadline) {
		if now := time.Now(); !now.Before(again) {
			if err := h.Turns.Abort(ctx, k.key); err != nil {
				return err
			}
			again = now.Add(abortAgain)
		}
		info, err := h.describe(ctx, k.key)
		if err != nil || !info.Turn.Equal(k.info.Turn) {
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return registry.StoreUnavailable("abort a turn", ctx.Err())
		}
	}
	return nil
}

func (h *handler) sessionState(c *gin.Context, _ *params) error {
	k, err := h.findSession(storeContext(c), c)
	if err != nil {
		return err
	}
	answer := wire.SessionState{SessionID: k.key.Session, State: stateIdle}
	if !k.info.Turn.IsZero() {
		answer.State, answer.TurnStartedAt = stateRunning, k.info.Turn.Format(timeFormat)
	}
	return h.respond(c, answer)
}

// runningSessions lists the sessions with a running turn, the longest running first. For a tenant with very many, it
// reads about maxRunningPages pages, and the answer says where to continue.
func (h *handler) runningSessions(c *gin.Context, q *params) error {
	from := q.cursor(cursorRunning)
	if err := q.failed(); err != nil {
		return err
	}
	ctx := storeContext(c)
	answer := wire.RunningSessionList{Sessions: []wire.RunningSession{}}
	who, after := caller(c), registry.ConversationCursor{Generation: from.Generation, Session: from.Session}
	start, shown := after, ""
	for range maxRunningPages {
		room := maxRunning - len(answer.Sessions)
		infos, next, err := h.Conversations.RunningConversations(ctx, who.Tenant, after, room)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if s := offlineSession(info); who.Sees(info.Owner.UserID) {
				shown = s.SessionID
				answer.Sessions = append(answer.Sessions, wire.RunningSession{
					SessionID: s.SessionID, Name: s.Name, Conversation: s.Conversation,
					TurnStartedAt: info.Turn.Format(timeFormat),
				})
			}
		}
		if next == nil {
			return h.respond(c, answer)
		}
		if after = *next; len(answer.Sessions) == maxRunning {
			break
		}
	}
	after = hiding(after, start, shown, false)
	answer.NextCursor = cursor{Kind: cursorRunning, Generation: after.Generation, Session: after.Session}.String()
	return h.respond(c, answer)
}
