package openai

import (
	"context"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// idPrefix begins the id of a completion. The id of its turn follows.
const idPrefix = "chatcmpl-"

// completion is the answer to a request for a completion.
type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   usage    `json:"usage"`
}

type choice struct {
	Index        int       `json:"index"`
	Message      message   `json:"message"`
	LogProbs     *struct{} `json:"logprobs"` // always null
	FinishReason string    `json:"finish_reason"`
}

type message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"` // null when only tools are called
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	Refusal   *string    `json:"refusal"` // null unless the model refused
}

// toolCall is a call of one of the caller's tools. Index is for streams.
type toolCall struct {
	Index    *int     `json:"index,omitempty"`
	ID       string   `json:"id"`
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func usageOf(u provider.Usage) usage { return usage{u.Input, u.Output, u.Input + u.Output} }

// Turns has what a completion needs to become a turn.
type Turns struct {
	Agent    chat.Agent
	Sessions Sessions
	// Explain returns why a turn has no answer. ctx is the turn's. aborted says that somebody ended it on purpose.
	Explain func(ctx context.Context, err error, aborted bool) error
}

// Completion is a request for a completion whose turn can begin.
type Completion struct {
	turns Turns
	ask   chat.Completion
	usage bool // the caller wants the usage with a stream
}

// Open finds the model that a request names, and the session whose tools join in: sessionID if it is not empty,
// otherwise that of the request's user.
func (r *Request) Open(
	ctx context.Context, turns Turns, caller auth.Identity, sessionID string,
) (*Completion, error) {
	ask, err := r.completion, error(nil)
	if ask.Model, err = configuredModel(turns.Agent.Models(), ask.Model); err != nil {
		return nil, err
	}
	if ask.Key, err = r.session(ctx, turns.Sessions, caller, sessionID); err != nil {
		return nil, err
	}
	ask.Caller, ask.Turn = caller, registry.NewCallID()
	return &Completion{turns, ask, r.includeUsage}, nil
}

// Answer runs the turn to its end and returns the answer, to be written as JSON.
func (o *Completion) Answer(ctx context.Context) (any, error) {
	aborted := false
	var thinking strings.Builder
	reply, calls, err := o.turns.Agent.Complete(ctx, o.ask, func(e chat.Event) {
		aborted = e.Type == chat.EventAborted
		if e.Type == chat.EventThinking {
			thinking.WriteString(e.Content)
		}
	})
	if err != nil {
		return nil, turnFailure(o.turns.Explain(ctx, err, aborted), reply)
	}
	m := message{Role: "assistant", Reasoning: thinking.String()}
	said := strings.TrimSuffix(reply.FullResponse, reply.Refusal)
	if said != "" || len(calls) == 0 && reply.Refusal == "" {
		m.Content = &said
	}
	if reply.Refusal != "" {
		m.Refusal = &reply.Refusal
	}
	for _, call := range calls {
		m.ToolCalls = append(m.ToolCalls, toolCallOf(call))
	}
	return completion{
		ID: idPrefix + o.ask.Turn, Object: "chat.completion", Created: time.Now().Unix(), Model: o.ask.Model,
		Choices: []choice{{Message: m, FinishReason: finishReason(reply, calls)}}, Usage: usageOf(reply.Usage),
	}, nil
}

func toolCallOf(call provider.ToolCall) toolCall {
	return toolCall{ID: call.ID, Type: "function", Function: function{call.Name, call.Args}}
}

// finishReason says why the answer ends. Calls are the reason only if the caller is to run them. A refusal in the
// model's words is an answer, as at OpenAI, whose clients take the other reason for a failure.
func finishReason(reply chat.Reply, calls []provider.ToolCall) string {
	switch {
	case len(calls) > 0:
		return string(provider.StopToolCalls)
	case reply.Stop == provider.StopLength || reply.Stop == provider.StopRefusal && !reply.Refused():
		return string(reply.Stop)
	default:
		return string(provider.StopEnd)
	}
}
