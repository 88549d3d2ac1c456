package ws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Errors for a message that starts no turn.
var (
	errNoAgent = fields.NewError(chat.CodeAgentInit, "This gateway runs no agent. Configure a model provider and "+
		"connect again; tools can be registered and called without one.")
	errTooMany = fields.NewError(chat.CodeSessionBusy, fmt.Sprintf("%d messages already wait for the current turn. "+
		"Send this one again after the turn, or abort the turn.", maxWaiting))
	errTooLong = fields.NewError(chat.CodeSessionBusy, "This pod's memory for messages, or this tenant's share of "+
		"it, is full. Send the message again after a moment, or shorten it.")
	errStopping = fields.NewError(chat.CodeSessionBusy, "This pod is stopping and starts no more turns. Reconnect "+
		"and send the message again.")
)

func (c *conn) message(f *messageFrame) error {
	if strings.TrimSpace(f.Content) == "" {
		return fields.NewError(chat.CodeEmptyContent, "content: must not be empty.")
	}
	return c.ask(chat.Ask{Content: f.Content, Debug: f.Debug})
}

func (c *conn) regenerate(f *regenerateFrame) error {
	return c.ask(chat.Ask{Regenerate: true, Debug: f.Debug})
}

// ask starts a turn, or queues it behind the running turn. It does not wait itself, because the running turn may need
// frames that the reader reads next.
func (c *conn) ask(a chat.Ask) error {
	if c.server.cfg.Agent == nil {
		return errNoAgent
	}
	s := c.local.Session()
	a.Key = s.Key
	a.Debug = a.Debug && !c.server.cfg.IgnoreDebug
	a.Caller = *c.who // as authenticated; the device cannot change it
	a.Caller.Source = c.budget.session.device.source
	a.Owner = registry.Owner{UserID: s.UserID, DeviceID: s.DeviceID, Bound: s.Bound}
	a.Format = chat.FormatMarkdown
	if c.plain {
		a.Format = chat.FormatPlain
	}
	place, err := c.server.asks.Try(owner(c.who, c.server.cfg.MaxUnfinished), int64(len(a.Content)))
	if err != nil {
		return errTooLong
	}
	taken, err := c.take(asked{a, place})
	if !taken {
		place.Release()
	}
	return err
}

// take starts or queues a message whose bytes are reserved. It reports whether a turn will answer it.
func (c *conn) take(a asked) (taken bool, err error) {
	c.startMu.Lock()
	defer c.startMu.Unlock()
	if c.refusesNew {
		return false, errStopping
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing != closeNone:
		return false, nil
	case c.worker == nil:
		c.startTurnsLocked(a)
		return true, nil
	case len(c.worker.waiting) == maxWaiting:
		return false, errTooMany
	default:
		c.worker.waiting = append(c.worker.waiting, a)
		return true, nil
	}
}

// abort cancels the running turn and drops the waiting messages. The acknowledgement goes out before the turn's last
// event. A client of version 1 gets only that event, because it would confuse the two.
func (c *conn) abort() error {
	c.mu.Lock()
	w := c.worker
	if w == nil {
		c.mu.Unlock()
		return c.send(abortAckFrame(statusNoActive, 0))
	}
	dropped := w.dropWaitingLocked()
	cancel, eventAlone := w.cancel, c.version1
	c.mu.Unlock()

	w.order.Lock()
	live := w.live
	status := statusAborted
	if !live && dropped == 0 { // the turn's last event is already queued
		status = statusNoActive
	}
	var err error
	if !live || !eventAlone {
		err = c.send(abortAckFrame(status, dropped))
	}
	w.order.Unlock()
	if live {
		cancel(chat.ErrAborted)
	}
	return err
}

// Values of status in abort_ack.
const (
	statusAborted  = "aborted"
	statusNoActive = "no_active_response"
)

// eventFields are the fields of the frames of a turn. nil means that the frame has no such field. ClawSeed's client
// drops its connection if a field has an unexpected type: args is an object, messages is a string that holds JSON.
type eventFields struct {
	Type            chat.EventType  `json:"type"`
	ID              *string         `json:"id,omitempty"`
	Name            *string         `json:"name,omitempty"`
	Args            json.RawMessage `json:"args,omitempty"`
	Output          *string         `json:"output,omitempty"`
	Status          chat.Status     `json:"status,omitempty"`
	Parts           []registry.Part `json:"parts,omitempty"`
	FullResponse    *string         `json:"full_response,omitempty"`
	Title           *string         `json:"title,omitempty"`
	Messages        *string         `json:"messages,omitempty"`
	EstimatedTokens *int            `json:"estimated_tokens,omitempty"`
	Message         *string         `json:"message,omitempty"`
	Code            *string         `json:"code,omitempty"`
	RetryAfterMS    int64           `json:"retry_after_ms,omitempty"` // absent if unknown
}

// eventFrame returns the frame of an event, nil if the protocol has no frame for it.
func eventFrame(e chat.Event) []byte {
	f := eventFields{Type: e.Type}
	switch e.Type {
	case chat.EventChunk, chat.EventThinking:
		return pieceFrame(e.Type, e.Content)
	case chat.EventApprovalRequest:
		return approvalRequestFrame(*e.Approval)
	case chat.EventApprovalDecided:
		return approvalDecidedFrame(*e.Approval)
	case chat.EventToolCall:
		f.ID, f.Name, f.Args, f.Status = &e.ID, &e.Name, shownArgs(e.Args), e.Status
	case chat.EventToolResult:
		f.ID, f.Name, f.Output, f.Status, f.Parts = &e.ID, &e.Name, &e.Output, e.Status, e.Parts
	case chat.EventDone:
		f.FullResponse = &e.FullResponse
	case chat.EventTitle:
		f.Title = &e.Title
	case chat.EventDebugPrompt:
		messages := "[]"
		if e.Messages != nil {
			messages = string(encode(e.Messages))
		}
		f.Messages, f.EstimatedTokens = &messages, &e.EstimatedTokens
	case chat.EventError:
		f.Message, f.Code, f.RetryAfterMS = &e.Message, &e.Code, e.RetryAfter.Milliseconds()
	case chat.EventChunkReset, chat.EventAborted: // only the type
	default:
		return nil
	}
	return encode(f)
}

// pieceFrame encodes by hand, because a turn sends thousands of these frames.
func pieceFrame(typ chat.EventType, content string) []byte {
	b := make([]byte, 0, 40+len(content)+len(content)/8)
	b = append(b, `{"type":"`...)
	b = append(b, typ...)
	b = append(b, `","content":`...)
	b = strictjson.AppendString(b, content)
	return append(b, '}')
}

// shownArgs returns a call's arguments as an object. A model may write anything; text that is not an object is wrapped
// in one.
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

// abortAckFrame answers an abort. dropped is how many waiting messages get no turn.
func abortAckFrame(status string, dropped int) []byte {
	return encode(struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Dropped int    `json:"dropped,omitempty"`
	}{typeAbortAck, status, dropped})
}

// shortened returns an event with each text cut to n bytes. The history keeps the whole text.
func shortened(e chat.Event, n int) chat.Event {
	for _, text := range []*string{&e.Content, &e.Output, &e.FullResponse, &e.Title, &e.Message} {
		if len(*text) > n {
			*text = fields.Truncate(*text, n) + "…"
		}
	}
	if len(e.Args) > n {
		e.Args = nil
	}
	e.Messages = nil
	return e
}
