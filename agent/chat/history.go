package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Placeholder results for calls without a result.
const (
	noteUnknown = "interrupted; it may have run"
	noteNotRun  = "interrupted; it did not run"
)

// decode reads stored messages. It skips messages that it cannot read because a later release wrote them: losing them
// is better than failing the conversation.
func decode(raw []json.RawMessage, log *slog.Logger) []provider.Message {
	messages := make([]provider.Message, 0, len(raw))
	for i, r := range raw {
		var m provider.Message
		if err := json.Unmarshal(r, &m); err != nil {
			log.Warn("stored message not readable", "index", i, "error", err)
			continue
		}
		messages = append(messages, m)
	}
	return messages
}

// repair returns the messages to append after an interrupted turn: a result for each of the last calls without one, and
// the draft of the answer.
func repair(messages []provider.Message, draft json.RawMessage) []provider.Message {
	added := missingResults(messages)
	if m, ok := draftOf(messages, draft); ok {
		m.Interrupted = true
		added = append(added, m)
	}
	return added
}

func missingResults(messages []provider.Message) []provider.Message {
	last := len(messages) - 1
	answered := make(map[string]bool)
	for ; last >= 0 && messages[last].Role == provider.RoleTool; last-- {
		answered[messages[last].ToolCallID] = true
	}
	if last < 0 {
		return nil
	}
	var missing []provider.Message
	for _, c := range messages[last].ToolCalls {
		if !answered[c.ID] {
			missing = append(missing, noResult(c, messages[last].Turn))
		}
	}
	return missing
}

// draftOf returns the message of a draft. It ignores a draft that reached the store after its message.
func draftOf(messages []provider.Message, draft json.RawMessage) (provider.Message, bool) {
	var m provider.Message
	if len(draft) == 0 || json.Unmarshal(draft, &m) != nil || m.Role != provider.RoleAssistant {
		return provider.Message{}, false
	}
	for _, said := range messages {
		if said.Role == provider.RoleAssistant && said.Turn == m.Turn && said.At.Equal(m.At) {
			return provider.Message{}, false
		}
	}
	return m, m.Content != "" || len(m.Thinking) > 0
}

func toolMessage(c provider.ToolCall, text string, failed bool, turn string) provider.Message {
	return provider.Message{
		Role: provider.RoleTool, Content: text, ToolCallID: c.ID, ToolName: c.Name, Failed: failed,
		At: time.Now().UTC(), Turn: turn,
	}
}

// noResult returns a placeholder for an unknown result of a call.
func noResult(c provider.ToolCall, turn string) provider.Message {
	m := toolMessage(c, noteUnknown, true, turn)
	m.Source = provider.SourceGateway
	return m
}

// wellFormed returns stored messages in a form that models accept, from the user's first one: a store that drops the
// oldest messages may have kept the end of an answer.
func wellFormed(messages []provider.Message) []provider.Message {
	if i := slices.IndexFunc(messages, isUser); i >= 0 {
		return paired(messages[i:])
	}
	return nil
}

// paired returns messages without empty ones, with one result for each call: missing ones get a placeholder.
func paired(messages []provider.Message) []provider.Message {
	out := make([]provider.Message, 0, len(messages))
	for i := 0; i < len(messages); {
		m := messages[i]
		i++
		switch {
		case m.Role == provider.RoleUser:
			out = append(out, m)
		case m.Role != provider.RoleAssistant: // a result without its call
		default:
			if m.Interrupted {
				m.Thinking = nil // an interrupted thought has no signature, so its model would reject it
			}
			results := make(map[string]provider.Message)
			for ; i < len(messages) && messages[i].Role == provider.RoleTool; i++ {
				results[messages[i].ToolCallID] = messages[i]
			}
			if strings.TrimSpace(m.Content) != "" || len(m.ToolCalls) > 0 {
				out = append(out, m)
			}
			for _, c := range m.ToolCalls {
				result, ok := results[c.ID]
				if !ok {
					result = noResult(c, m.Turn)
				}
				out = append(out, result)
			}
		}
	}
	return out
}

