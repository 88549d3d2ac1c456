package ws

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Values of status in abort_ack.
const (
	statusAborted  = "aborted"
	statusNoActive = "no_active_response"
)

// eventFrame returns the frame of an event, nil for an event that the protocol has no frame for. ClawSeed's client
// drops its connection over a field of another type than it expects, so the types here are fixed: args is always an
// object, messages is a string that holds JSON.
func eventFrame(e chat.Event) []byte {
	switch e.Type {
	case chat.EventChunk, chat.EventThinking:
		return pieceFrame(e.Type, e.Content)
	case chat.EventToolCall:
		return encode(struct {
			Type   chat.EventType  `json:"type"`
			ID     string          `json:"id"`
			Name   string          `json:"name"`
			Args   json.RawMessage `json:"args"`
			Status chat.Status     `json:"status,omitempty"`
		}{e.Type, e.ID, e.Name, shownArgs(e.Args), e.Status})
	case chat.EventToolResult:
		return encode(struct {
			Type   chat.EventType  `json:"type"`
			ID     string          `json:"id"`
			Name   string          `json:"name"`
			Output string          `json:"output"`
			Status chat.Status     `json:"status,omitempty"`
			Parts  []registry.Part `json:"parts,omitempty"`
		}{e.Type, e.ID, e.Name, e.Output, e.Status, e.Parts})
	case chat.EventDone:
		return encode(struct {
			Type         chat.EventType `json:"type"`
			FullResponse string         `json:"full_response"`
		}{e.Type, e.FullResponse})
	case chat.EventTitle:
		return encode(struct {
			Type  chat.EventType `json:"type"`
			Title string         `json:"title"`
		}{e.Type, e.Title})
	case chat.EventDebugPrompt:
		return debugPromptFrame(e.Messages, e.EstimatedTokens)
	case chat.EventError:
		return encode(struct {
			Type    chat.EventType `json:"type"`
			Message string         `json:"message"`
			Code    string         `json:"code"`
			RetryMS int64          `json:"retry_after_ms,omitempty"` // absent without advice when to ask again
		}{e.Type, e.Message, e.Code, e.RetryAfter.Milliseconds()})
	case chat.EventApprovalRequest:
		return approvalRequestFrame(*e.Approval, time.Now())
	case chat.EventApprovalDecided:
		return approvalDecidedFrame(*e.Approval)
	case chat.EventChunkReset, chat.EventAborted:
		return encode(struct {
			Type chat.EventType `json:"type"`
		}{e.Type})
	default:
		return nil
	}
}

// pieceFrame is encoded by hand, because a turn sends thousands of them.
func pieceFrame(typ chat.EventType, content string) []byte {
	b := make([]byte, 0, 40+len(content)+len(content)/8)
	b = append(b, `{"type":"`...)
	b = append(b, typ...)
	b = append(b, `","content":`...)
	b = strictjson.AppendString(b, content)
	return append(b, '}')
}

// shownArgs returns the arguments of a call as an object. A model may write anything; if it is not an object, its text
// is put into one.
func shownArgs(args json.RawMessage) json.RawMessage {
	args = bytes.TrimSpace(args)
	switch {
	case len(args) == 0:
		return json.RawMessage(`{}`)
	case args[0] == '{' && utf8.Valid(args) && json.Valid(args):
		return args
	default:
		return encode(struct {
			Text string `json:"text"`
		}{string(args)})
	}
}

func debugPromptFrame(messages []provider.Message, estimatedTokens int) []byte {
	if messages == nil {
		messages = []provider.Message{}
	}
	return encode(struct {
		Type            chat.EventType `json:"type"`
		Messages        string         `json:"messages"`
		EstimatedTokens int            `json:"estimated_tokens"`
	}{chat.EventDebugPrompt, string(encode(messages)), estimatedTokens})
}

// abortAckFrame answers an abort. The count dropped says how many messages will not get their turn.
func abortAckFrame(status string, dropped int) []byte {
	return encode(struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Dropped int    `json:"dropped,omitempty"`
	}{typeAbortAck, status, dropped})
}

// shortened returns an event with at most n bytes of each long text. The history has the whole text.
func shortened(e chat.Event, n int) chat.Event {
	for _, text := range []*string{&e.Content, &e.Output, &e.FullResponse, &e.Title, &e.Message} {
		if len(*text) > n {
			*text = truncate(*text, n) + "…"
		}
	}
	if len(e.Args) > n {
		e.Args = nil
	}
	e.Messages = nil
	return e
}
