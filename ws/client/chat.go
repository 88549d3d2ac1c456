package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors of a turn. Those of the gateway are a *TurnError.
var (
	// ErrTurnRuns means that a turn of this client is running.
	ErrTurnRuns = errors.New("client: a turn is running")
	// ErrTurnAborted means that the turn was aborted: its context ended, or a person ended it elsewhere.
	ErrTurnAborted = errors.New("client: the turn was aborted")
	// ErrTurnLost means that the connection was lost, or that there is none. The turn has ended with it.
	ErrTurnLost = errors.New("client: the connection is gone, and the turn with it")
)

// TurnError is the gateway's error of a turn. docs/protocol.md has the codes.
type TurnError struct {
	Code, Message string
	RetryAfter    time.Duration // zero: the gateway does not say
}

// Error implements error.
func (e *TurnError) Error() string {
	return fmt.Sprintf("client: the turn failed: %s: %s", e.Code, e.Message)
}

// TurnEvent is something that a turn shows as it runs. Type determines which fields are used.
type TurnEvent struct {
	// Type is "chunk" or "thinking" (Content: a piece of the answer, or of the model's reasoning), "chunk_reset"
	// (discard the chunks: the answer has the whole text), "tool_call" (ID, Name, Args, Status: "executing" or
	// "pending"; it comes again when a pending call begins), "tool_result" (ID, Name, Output, Parts, Status:
	// "completed" or "failed") or "debug_prompt" (Messages, EstimatedTokens).
	Type string `json:"type"`

	Content         string          `json:"content"`
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	Args            json.RawMessage `json:"args"`
	Status          string          `json:"status"`
	Output          string          `json:"output"`
	Parts           []Part          `json:"parts"`
	Messages        string          `json:"messages"`
	EstimatedTokens int             `json:"estimated_tokens"`
}

// Turn has the options of a turn. The zero value has none.
type Turn struct {
	OnEvent func(TurnEvent) // called in order, by the reader of the connection: it must return quickly
	Debug   bool            // asks for debug_prompt
}

// turn is the running turn.
type turn struct {
	onEvent func(TurnEvent)
	ended   chan turnEnd // has room for one
}

type turnEnd struct {
	text string
	err  error
}

// Say sends a message of the person at the device to the gateway's model, and returns the whole answer. When ctx ends,
// the turn is aborted. One turn of a client runs at a time.
func (c *Client) Say(ctx context.Context, content string, t Turn) (string, error) {
	return c.runTurn(ctx, sent{Type: "message", Content: &content, Debug: t.Debug}, t)
}

// Regenerate lets the model answer the last message again, like Say.
func (c *Client) Regenerate(ctx context.Context, t Turn) (string, error) {
	return c.runTurn(ctx, sent{Type: "regenerate", Debug: t.Debug}, t)
}

func (c *Client) runTurn(ctx context.Context, f sent, t Turn) (string, error) {
	frame := f.encode()
	if limit := c.frameLimit(); len(frame) > limit {
		return "", fmt.Errorf("client: the message is too large: %d bytes, at most %d can be sent", len(frame), limit)
	}
	running := &turn{onEvent: t.OnEvent, ended: make(chan turnEnd, 1)}
	c.mu.Lock()
	l := c.link
	switch {
	case c.turn != nil:
		c.mu.Unlock()
		return "", ErrTurnRuns
	case l == nil:
		c.mu.Unlock()
		return "", ErrTurnLost
	}
	c.turn = running
	c.mu.Unlock()
	c.sendOn(l, frame) // a failure ends the connection, and the turn with it
	stop := context.AfterFunc(ctx, func() { c.sendOn(l, sent{Type: "abort"}.encode()) })
	defer stop()
	end := <-running.ended
	return end.text, end.err
}

// turnFrame handles a frame of a turn.
func (c *Client) turnFrame(f *received, data []byte) {
	switch f.Type {
	case "done":
		c.endTurn(turnEnd{text: f.FullResponse})
	case "aborted":
		c.endTurn(turnEnd{err: ErrTurnAborted})
	case "chunk", "thinking", "chunk_reset", "tool_call", "tool_result", "debug_prompt":
		c.mu.Lock()
		running := c.turn
		c.mu.Unlock()
		if running == nil || running.onEvent == nil {
			return
		}
		var event TurnEvent
		if err := json.Unmarshal(data, &event); err != nil {
			c.cfg.log.Warn("frame not understood", "error", err)
			return
		}
		running.onEvent(event)
	}
}

// endTurn ends the running turn, and reports whether there was one.
func (c *Client) endTurn(end turnEnd) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turn == nil {
		return false
	}
	c.turn.ended <- end
	c.turn = nil
	return true
}

// failTurn handles an error frame. It reports whether the error ended a turn: some are about other frames.
func (c *Client) failTurn(f *received) bool {
	switch f.Code {
	case "INVALID_JSON", "UNKNOWN_MESSAGE_TYPE", "MESSAGE_TOO_BIG", "RATE_LIMITED", "PROGRESS_REFUSED",
		"APPROVAL_NOT_FOUND", "SESSION_OWNER_MISMATCH", "PAIRING_REQUIRED":
		return false
	}
	wait := time.Duration(min(max(f.RetryAfterMS, 0), maxDeadlineMS)) * time.Millisecond
	return c.endTurn(turnEnd{err: &TurnError{Code: f.Code, Message: f.Message, RetryAfter: wait}})
}
