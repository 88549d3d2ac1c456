package chat

import (
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider"
)

const (
	maxTools = 126 // told to a model in one request; the vendors take 128
	maxNamed = 20  // of those left out, in the log
)

// request returns what the model is asked next: the conversation as far as it fits, and the tools there are now. Of a
// tool the caller runs and one of the same name that is listed, the caller's counts. The caller's own tools always go
// along; of the others the first ones that fit.
func (l *loop) request(listed []ListedTool) provider.Request {
	r := l.base
	r.Tools = slices.Clone(l.base.Tools)
	r.System = cut(r.System, max(l.limits.ContextTokens*bytesPerToken/2, 2*cutRoom))
	r.Tools = append(r.Tools, l.fitting(listed, len(r.System))...)
	messages := slices.Clone(l.history)
	marked := false
	for i := range messages {
		m := &messages[i]
		// What a caller sent is sent as it is; what was restored between it has a turn.
		if m.Role == provider.RoleTool && (i >= l.given || m.Turn != "") {
			m.Content, marked = l.mark.around(*m), true
		}
		m.Nonce, m.Notice = "", "" // no model's, nor of who is shown the prompt
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

// fitting returns the tools of listed that a model is told of beside the caller's own: the first ones, as far as they leave
// half of the context to all else, and a quarter of it to messages. What is left out is in the log, once a turn.
func (l *loop) fitting(listed []ListedTool, system int) []provider.Tool {
	context := l.limits.ContextTokens * bytesPerToken
	count, size := len(l.base.Tools), max(0, system-context/4)
	for _, t := range l.base.Tools {
		size += toolSize(t)
	}
	var fit []provider.Tool
	var left []string
	for _, t := range listed {
		switch more := toolSize(t.Tool); {
		case l.own[t.Name]:
		case count >= maxTools || size+more > context/2:
			left = append(left, t.Name)
		default:
			fit = append(fit, t.Tool)
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

// debugPrompt shows what is sent to the model, but not the nonce: who asks may be the device whose output it keeps apart.
func (l *loop) debugPrompt(r provider.Request) Event {
	messages := r.Messages
	if r.System != "" {
		messages = append([]provider.Message{{Role: provider.RoleSystem, Content: r.System}}, messages...)
	}
	messages = slices.Clone(messages)
	for i := range messages {
		messages[i].Content = l.mark.hide(messages[i].Content)
	}
	return Event{
		Type: EventDebugPrompt, Messages: messages, EstimatedTokens: estimateFixed(r) + estimateAll(r.Messages),
	}
}
