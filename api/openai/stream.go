package openai

import (
	"context"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/ssewriter"
)

// chunk is a piece of an answer, as OpenAI's API streams it.
type chunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
}

// countedChunk is a chunk for a caller that wants the usage. It is null in all chunks but the last.
type countedChunk struct {
	chunk
	Usage *usage `json:"usage"`
}

type chunkChoice struct {
	Index        int       `json:"index"`
	Delta        delta     `json:"delta"`
	LogProbs     *struct{} `json:"logprobs"` // always null
	FinishReason *string   `json:"finish_reason"`
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Refusal   *string    `json:"refusal,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// stream writes one completion while its turn runs.
type stream struct {
	*ssewriter.TurnStream
	*Completion
	created int64
	begun   bool // the role has been sent
}

// Stream runs the turn and writes its events. Text and thinking of all its iterations are sent at once. The calls of
// the caller's own tools are complete only at the end.
func (o *Completion) Stream(ctx context.Context, t *ssewriter.TurnStream) ssewriter.Ending {
	s, aborted := &stream{TurnStream: t, Completion: o, created: time.Now().Unix()}, false
	reply, calls, err := o.turns.Agent.Complete(ctx, o.ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventChunk:
			if e.Refusal {
				s.sendDelta(delta{Refusal: &e.Content})
				return
			}
			s.sendDelta(delta{Content: &e.Content})
		case chat.EventThinking:
			s.sendDelta(delta{Reasoning: e.Content})
		case chat.EventToolCall, chat.EventToolResult: // a device's tool, which OpenAI's API does not show
			s.KeepAlive()
		case chat.EventAborted:
			aborted = true
		}
	})
	if err != nil {
		failure := turnFailure(o.turns.Explain(ctx, err, aborted), reply)
		return ssewriter.Ending{Failure: failure, Tell: func(t *ssewriter.TurnStream) {
			_, body := errorBodyOf(failure)
			t.Send("", body) // without [DONE], which would say that the answer is whole
		}}
	}
	return ssewriter.Ending{Tell: func(*ssewriter.TurnStream) { s.finish(reply, calls) }}
}

// finish sends what is known only at the end.
func (s *stream) finish(reply chat.Reply, calls []provider.ToolCall) {
	for i, call := range calls {
		shown := toolCallOf(call)
		shown.Index = &i
		s.sendDelta(delta{ToolCalls: []toolCall{shown}})
	}
	reason := finishReason(reply, calls)
	s.sendRole()
	s.sendChunk(nil, chunkChoice{FinishReason: &reason})
	if s.usage {
		counted := usageOf(reply.Usage)
		s.sendChunk(&counted)
	}
	s.SendText("[DONE]")
}

func (s *stream) sendDelta(d delta) {
	s.sendRole()
	s.sendChunk(nil, chunkChoice{Delta: d})
}

// sendRole says who speaks, before the first words.
func (s *stream) sendRole() {
	if s.begun {
		return
	}
	s.begun = true
	nothing := ""
	s.sendChunk(nil, chunkChoice{Delta: delta{Role: "assistant", Content: &nothing}})
}

func (s *stream) sendChunk(counted *usage, choices ...chunkChoice) {
	piece := chunk{
		ID: idPrefix + s.ask.Turn, Object: "chat.completion.chunk", Created: s.created, Model: s.ask.Model,
		Choices: append([]chunkChoice{}, choices...),
	}
	if s.usage {
		s.Send("", countedChunk{piece, counted})
		return
	}
	s.Send("", piece)
}
