package api

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
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
			"This gateway has no language model. Set FARHAND_MODEL and its provider's key, and start it again.")
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
func (h *handler) streamTurn(
	ctx context.Context, c *gin.Context, run func(context.Context, *ssewriter.TurnStream) ssewriter.Ending,
) error {
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

// The events of a turn, like the frames of the chat protocol.
type (
	textEvent struct {
		Type    chat.EventType `json:"type"`
		Content string         `json:"content"`
	}
	toolCallEvent struct {
		Type   chat.EventType  `json:"type"`
		ID     string          `json:"id"`
		Name   string          `json:"name"`
		Args   json.RawMessage `json:"args"`
		Status chat.Status     `json:"status"`
	}
	toolResultEvent struct {
		Type   chat.EventType  `json:"type"`
		ID     string          `json:"id"`
		Name   string          `json:"name"`
		Output string          `json:"output"`
		Status chat.Status     `json:"status"`
		Parts  []registry.Part `json:"parts,omitempty"`
	}
	titleEvent struct {
		Type  chat.EventType `json:"type"`
		Title string         `json:"title"`
	}
	promptEvent struct {
		Type            chat.EventType     `json:"type"`
		Messages        []provider.Message `json:"messages"`
		EstimatedTokens int                `json:"estimated_tokens"`
	}
	errorEvent struct {
		Type    chat.EventType `json:"type"`
		Message string         `json:"message"`
		Code    string         `json:"code"`
		RetryMS int64          `json:"retry_after_ms,omitempty"`
	}
	doneEvent struct {
		Type         chat.EventType      `json:"type"`
		FullResponse string              `json:"full_response"`
		Turn         string              `json:"turn_id"`
		Stop         provider.StopReason `json:"stop_reason,omitempty"`
		Usage        provider.Usage      `json:"usage"`
		MessageCount int                 `json:"message_count"`
		DurationMS   int64               `json:"duration_ms"`
	}
	approvalEvent struct {
		Type chat.EventType `json:"type"`
		approvalShown
	}
	bareEvent struct {
		Type chat.EventType `json:"type"`
	}
)

// turnEvent returns the data of an event as shown to reader. doneOf makes the data of done, which needs the reply.
func turnEvent(e chat.Event, reader auth.Identity) any {
	switch e.Type {
	case chat.EventChunk, chat.EventThinking:
		return textEvent{e.Type, e.Content}
	case chat.EventToolCall:
		return toolCallEvent{e.Type, e.ID, e.Name, shownArgs(e.Args), e.Status}
	case chat.EventToolResult:
		return toolResultEvent{e.Type, e.ID, e.Name, e.Output, e.Status, e.Parts}
	case chat.EventTitle:
		return titleEvent{e.Type, e.Title}
	case chat.EventDebugPrompt:
		return promptEvent{e.Type, append([]provider.Message{}, e.Messages...), e.EstimatedTokens}
	case chat.EventApprovalRequest, chat.EventApprovalDecided:
		return approvalEvent{e.Type, approvalOf(*e.Approval, reader)}
	case chat.EventError:
		return errorEvent{e.Type, e.Message, e.Code, e.RetryAfter.Milliseconds()}
	default:
		return bareEvent{e.Type}
	}
}

func doneOf(r chat.Reply) doneEvent {
	return doneEvent{
		Type: chat.EventDone, FullResponse: r.FullResponse, Turn: r.Turn, Stop: r.Stop, Usage: r.Usage,
		MessageCount: r.MessageCount, DurationMS: r.Duration.Milliseconds(),
	}
}

// shownArgs returns arguments as JSON. If a model wrote text that is not JSON, it is returned as a string.
func shownArgs(args json.RawMessage) json.RawMessage {
	switch {
	case len(args) == 0:
		return json.RawMessage("{}")
	case json.Valid(args):
		return args
	}
	text, err := json.Marshal(string(args))
	if err != nil { // cannot fail: it is a string
		return json.RawMessage("{}")
	}
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

// aborted is the answer to an abort, like on the WebSocket.
type aborted struct {
	Status string `json:"status"`
}

// abortSession ends the running turn, on any pod. It answers after the turn has ended, so that a client can read what
// was said. A session without a turn is not an error.
func (h *handler) abortSession(c *gin.Context, _ params) error {
	body, err := h.readBody(c)
	if err == nil {
		_, err = readMembers(body)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	if err != nil && !errors.Is(err, registry.CodeNotConnected) {
		return err
	}
	if k.info.Turn.IsZero() {
		return h.writeStatus(c, aborted{"no_active_response"})
	}
	if err := h.abort(ctx, k); err != nil {
		return err
	}
	return h.writeStatus(c, aborted{"aborted"})
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

// stateAnswer is the state of a session, with the start of its running turn.
type stateAnswer struct {
	SessionID     string `json:"session_id"`
	State         string `json:"state"`
	TurnStartedAt string `json:"turn_started_at,omitempty"`
}

// sessionState returns whether a turn of a session is running.
func (h *handler) sessionState(c *gin.Context, _ params) error {
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	k, err := h.findSession(ctx, c)
	if err != nil {
		return err
	}
	answer := stateAnswer{SessionID: k.key.Session, State: stateIdle}
	if !k.info.Turn.IsZero() {
		answer.State, answer.TurnStartedAt = stateRunning, k.info.Turn.Format(timeFormat)
	}
	return h.respond(c, answer)
}

// runningRow is a session with a running turn.
type runningRow struct {
	SessionID string `json:"session_id"`
	Name      string `json:"name,omitempty"`
	conversationRow
	TurnStartedAt string `json:"turn_started_at"`
}

// runningSessions lists the sessions with a running turn, the longest running first. For a tenant with very many, it
// reads about maxRunningPages pages, and the answer says where to continue.
func (h *handler) runningSessions(c *gin.Context, q params) error {
	from, err := q.cursor(cursorRunning)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	answer := struct {
		Sessions   []runningRow `json:"sessions"`
		NextCursor string       `json:"next_cursor,omitempty"`
	}{Sessions: []runningRow{}}
	who, after := caller(c), registry.ConversationCursor{Active: from.Generation, Session: from.Session}
	for range maxRunningPages {
		room := maxRunning - len(answer.Sessions)
		infos, next, err := h.Conversations.RunningConversations(ctx, who.Tenant, after, room)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if row := offlineRowOf(info); who.Sees(info.Owner.UserID) {
				answer.Sessions = append(answer.Sessions,
					runningRow{row.SessionID, row.Name, row.conversationRow, info.Turn.Format(timeFormat)})
			}
		}
		if next == nil {
			return h.respond(c, answer)
		}
		if after = *next; len(answer.Sessions) == maxRunning {
			break
		}
	}
	answer.NextCursor = cursor{Kind: cursorRunning, Generation: after.Active, Session: after.Session}.String()
	return h.respond(c, answer)
}
