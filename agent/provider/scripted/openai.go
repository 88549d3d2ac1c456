package scripted

import (
	"encoding/json"
	"fmt"

	"github.com/farhand/farhand/agent/provider"
)

// openAI is the format of Chat Completions.
type openAI struct{}

func (openAI) path() string { return "/v1/chat/completions" }

func (openAI) fault(status int, message string) string {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	return mustJSON(map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil,
		"code": nil}})
}

func (openAI) speaker(p *player) speaker {
	s := &openAISpeaker{player: p}
	var options struct {
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	s.counts = json.Unmarshal(p.asked.Raw, &options) == nil && options.StreamOptions.IncludeUsage
	s.delta(object{"role": "assistant", "content": ""}, nil)
	return s
}

type object = map[string]any

type openAISpeaker struct {
	*player
	counts bool // token counts were requested
	index  int  // of the next call
}

func (s *openAISpeaker) chunk(choices []any, usage any) {
	s.event("", object{
		"id": fmt.Sprintf("chatcmpl-%d", s.asked.Number), "object": "chat.completion.chunk", "created": 0,
		"model":   s.asked.Model,
		"choices": choices, "usage": usage,
	})
}

func (s *openAISpeaker) delta(delta object, finish any) {
	s.chunk([]any{object{"index": 0, "delta": delta, "finish_reason": finish}}, nil)
}

func (s *openAISpeaker) text(text string)     { s.delta(object{"content": text}, nil) }
func (s *openAISpeaker) refusal(text string)  { s.delta(object{"refusal": text}, nil) }
func (s *openAISpeaker) thinking(text string) { s.delta(object{"reasoning_content": text}, nil) }
func (s *openAISpeaker) redacted(string)      {}

func (s *openAISpeaker) calls(calls []Call) {
	first := s.index
	s.index += len(calls)
	for i, c := range calls {
		s.delta(object{"tool_calls": []any{object{
			"index": first + i, "id": c.ID, "type": "function", "function": object{"name": c.Name, "arguments": ""},
		}}}, nil)
	}
	interleave(calls, func(i int, piece string) {
		s.delta(object{"tool_calls": []any{object{"index": first + i, "function": object{"arguments": piece}}}}, nil)
	})
}

func (s *openAISpeaker) ping() { s.write(": keep-alive\n\n") }

func (s *openAISpeaker) fault(kind, message string) {
	s.event("", object{"error": object{"message": message, "type": kind, "code": nil}})
}

func (s *openAISpeaker) garbage() { s.write("data: {\"choices\": [{\"delta\": {\"content\": oops\n\n") }

// finish sends the reason unchanged: provider.StopReason has OpenAI's values.
func (s *openAISpeaker) finish(reason provider.StopReason) {
	s.delta(object{}, reason)
	if s.counts {
		s.chunk([]any{}, object{
			"prompt_tokens": s.usage.Input, "completion_tokens": s.usage.Output,
			"total_tokens": s.usage.Input + s.usage.Output,
		})
	}
	s.write("data: [DONE]\n\n")
}
