package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// transcriptAnswer is a conversation, or the end of a long one.
type transcriptAnswer struct {
	SessionID    string          `json:"session_id"`
	Title        string          `json:"title"`
	Busy         bool            `json:"busy"`
	MessageCount int             `json:"message_count"` // of the whole conversation
	Messages     []messageRecord `json:"messages"`
}

// messageRecord is a message as people see it: without what only its model can read.
type messageRecord struct {
	Role        provider.Role    `json:"role"`
	Content     string           `json:"content"`
	Thinking    string           `json:"thinking,omitempty"`
	ToolCalls   []toolCallRecord `json:"tool_calls,omitempty"`
	ToolCallID  string           `json:"tool_call_id,omitempty"`
	ToolName    string           `json:"tool_name,omitempty"`
	Failed      bool             `json:"failed,omitempty"`
	Parts       []registry.Part  `json:"parts,omitempty"` // of a result, without data
	Interrupted bool             `json:"interrupted,omitempty"`

	// Tainted: something from outside had been read. Source: of a result; outside, gateway or local.
	Tainted  bool               `json:"tainted,omitempty"`
	Source   string             `json:"source,omitempty"`
	Approved bool               `json:"approved,omitempty"`
	Suspects []provider.Suspect `json:"suspects,omitempty"`

	At   string `json:"at,omitempty"`
	Turn string `json:"turn_id,omitempty"`
}

// sourceOutside is the source of a result that strangers may have written.
const sourceOutside = "outside"

type toolCallRecord struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// getMessages shows a conversation, also during a turn and after the device has gone.
func (h *handler) getMessages(c *gin.Context, q params) error {
	limit, err := q.limit()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	transcript, err := h.transcript(ctx, c)
	if err != nil {
		return err
	}
	said := transcript.Messages
	answer := transcriptAnswer{
		SessionID: c.Param("id"), Title: transcript.Title, Busy: transcript.Busy, MessageCount: len(said),
		Messages: []messageRecord{},
	}
	for _, m := range said[max(0, len(said)-limit):] {
		answer.Messages = append(answer.Messages, messageRecordOf(m))
	}
	return h.respond(c, answer)
}

// transcript reads a conversation. One that has not begun is empty if its session exists.
func (h *handler) transcript(ctx context.Context, c *gin.Context) (chat.Transcript, error) {
	agent, err := h.agent()
	if err != nil {
		return chat.Transcript{}, err
	}
	key := sessionKey(c)
	_, foreign, sessionErr := h.session(ctx, caller(c), key)
	switch {
	case foreign, key.Validate() != nil:
		return chat.Transcript{}, sessionErr
	case sessionErr != nil && !isAbsent(sessionErr): // its owner is unknown
		return chat.Transcript{}, sessionErr
	}
	if info, err := h.describe(ctx, key); err != nil {
		return chat.Transcript{}, err
	} else if !caller(c).Sees(info.Owner.UserID) {
		return chat.Transcript{}, registry.UnknownSession()
	}
	transcript, err := agent.Transcript(ctx, key)
	if err != nil || len(transcript.Messages) > 0 || transcript.Busy {
		return transcript, err
	}
	if errors.Is(sessionErr, registry.CodeNotConnected) {
		return transcript, nil // its device is known and away
	}
	return transcript, sessionErr
}

func messageRecordOf(m provider.Message) messageRecord {
	r := messageRecord{
		Role: m.Role, Content: m.Content, ToolCallID: m.ToolCallID, ToolName: m.ToolName, Failed: m.Failed,
		Interrupted: m.Interrupted, Turn: m.Turn, Parts: m.Attachments,
	}
	r.Tainted, r.Approved, r.Suspects, r.Source = m.Tainted, m.Approved, m.Suspects, m.Source
	if m.Foreign() {
		r.Tainted, r.Source = true, sourceOutside
	}
	if !m.At.IsZero() {
		r.At = shownTime(m.At)
	}
	var thoughts []string
	for _, t := range m.Thinking {
		if t.Text != "" {
			thoughts = append(thoughts, t.Text)
		}
	}
	r.Thinking = strings.Join(thoughts, "\n\n")
	for _, call := range m.ToolCalls {
		r.ToolCalls = append(r.ToolCalls, toolCallRecord{call.ID, call.Name, shownArgs(json.RawMessage(call.Args))})
	}
	return r
}