// Transcript implements Agent. During a turn, its last message may be a draft. The error is an *registry.Error.
func (e *Engine) Transcript(ctx context.Context, key registry.Key) (Transcript, error) {
	if err := key.Validate(); err != nil {
		return Transcript{}, err
	}
	c, err := e.cfg.Store.Conversation(ctx, key)
	if err != nil {
		return Transcript{}, err
	}
	t := Transcript{Title: c.Title, Busy: c.Busy, Messages: decode(c.Messages, e.cfg.Log)}
	mark := markOf(t.Messages)
	if !c.Busy {
		t.Messages = append(t.Messages, repair(t.Messages, c.Draft)...)
	} else if m, ok := draftOf(t.Messages, c.Draft); ok {
		t.Messages = append(t.Messages, m)
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		m.Content, m.Notice, m.Nonce = withNotice(m.Content, m.Notice), "", ""
		*m = mark.redactMessage(*m)
	}
	return t, nil
}

// CountMessages implements Agent. The error is an *registry.Error.
func (e *Engine) CountMessages(ctx context.Context, key registry.Key) (int, error) {
	if err := key.Validate(); err != nil {
		return 0, err
	}
	return e.cfg.Store.CountMessages(ctx, key)
}

type journal struct {
	store registry.ConversationStore
	turn  registry.Turn
	count int // messages in the conversation now
	*spending
}

// spending is the part of a Budget that a turn has spent.
type spending struct {
	budget  Budget
	by      share.Owner
	prepaid int  // bytes that are spent but not stored yet
	over    bool // more was stored than the budget had left
}

func (e *Engine) newSpending(caller auth.Identity) *spending {
	by := caller.Owner()
	if caller.Scope() == "" { // callers with the shared token use the budget of the tenant
		by.Identity = ""
	}
	return &spending{budget: e.cfg.Budget, by: by}
}

// spend spends the bytes that a turn stores first: turnCost and the user's message.
func (e *Engine) spend(ctx context.Context, a Ask) (*spending, error) {
	s := e.newSpending(a.Caller)
	s.prepaid = turnCost + len(a.Content)
	if err := s.budget.Begin(ctx, s.by, s.prepaid); err != nil {
		refused := registry.AsError(err)
		return nil, &Error{Code: CodeSessionBusy, Message: refused.Message, Cause: refused}
	}
	return s, nil
}

func (s *spending) count(ctx context.Context, bytes int) {
	if more := bytes - s.prepaid; more > 0 && s.budget.Add(ctx, s.by, more) {
		s.over = true
	}
	s.prepaid = max(s.prepaid-bytes, 0)
}

func (s *spending) giveBack() { s.budget.GiveBack(s.by, s.prepaid) }

// add stores messages, all or none, even after ctx has ended. It tries for storeTime.
func (j *journal) add(ctx context.Context, messages ...provider.Message) error {
	raw, size := make([]json.RawMessage, len(messages)), 0
	for i, m := range messages {
		b, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("encode message: %w", err)
		}
		raw[i] = b
		size += len(b)
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	n, err := j.appendWithRetry(ctx, raw)
	if err != nil {
		return fmt.Errorf("store message: %w", err)
	}
	j.count = n
	j.spending.count(ctx, size)
	return nil
}

// appendWithRetry retries an append, which has no effect the second time, through a short outage of the store.
func (j *journal) appendWithRetry(ctx context.Context, raw []json.RawMessage) (int, error) {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		n, err := j.store.AppendMessages(ctx, j.turn, raw...)
		if err == nil || !errors.Is(err, registry.CodeStoreUnavailable) {
			return n, err
		}
		if pause.For(ctx, wait) != nil {
			return 0, err
		}
	}
}
