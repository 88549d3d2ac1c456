package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

const (
	maxTools = 126 // in one request; the vendors accept 128
	maxNamed = 20  // of the dropped tools, in the log
)

// request returns the next request to the model: the conversation and the listed tools as far as they fit, and the
// caller's own tools, which hide listed tools of the same name.
func (l *loop) request(listed []agent.ShownTool) provider.Request {
	r := l.base
	r.Tools = slices.Clone(l.base.Tools)
	r.System = truncate(r.System, max(l.limits.ContextTokens*bytesPerToken/2, 2*noteBytes))
	r.Tools = append(r.Tools, l.fitting(listed, len(r.System))...)
	messages := slices.Clone(l.history)
	marked := false
	for i := range messages {
		m := &messages[i]
		// A caller's own messages are sent unchanged. Restored messages between them have a turn.
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
		messages = paired(messages) // starts as the caller wrote it
	} else {
		messages = wellFormed(messages)
	}
	r.Messages = trim(messages, l.limits.ContextTokens-estimateFixed(r))
	return r
}

// fitting returns the first listed tools that fit a request: half of the context must remain for everything else, and
// a quarter for messages. It logs dropped tools once for each turn.
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
		l.log.Warn("tools left out of a model request", "turn", l.turn, "offered", count, "left_out", len(left),
			"names", left[:min(len(left), maxNamed)])
	}
	return fit
}

func modelTool(t agent.ShownTool) provider.Tool {
	return provider.Tool{Name: t.ModelName, Description: t.Spec.Description, Parameters: t.Spec.Parameters}
}

// debugPrompt returns the request to the model without the nonce: the reader may be the device that it guards against.
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
	messageTokens = 4    // tokens of a message in addition to its text
	imageTokens   = 1600 // approximate tokens of an image of any size
	bytesPerToken = 4    // approximate
)

// estimate returns the approximate tokens of a message: by four bytes for a token, whatever the model.
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

func estimateAll(messages []provider.Message) int {
	n := 0
	for _, m := range messages {
		n += estimate(m)
	}
	return n
}

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

func toolSize(t provider.Tool) int { return len(t.Name) + len(t.Description) + len(t.Parameters) }

// trim returns as many well-formed messages as fit into about limit tokens, without the oldest groups. A group begins
// with a message of the user. The newest group stays, and is shortened if it is still too long.
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

// readable returns the output of a tool as the model and people read it: cleaned, and at most limit bytes.
func readable(said string, limit int64) string {
	return textsafe.Clean(truncate(textsafe.Clean(said), int(limit))) // truncation may leave fragments at the gap
}

// show returns readable text as people see it. The fence is longer than any in the text, so the text cannot close it.
func show(said string, format Format) string {
	if format == FormatPlain {
		return said
	}
	longest := 2
	for run := range strings.FieldsFuncSeq(said, func(r rune) bool { return r != '`' }) {
		longest = max(longest, len(run))
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "\n" + strings.TrimSuffix(said, "\n") + "\n" + fence
}

func explain(e *registry.Error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Code, e.Message)
	for _, v := range e.Violations {
		fmt.Fprintf(&b, "\n%s", v)
	}
	return b.String()
}
