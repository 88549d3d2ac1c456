package chat

import (
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/provider"
)

// Notes that stand for a missing result.
const (
	noteUnknown = "interrupted; whether it ran is not known"
	noteNotRun  = "interrupted; it was not run"
)

// decode reads stored messages. It leaves out those that it cannot read because a later release wrote them: the rest of
// the conversation is worth more than an error.
func decode(raw []json.RawMessage, log *slog.Logger) []provider.Message {
	messages := make([]provider.Message, 0, len(raw))
	for i, r := range raw {
		var m provider.Message
		if err := json.Unmarshal(r, &m); err != nil {
			log.Warn("stored message not understood", "index", i, "error", err)
			continue
		}
		messages = append(messages, m)
	}
	return messages
}

// mend returns what must be added to a conversation whose last turn did not end by itself, oldest first: a result for
// each of the last tool calls that has none, and the draft of the answer.
func mend(messages []provider.Message, draft json.RawMessage) []provider.Message {
	added := missingResults(messages)
	if m, ok := draftOf(messages, draft); ok {
		m.Interrupted = true
		added = append(added, m)
	}
	return added
}

// missingResults returns a result for each of the last tool calls that has none.
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

// draftOf returns the message of a draft. A draft that reached the store after its message is ignored.
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

// toolMessage is the result of a call.
func toolMessage(c provider.ToolCall, text string, failed bool, turn string) provider.Message {
	return provider.Message{
		Role: provider.RoleTool, Content: text, ToolCallID: c.ID, ToolName: c.Name, Failed: failed,
		At: time.Now().UTC(), Turn: turn,
	}
}

// noResult stands for the result of a call that is not known.
func noResult(c provider.ToolCall, turn string) provider.Message {
	m := toolMessage(c, noteUnknown, true, turn)
	m.Source = provider.SourceGateway
	return m
}

// wellFormed returns stored messages in a form that models accept.
func wellFormed(messages []provider.Message) []provider.Message { return paired(sinceUser(messages)) }

// sinceUser leaves out the messages before the first one of the user: a store that drops the oldest messages may have
// kept the end of an answer.
func sinceUser(messages []provider.Message) []provider.Message {
	if i := slices.IndexFunc(messages, isUser); i >= 0 {
		return messages[i:]
	}
	return nil
}

// paired returns messages with every tool call followed by its result and every result behind its call, and without
// empty messages.
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
				m.Thinking = nil // a thought that was cut off has no signature, and its model would not take it back
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
