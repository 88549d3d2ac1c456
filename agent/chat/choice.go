package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// noteRefused is the text of a model that refuses without a word.
const noteRefused = "The model declined to answer."

// choose sets in a request whether the model must call tools. An order to call one of the gateway's tools counts for
// the first answer only, or the turn would not end. An order to call any tool, from a caller that brought its own,
// counts until one of those is called, because the caller waits for that.
func (l *loop) choose(r *provider.Request, listed []agent.ShownTool) error {
	switch l.choice.Mode {
	case provider.ChoiceRequired:
		if len(r.Tools) == 0 {
			return badChoice("There is no tool that could be called. Connect a device, or bring tools.")
		}
		if len(l.own) > 0 || len(l.calls) == 0 {
			r.Choice = l.choice
		}
	case provider.ChoiceTool:
		if !slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.Name == l.choice.Name }) {
			if len(l.calls) > 0 { // it was called before
				return nil
			}
			return badChoice(fmt.Sprintf("There is no tool %q now.", l.choice.Name))
		}
		if l.own[l.choice.Name] || len(l.calls) == 0 {
			r.Choice = l.choice
		}
	}
	return nil
}

// badChoice refuses an order to call a tool that cannot be carried out.
func badChoice(message string) error {
	return &Error{Code: CodeProvider, Message: message, Cause: &provider.Error{
		Kind: provider.KindRequest, Message: message, Param: "tool_choice", Cause: registry.CodeInvalidRequest,
	}}
}

// beginAnswer prepares for the text of an answer. An answer that must be JSON is one text, and what a model says beside
// calls of the gateway's tools is no part of it. So while there are such tools, text is held back until the answer is
// known to have no calls.
func (l *loop) beginAnswer(tools bool) {
	l.held = nil
	if l.base.Options.Format != nil && tools {
		l.held = new(strings.Builder)
	}
}

// say streams a piece of an answer, or holds it back.
func (l *loop) say(text string) {
	switch {
	case text == "":
	case l.held != nil:
		l.held.WriteString(text)
	default:
		l.said.WriteString(text)
		l.out.send(Event{Type: EventChunk, Content: text})
	}
}

// release streams what was held back, if it is the answer.
func (l *loop) release(calls []provider.ToolCall) {
	if l.held == nil {
		return
	}
	text := l.held.String()
	l.held = nil
	if len(calls) == 0 || slices.ContainsFunc(calls, func(c provider.ToolCall) bool { return l.own[c.Name] }) {
		l.say(text)
	}
}
