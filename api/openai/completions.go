package openai

import (
	"context"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/internal/sse"
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

// Complete serves POST /v1/chat/completions. The tools of a device join in, and run here.
func (a *API) Complete(c *gin.Context) {
	var r request
	err := a.host.ReadTurn(c, func(body []byte) (err error) {
		r, err = parseRequest(body)
		return err
	})
	if err != nil {
		a.host.Fail(c, err)
		return
	}
	agent, err := a.host.Agent()
	if err != nil {
		a.host.Fail(c, &paramError{param: "model", code: "model_not_found", err: err})
		return
	}
	ask := &r.completion
	if ask.Model, err = a.model(ask.Model); err == nil {
		ask.Key, err = a.session(c, r)
	}
	if err != nil {
		a.host.Fail(c, err)
		return
	}
	ask.Caller, ask.Turn = a.host.Caller(c), registry.NewCallID()
	ctx, cancel := a.host.TurnContext(c)
	defer cancel()
	if !r.stream {
		a.answer(ctx, c, agent, *ask)
		return
	}
	a.host.StreamTurn(ctx, c, func(ctx context.Context, t *sse.TurnStream) sse.Ending {
		s := stream{TurnStream: t, host: a.host, ask: *ask, created: time.Now().Unix(), usage: r.includeUsage}
		return s.run(ctx, agent)
	})
}

// answer runs a turn and answers with its end.
func (a *API) answer(ctx context.Context, c *gin.Context, agent chat.Agent, ask chat.Completion) {
	aborted := false
	var thinking strings.Builder
	reply, calls, err := agent.Complete(ctx, ask, func(e chat.Event) {
		aborted = e.Type == chat.EventAborted
		if e.Type == chat.EventThinking {
			thinking.WriteString(e.Content)
		}
	})
	if err != nil {
		a.host.Fail(c, turnFailure(a.host.TurnError(ctx, err, aborted), reply))
		return
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
	a.host.WriteJSON(c, completion{
		ID: idPrefix + ask.Turn, Object: "chat.completion", Created: time.Now().Unix(), Model: ask.Model,
		Choices: []choice{{Message: m, FinishReason: finishReason(reply, calls)}}, Usage: usageOf(reply.Usage),
	})
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
