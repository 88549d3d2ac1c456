package api

import (
	"encoding/json"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// The events of a turn, as the frames of the chat protocol have them.
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

// turnEvent returns the data of an event as reader sees it. doneOf makes that of done, which needs the reply.
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

// shownArgs returns arguments as JSON. A model may write text that is not JSON, which is shown as a string.
func shownArgs(args json.RawMessage) json.RawMessage {
	switch {
	case len(args) == 0:
		return json.RawMessage("{}")
	case json.Valid(args):
		return args
	}
	text, err := json.Marshal(string(args))
	if err != nil { // cannot happen: it is a string
		return json.RawMessage("{}")
	}
	return text
}
