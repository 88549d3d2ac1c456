package chat

import (
	"slices"

	"github.com/farhand/farhand/agent/provider"
)

const (
	messageTokens = 4    // what a message costs beside its text
	imageTokens   = 1600 // about what an image costs, however many bytes it has
	bytesPerToken = 4    // about
)

// estimate returns about how many tokens a message is. Four bytes for a token is near enough for a limit that leaves
// room, and the same for every model.
func estimate(m provider.Message) int {
	n := len(m.Content) + len(m.ToolCallID) + len(m.ToolName) + imageTokens*bytesPerToken*(images(m)+len(m.Pictures))
	for _, t := range m.Thinking {
		n += len(t.Text) + len(t.Signature) + len(t.Redacted)
	}
	for _, c := range m.ToolCalls {
		n += len(c.ID) + len(c.Name) + len(c.Args)
	}
	return messageTokens + n/bytesPerToken
}

// estimateAll returns about how many tokens messages are.
func estimateAll(messages []provider.Message) int {
	n := 0
	for _, m := range messages {
		n += estimate(m)
	}
	return n
}

// estimateFixed returns about how many tokens a request has before any message.
func estimateFixed(r provider.Request) int {
	n := len(r.System)
	if f := r.Options.Format; f != nil {
		n += len(f.Schema)
	}
	for _, t := range r.Tools {
		n += toolSize(t)
	}
	return n / bytesPerToken
}

// toolSize returns the size of a tool in a request, in bytes.
func toolSize(t provider.Tool) int { return len(t.Name) + len(t.Description) + len(t.Parameters) }

// trim returns as many well-formed messages as fit into about limit tokens. It drops the oldest groups first, each as a
// whole: a message of the user and all that followed. The newest group stays, and is shortened if it is still too long.
func trim(messages []provider.Message, limit int) []provider.Message {
	total := estimateAll(messages)
	for total > limit {
		next := slices.IndexFunc(messages[min(1, len(messages)):], isUser) + 1
		if next == 0 {
			break
		}
		total -= estimateAll(messages[:next])
		messages = messages[next:]
	}
	if total <= limit {
		return messages
	}
	return shortenGroup(messages, limit)
}

func isUser(m provider.Message) bool { return m.Role == provider.RoleUser }
