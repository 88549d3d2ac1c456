package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// noteRefused is said for a model that refuses without a word.
const noteRefused = "The model declined to answer."

// choose says in a request whether the model is to call tools. An order counts until it has been carried out: one to call a tool
// that the gateway runs for the first answer, or the turn would not end; one to call some tool, if the caller brought its own,
// until one of those is called, because that is what the caller waits for.
func (l *loop) choose(r *provider.Request, listed []ListedTool) error {
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
			if len(l.calls) > 0 { // it was there, and was called
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

// badChoice refuses a request whose order to call a tool cannot be carried out.
func badChoice(message string) error {
	return &Error{Code: CodeProvider, Message: message, Cause: &provider.Error{
		Kind: provider.KindRequest, Message: message, Param: "tool_choice", Cause: registry.CodeInvalidRequest,
	}}
}

// beginAnswer prepares for what an answer says. An answer that must be JSON is one text: what is said beside calls of the
// gateway's tools is no part of it, so while there are such tools it is held back until it is known what it is.
func (l *loop) beginAnswer(tools bool) {
	l.held = nil
	if l.base.Options.Format != nil && tools {
		l.held = new(strings.Builder)
	}
}

// say passes on what an answer says, or holds it.
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

// release passes on what was held, if it is the answer.
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
