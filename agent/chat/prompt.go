package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/legible"
)

const (
	maxTools = 126 // in one request; the vendors accept 128
	maxNamed = 20  // of the left-out tools, in the log
)

// request returns the next request to the model: the conversation as far as it fits, and the tools that exist now. A
// caller's tool hides a listed one of the same name. The caller's own tools are always included, and of the others the
// first ones that fit.
func (l *loop) request(listed []agent.ShownTool) provider.Request {
	r := l.base
	r.Tools = slices.Clone(l.base.Tools)
	r.System = truncate(r.System, max(l.limits.ContextTokens*bytesPerToken/2, 2*noteBytes))
	r.Tools = append(r.Tools, l.fitting(listed, len(r.System))...)
	messages := slices.Clone(l.history)
	marked := false
	for i := range messages {
		m := &messages[i]
		// A caller's own messages are sent as they are. Those that were restored between them have a turn.
		if m.Role == provider.RoleTool && (i >= l.given || m.Turn != "") {
			m.Content, marked = l.mark.around(described(*m)), true
		}
		m.Nonce, m.Notice = "", "" // neither for the model nor for people
		m.Source, m.Tainted, m.Approved, m.Suspects, m.Attachments = "", false, false, nil, nil
	}
	if marked || len(r.Tools) > len(l.base.Tools) {
		r.System = strings.TrimPrefix(r.System+"\n\n"+l.mark.note(), "\n\n")
	}
	if l.given > 0 {
		messages = paired(messages) // which begins as its caller says
	} else {
		messages = wellFormed(messages)
	}
	r.Messages = trim(messages, l.limits.ContextTokens-estimateFixed(r))
	return r
}

// fitting returns the listed tools that a request includes beside the caller's own: the first ones, as far as they
// leave half of the context to all else and a quarter of it to messages. It logs what is left out, once in a turn.
func (l *loop) fitting(listed []agent.ShownTool, system int) []provider.Tool {
	context := l.limits.ContextTokens * bytesPerToken
	count, size := len(l.base.Tools), max(0, system-context/4)
	for _, t := range l.base.Tools {
		size += toolSize(t)
	}
	var fit []provider.Tool
	var left []string
	for _, t := range listed {
		tool := modelTool(t)
		switch more := toolSize(tool); {
		case l.own[tool.Name]:
		case count >= maxTools || size+more > context/2:
			left = append(left, tool.Name)
		default:
			fit = append(fit, tool)
			count, size = count+1, size+more
		}
	}
	if len(left) > 0 && !l.leftOut {
		l.leftOut = true
		l.log.Warn("a model is not told of all tools", "turn", l.turn, "told", count, "left_out", len(left),
			"names", left[:min(len(left), maxNamed)])
	}
	return fit
}

// modelTool returns a tool as a model sees it.
func modelTool(t agent.ShownTool) provider.Tool {
	return provider.Tool{Name: t.ModelName, Description: t.Spec.Description, Parameters: t.Spec.Parameters}
}

// debugPrompt shows the request to the model without the nonce: its reader may be the device whose output the nonce
// marks.
func (l *loop) debugPrompt(r provider.Request) Event {
	messages := r.Messages
	if r.System != "" {
		messages = append([]provider.Message{{Role: provider.RoleSystem, Content: r.System}}, messages...)
	}
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i] = l.mark.redactMessage(messages[i])
	}
	return Event{
		Type: EventDebugPrompt, Messages: messages, EstimatedTokens: estimateFixed(r) + estimateAll(r.Messages),
	}
}

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

// readable returns the output of a tool as model and people read it: clean, and at most limit bytes.
func readable(said string, limit int) string {
	return legible.Clean(truncate(legible.Clean(said), limit)) // the ends at the gap may be fragments
}

// show returns readable text as people see it. A fence is longer than any in the text, so nothing in it ends it.
func show(said string, format Format) string {
	if format == FormatPlain {
		return said
	}
	longest, run := 2, 0
	for i := range len(said) {
		if said[i] == '`' {
			run++
			longest = max(longest, run)
		} else {
			run = 0
		}
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "\n" + strings.TrimSuffix(said, "\n") + "\n" + fence
}

// explain returns the text that a model reads of a failed call.
func explain(e *registry.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Code, e.Message)
	for _, v := range e.Violations {
		fmt.Fprintf(&b, "\n%s", v)
	}
	return b.String()
}
