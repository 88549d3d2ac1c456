package openai

import (
	"context"
	"encoding/json"
	"regexp"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/api/wire"
)

// stream writes a completion while its turn runs.
type stream struct {
	*ssewriter.TurnStream
	*Completion
	created int64
	begun   bool // the role was sent
}

// Stream runs the turn and writes its events. Text and thinking of all iterations are sent immediately. Calls of the
// caller's own tools are sent at the end, when they are complete.
func (o *Completion) Stream(ctx context.Context, t *ssewriter.TurnStream) ssewriter.Ending {
	s, aborted := &stream{TurnStream: t, Completion: o, created: time.Now().Unix()}, false
	reply, calls, err := o.turns.Agent.Complete(ctx, o.ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventChunk:
			if e.Refusal {
				s.sendDelta(wire.CompletionDelta{Refusal: &e.Content})
				return
			}
			s.sendDelta(wire.CompletionDelta{Content: &e.Content})
		case chat.EventThinking:
			s.sendDelta(wire.CompletionDelta{Reasoning: e.Content})
		case chat.EventToolCall, chat.EventToolResult: // a device's tool, which OpenAI's format cannot show
			s.KeepAlive()
		case chat.EventAborted:
			aborted = true
		}
	})
	if err != nil {
		failure := turnFailure(o.turns.Explain(ctx, err, aborted), reply)
		return ssewriter.Ending{Failure: failure, Tell: func(t *ssewriter.TurnStream) {
			_, body := errorBodyOf(failure)
			t.Send("", body) // without [DONE], which would mark the answer as complete
		}}
	}
	return ssewriter.Ending{Tell: func(*ssewriter.TurnStream) { s.finish(reply, calls) }}
}

// finish sends the tool calls, the finish reason and the usage.
func (s *stream) finish(reply chat.Reply, calls []provider.ToolCall) {
	for i, call := range calls {
		shown := toolCallOf(call)
		shown.Index = &i
		s.sendDelta(wire.CompletionDelta{ToolCalls: []wire.CompletionCall{shown}})
	}
	reason := finishReason(reply, calls)
	s.sendRole()
	s.sendChunk(nil, wire.CompletionChunkChoice{FinishReason: &reason})
	if s.usage {
		counted := usageOf(reply.Usage)
		s.sendChunk(&counted)
	}
	s.SendText("[DONE]")
}

func (s *stream) sendDelta(d wire.CompletionDelta) {
	s.sendRole()
	s.sendChunk(nil, wire.CompletionChunkChoice{Delta: d})
}

// sendRole sends the role before the first text.
func (s *stream) sendRole() {
	if s.begun {
		return
	}
	s.begun = true
	nothing := ""
	s.sendChunk(nil, wire.CompletionChunkChoice{Delta: wire.CompletionDelta{Role: "assistant", Content: &nothing}})
}

func (s *stream) sendChunk(counted *wire.CompletionUsage, choices ...wire.CompletionChunkChoice) {
	piece := wire.CompletionChunk{
		ID: idPrefix + s.ask.Turn, Object: "chat.completion.chunk", Created: s.created, Model: s.ask.Model,
		Choices: append([]wire.CompletionChunkChoice{}, choices...),
	}
	if s.usage { // null in all chunks but the last
		piece.Usage = &counted
	}
	s.Send("", piece)
}

// maxCallerTools is the maximum number of a caller's tools, as at OpenAI.
const maxCallerTools = 128

// anyParameters is the default schema of a tool.
const anyParameters = `{"type":"object","properties":{}}`

var modelToolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// readTools reads the tools that the caller runs.
func (r *Request) readTools(f fields) {
	all := f.list("tools", "an array")
	if len(all) > maxCallerTools {
		f.fail("tools", "At most %d tools may be given.", maxCallerTools)
	}
	seen := make(map[string]bool, len(all))
	for one := range f.objects("tools", all) {
		t := readTool(one)
		if seen[t.Name] {
			one.fail("function.name", "The tool %q is given twice.", t.Name)
		}
		seen[t.Name] = true
		r.completion.Tools = append(r.completion.Tools, t)
	}
}

func readTool(f fields) (t provider.Tool) {
	if f.kind() != "function" {
		f.fail("type", "Only tools of the type \"function\" are offered.")
	}
	f = f.object("function")
	if t.Name = f.str("name"); !modelToolName.MatchString(t.Name) {
		f.fail("name", "The name of a tool must match %s.", modelToolName)
	}
	t.Description, t.Strict = f.str("description"), f.flag("strict")
	t.Parameters = json.RawMessage(anyParameters)
	if f.has("parameters") {
		if t.Parameters = f.members["parameters"]; t.Parameters[0] != '{' {
			f.fail("parameters", "%s must be a JSON Schema object.", named(f.path("parameters")))
		}
	}
	return t
}

// readToolChoice reads whether tools must or may be called. The choice "none" also disables the device's tools.
func (r *Request) readToolChoice(f fields) {
	text := f.members["tool_choice"]
	c := &r.completion.Choice
	switch string(text) {
	case "", `"auto"`:
		return
	case `"none"`:
		c.Mode, r.completion.Tools = provider.ChoiceNone, nil
		return
	case `"required"`:
		c.Mode = provider.ChoiceRequired
		return
	}
	if text[0] != '{' {
		f.fail("tool_choice", "The field \"tool_choice\" must be none, auto, required, or name a function.")
		return
	}
	choice := f.object("tool_choice")
	if choice.kind() != "function" {
		choice.fail("", "Of tools that can be chosen, only the type \"function\" is offered.")
	}
	function := choice.object("function")
	c.Mode, c.Name = provider.ChoiceTool, function.str("name")
	if c.Name == "" {
		function.fail("name", "The name of the function is missing.")
	}
}
