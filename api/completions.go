package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// completionID is what the id of a completion begins with. The id of its turn follows.
const completionID = "chatcmpl-"

// completion is an answer of the chat completions, as OpenAI's API has it.
type completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   completionUsage    `json:"usage"`
}

type completionChoice struct {
	Index        int               `json:"index"`
	Message      completionMessage `json:"message"`
	LogProbs     *struct{}         `json:"logprobs"` // always null
	FinishReason string            `json:"finish_reason"`
}

type completionMessage struct {
	Role      string           `json:"role"`
	Content   *string          `json:"content"` // null when only tools are called
	Reasoning string           `json:"reasoning_content,omitempty"`
	ToolCalls []completionCall `json:"tool_calls,omitempty"`
	Refusal   *string          `json:"refusal"` // null unless the model refused
}

// completionCall is a call of one of the caller's tools. Index is for streams.
type completionCall struct {
	Index    *int               `json:"index,omitempty"`
	ID       string             `json:"id"`
	Type     string             `json:"type"`
	Function completionFunction `json:"function"`
}

type completionFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type completionUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func completionUsageOf(u provider.Usage) completionUsage {
	return completionUsage{u.Input, u.Output, u.Input + u.Output}
}

// completions answers as OpenAI's chat completions do. The tools of a device join in, and run here.
func (h *handler) completions(c *gin.Context, _ params) {
	r, err := h.readCompletion(c)
	if err != nil {
		h.fail(c, err)
		return
	}
	talker, err := h.agent()
	if err != nil {
		h.fail(c, &openAIFault{param: "model", code: "model_not_found", err: err})
		return
	}
	ask := &r.completion
	if ask.Model, err = h.model(ask.Model); err == nil {
		ask.Key, err = h.helper(c, r)
	}
	if err != nil {
		h.fail(c, err)
		return
	}
	ask.Caller, ask.Turn = caller(c), registry.NewCallID()
	ctx, cancel := h.turnContext(c)
	defer cancel()
	if !r.stream {
		h.answerCompletion(ctx, c, talker, *ask)
		return
	}
	h.streamTurn(ctx, c, func(ctx context.Context, t *turnStream) ending {
		s := completionStream{turnStream: t, ask: *ask, created: time.Now().Unix(), usage: r.includeUsage}
		return s.run(ctx, talker)
	})
}

func (h *handler) readCompletion(c *gin.Context) (r completionRequest, err error) {
	body, err := h.readBody(c)
	if err != nil {
		return r, err
	}
	if h.Draining() { // a turn is long, and would not get far
		return r, draining()
	}
	return parse(c, h.Invoker, body, parseCompletion)
}

// answerCompletion runs a turn to its end.
func (h *handler) answerCompletion(ctx context.Context, c *gin.Context, talker chat.Agent, ask chat.Completion) {
	aborted := false
	var thinking strings.Builder
	reply, calls, err := talker.Complete(ctx, ask, func(e chat.Event) {
		aborted = e.Type == chat.EventAborted
		if e.Type == chat.EventThinking {
			thinking.WriteString(e.Content)
		}
	})
	if err != nil {
		h.fail(c, completionError(turnError(ctx, err, aborted), reply))
		return
	}
	m := completionMessage{Role: "assistant", Reasoning: thinking.String()}
	said := strings.TrimSuffix(reply.FullResponse, reply.Refusal)
	if said != "" || len(calls) == 0 && reply.Refusal == "" {
		m.Content = &said
	}
	if reply.Refusal != "" {
		m.Refusal = &reply.Refusal
	}
	for _, call := range calls {
		m.ToolCalls = append(m.ToolCalls, completionCallOf(call))
	}
	body, err := encode(completion{
		ID: completionID + ask.Turn, Object: "chat.completion", Created: time.Now().Unix(), Model: ask.Model,
		Choices: []completionChoice{{Message: m, FinishReason: finishReason(reply, calls)}}, Usage: completionUsageOf(reply.Usage),
	})
	if err != nil {
		h.fail(c, err)
		return
	}
	h.writeJSON(c, http.StatusOK, body)
}

func completionCallOf(call provider.ToolCall) completionCall {
	return completionCall{ID: call.ID, Type: "function", Function: completionFunction{call.Name, call.Args}}
}

// finishReason says why the answer ends: for calls only if they are the caller's to make. A refusal in the model's words is an
// answer, as at OpenAI, whose clients take the other reason for a failure.
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
