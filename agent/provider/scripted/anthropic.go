package scripted

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/farhand/farhand/agent/provider"
)

// anthropic is the format of Anthropic's Messages API.
type anthropic struct{}

func (anthropic) path() string { return "/v1/messages" }

func (anthropic) fault(status int, message string) string {
	kinds := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
		413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error",
	}
	kind, ok := kinds[status]
	if !ok {
		kind = "api_error"
	}
	return mustJSON(faultEvent(kind, message))
}

func faultEvent(kind, message string) object {
	return object{"type": "error", "error": object{"type": kind, "message": message}}
}

// sign returns the signature of a thought.
func sign(thought string) string {
	sum := sha256.Sum256([]byte("scripted " + thought))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (anthropic) speaker(p *player) speaker {
	s := &anthropicSpeaker{player: p, index: -1}
	s.send("message_start", object{"message": object{
		"id": fmt.Sprintf("msg_%d", p.asked.Number), "type": "message", "role": "assistant",
		"model": p.asked.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": p.usage.Input, "output_tokens": 1},
	}})
	s.ping()
	return s
}

type anthropicSpeaker struct {
	*player
	index   int    // of the last block
	open    string // type of the open block; empty: none
	thought string // of the open block
}

func (s *anthropicSpeaker) send(kind string, data object) {
	data["type"] = kind
	s.event(kind, data)
}

// block opens a block, unless an open block of its type may continue.
func (s *anthropicSpeaker) block(kind string, start object) {
	if s.open == kind {
		return
	}
	s.close()
	s.open = kind
	s.index++
	start["type"] = kind
	s.send("content_block_start", object{"index": s.index, "content_block": start})
}

func (s *anthropicSpeaker) delta(index int, kind, field, value string) {
	s.send("content_block_delta", object{"index": index, "delta": object{"type": kind, field: value}})
}

func (s *anthropicSpeaker) close() {
	if s.open == "" {
		return
	}
	if s.open == "thinking" {
		s.delta(s.index, "signature_delta", "signature", sign(s.thought))
		s.thought = ""
	}
	s.send("content_block_stop", object{"index": s.index})
	s.open = ""
}

func (s *anthropicSpeaker) text(text string) {
	s.block("text", object{"text": ""})
	s.delta(s.index, "text_delta", "text", text)
}

func (s *anthropicSpeaker) refusal(text string) {
	s.text(text)
	s.stop = provider.StopRefusal
}

func (s *anthropicSpeaker) thinking(text string) {
	s.block("thinking", object{"thinking": "", "signature": ""})
	s.thought += text
	s.delta(s.index, "thinking_delta", "thinking", text)
}

func (s *anthropicSpeaker) redacted(data string) {
	s.block("redacted_thinking", object{"data": data})
	s.close()
}

func (s *anthropicSpeaker) calls(calls []Call) {
	s.close()
	first := s.index + 1
	s.index += len(calls)
	for i, c := range calls {
		s.send("content_block_start", object{"index": first + i, "content_block": object{
			"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{},
		}})
	}
	interleave(calls, func(i int, piece string) { s.delta(first+i, "input_json_delta", "partial_json", piece) })
	for i := range calls {
		s.send("content_block_stop", object{"index": first + i})
	}
}

func (s *anthropicSpeaker) ping() { s.send("ping", object{}) }

func (s *anthropicSpeaker) fault(kind, message string) { s.event("error", faultEvent(kind, message)) }

func (s *anthropicSpeaker) garbage() {
	s.write("event: content_block_delta\ndata: {\"type\": \"content_block_delta\", \"index\": oops\n\n")
}

func (s *anthropicSpeaker) finish(reason provider.StopReason) {
	s.close()
	names := map[provider.StopReason]string{
		provider.StopEnd: "end_turn", provider.StopToolCalls: "tool_use", provider.StopLength: "max_tokens",
		provider.StopRefusal: "refusal",
	}
	s.send("message_delta", object{
		"delta": object{"stop_reason": names[reason], "stop_sequence": nil},
		"usage": object{"output_tokens": s.usage.Output},
	})
	s.send("message_stop", object{})
}
