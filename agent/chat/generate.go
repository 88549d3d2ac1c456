package chat

import (
	"context"
	"regexp"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// generate asks the model once and streams its answer. An answer that breaks off is kept, marked as interrupted and
// without its tool calls: none of them ran, and the last may be incomplete.
func (l *loop) generate(ctx context.Context, listed []agent.ShownTool) (provider.Message, error) {
	request := l.request(listed)
	if err := l.choose(&request, listed); err != nil {
		return provider.Message{}, err
	}
	if err := l.tooLong(request); err != nil {
		return provider.Message{}, err
	}
	l.beginAnswer(len(listed) > 0)
	if l.debug {
		l.out.send(l.debugPrompt(request))
	}
	draft := newDraft(l.turn, l.journal)
	defer draft.stop()
	words := redactor{mark: l.mark}
	answer, err := l.model.Generate(ctx, request, func(d provider.Delta) { l.stream(draft, words.pass(d)) })
	l.stream(draft, words.rest())
	draft.stop()
	answer.Message = l.mark.redactAnswer(answer.Message)

	said := draft.message()
	l.count(request, answer, said)
	if err != nil {
		said.Interrupted, said.Tainted = true, l.knows().Tainted()
		if keepErr := l.keep(ctx, said); keepErr != nil {
			l.log.Warn("interrupted answer not stored", "turn", l.turn, "error", keepErr)
		}
		return provider.Message{}, err
	}
	if said.Content == "" && answer.Message.Content != "" { // a model that does not stream
		l.stream(draft, provider.Delta{Text: answer.Message.Content})
	}
	if l.stop = answer.Stop; l.stop == provider.StopRefusal && strings.TrimSpace(answer.Message.Content) == "" {
		answer.Message.Content += noteRefused
		l.stream(draft, provider.Delta{Refusal: noteRefused})
	}
	l.release(answer.Message.ToolCalls)
	m := answer.Message
	m.Role, m.Turn, m.At = provider.RoleAssistant, l.turn, said.At
	m.ToolCalls = storable(m.ToolCalls)
	m.Tainted = l.knows().Tainted()
	return m, nil
}

// stream sends a piece of the answer.
func (l *loop) stream(draft *draft, d provider.Delta) {
	draft.add(d)
	if d.Thinking != "" {
		l.out.send(Event{Type: EventThinking, Content: d.Thinking})
	}
	l.say(d.Text)
	if d.Refusal != "" {
		l.said.WriteString(d.Refusal)
		l.refusal.WriteString(d.Refusal)
		l.out.send(Event{Type: EventChunk, Content: d.Refusal, Refusal: true})
	}
}

// count adds the tokens of an answer. If the provider reports none, it adds an estimate, or the limit would not hold.
func (l *loop) count(r provider.Request, a provider.Answer, said provider.Message) {
	l.usage.Input += a.Usage.Input
	l.usage.Output += a.Usage.Output
	tokens := a.Usage.Input + a.Usage.Output
	if tokens == 0 {
		said.ToolCalls = a.Message.ToolCalls
		tokens = estimateFixed(r) + estimateAll(r.Messages) + estimate(said)
	}
	l.tokens += tokens
}

// foreignName matches the characters that names of tools do not have.
var foreignName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// storable returns calls in the form that a provider accepts back: with distinct ids, and with well-formed names even
// if the model made them up.
func storable(calls []provider.ToolCall) []provider.ToolCall {
	seen := make(map[string]bool, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.ID == "" || seen[c.ID] {
			c.ID = "call_" + strings.ReplaceAll(registry.NewCallID(), "-", "") // OpenAI takes 40 characters
		}
		seen[c.ID] = true
		c.Args = strings.ToValidUTF8(c.Args, "\uFFFD")
		if c.Name = foreignName.ReplaceAllString(c.Name, "_"); c.Name == "" {
			c.Name = "_"
		}
		c.Name = c.Name[:min(len(c.Name), 64)]
	}
	return calls
}
