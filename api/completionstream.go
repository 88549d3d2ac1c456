package api

import (
	"context"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
)

// completionChunk is a piece of an answer, as OpenAI's API streams it.
type completionChunk struct {
	ID      string        `json:"id"`
	Object  string        `json:"object"`
	Created int64         `json:"created"`
	Model   string        `json:"model"`
	Choices []chunkChoice `json:"choices"`
}

// countedChunk is a piece of an answer whose caller wants to know the usage: all but the last say that they do not.
type countedChunk struct {
	completionChunk
	Usage *completionUsage `json:"usage"`
}

type chunkChoice struct {
	Index        int        `json:"index"`
	Delta        chunkDelta `json:"delta"`
	LogProbs     *struct{}  `json:"logprobs"` // always null
	FinishReason *string    `json:"finish_reason"`
}

type chunkDelta struct {
	Role      string           `json:"role,omitempty"`
	Content   *string          `json:"content,omitempty"`
	Refusal   *string          `json:"refusal,omitempty"`
	Reasoning string           `json:"reasoning_content,omitempty"`
	ToolCalls []completionCall `json:"tool_calls,omitempty"`
}

// completionStream writes one completion as it comes.
type completionStream struct {
	*turnStream
	ask     chat.Completion
	created int64
	usage   bool // the caller wants to know the usage
	begun   bool // the role has been told
}

// run runs the turn. Text and thinking of all its iterations go out at once; the calls of the caller's own tools are
// known to be complete only at the end.
func (s *completionStream) run(ctx context.Context, talker chat.Agent) ending {
	aborted := false
	reply, calls, err := talker.Complete(ctx, s.ask, func(e chat.Event) {
		switch e.Type {
		case chat.EventChunk:
			if e.Refusal {
				s.delta(chunkDelta{Refusal: &e.Content})
				return
			}
			s.delta(chunkDelta{Content: &e.Content})
		case chat.EventThinking:
			s.delta(chunkDelta{Reasoning: e.Content})
		case chat.EventToolCall, chat.EventToolResult: // they run here, unseen
			s.alive()
		case chat.EventAborted:
			aborted = true
		}
	})
	if err != nil {
		failure := completionError(turnError(ctx, err, aborted), reply)
		return ending{failure: failure, tell: func(t *turnStream) {
			_, told := openAIErrorOf(failure)
			t.send("", told) // and no [DONE]: it is not
		}}
	}
	return ending{tell: func(*turnStream) { s.finish(reply, calls) }}
}

// finish writes what is known at the end only.
func (s *completionStream) finish(reply chat.Reply, calls []provider.ToolCall) {
	for i, call := range calls {
		shown := completionCallOf(call)
		shown.Index = &i
		s.delta(chunkDelta{ToolCalls: []completionCall{shown}})
	}
	reason := finishReason(reply, calls)
	s.introduce()
	s.write(nil, chunkChoice{FinishReason: &reason})
	if s.usage {
		counted := completionUsageOf(reply.Usage)
		s.write(&counted)
	}
	s.sendText("[DONE]")
}

func (s *completionStream) delta(d chunkDelta) {
	s.introduce()
	s.write(nil, chunkChoice{Delta: d})
}

// introduce tells who speaks, before anything is said.
func (s *completionStream) introduce() {
	if s.begun {
		return
	}
	s.begun = true
	nothing := ""
	s.write(nil, chunkChoice{Delta: chunkDelta{Role: "assistant", Content: &nothing}})
}

func (s *completionStream) write(usage *completionUsage, choices ...chunkChoice) {
	chunk := completionChunk{
		ID: completionID + s.ask.Turn, Object: "chat.completion.chunk", Created: s.created, Model: s.ask.Model,
		Choices: append([]chunkChoice{}, choices...),
	}
	if s.usage {
		s.send("", countedChunk{chunk, usage})
		return
	}
	s.send("", chunk)
}
