package provider

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/farhand/farhand/internal/ssereader"
)

// openAIChunk is one event of a stream of chat completions.
type openAIChunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []openAIChoice  `json:"choices"`
	Usage   struct {
		PromptTokens     lenientInt `json:"prompt_tokens"`
		CompletionTokens lenientInt `json:"completion_tokens"`
	} `json:"usage"`
}

type openAIChoice struct {
	Index        lenientInt    `json:"index"`
	Delta        openAIDelta   `json:"delta"`
	FinishReason lenientString `json:"finish_reason"`
}

type openAIDelta struct {
	Content   lenientString `json:"content"`
	Refusal   lenientString `json:"refusal"`
	ToolCalls []struct {
		Index    *lenientInt   `json:"index"`
		ID       lenientString `json:"id"`
		Function struct {
			Name      lenientString `json:"name"`
			Arguments lenientString `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`

	// The extensions of DeepSeek, and of vLLM, OpenRouter and others. Where both are sent they say the same.
	ReasoningContent json.RawMessage `json:"reasoning_content"`
	Reasoning        json.RawMessage `json:"reasoning"`
}

// reasoning returns the reasoning in a delta, and the name of its field; empty: there is none.
func (d openAIDelta) reasoning() (field, text string) {
	for i, raw := range []json.RawMessage{d.ReasoningContent, d.Reasoning} {
		if json.Unmarshal(raw, &text) == nil && text != "" {
			return reasoningFields[i], text
		}
	}
	return "", ""
}

// openAIStream puts an answer together from the events of a stream.
type openAIStream struct {
	m *OpenAI
	a *answer
}

// read implements eventReader. The answer is whole as soon as its finish reason is there: some servers leave out the
// [DONE] behind it, and what is lost with a connection that breaks later is the usage.
func (s openAIStream) read(e ssereader.Event) error {
	if bytes.HasPrefix(e.Data, []byte("[DONE]")) {
		return io.EOF
	}
	var chunk openAIChunk
	err := decode(e.Data, &chunk)
	if e.Name == "error" || len(chunk.Error) > 0 && string(chunk.Error) != "null" {
		return s.m.reportedIn(e.Data)
	}
	if err != nil {
		return err
	}
	if u := chunk.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		s.a.usage = Usage{Input: int(u.PromptTokens), Output: int(u.CompletionTokens)}
	}
	if len(chunk.Choices) == 0 || chunk.Choices[0].Index != 0 {
		return nil
	}
	return s.readChoice(chunk.Choices[0])
}

func (s openAIStream) readChoice(c openAIChoice) error {
	if err := s.readReasoning(c.Delta); err != nil {
		return err
	}
	if err := s.a.addText(string(c.Delta.Content)); err != nil {
		return err
	}
	refusal := string(c.Delta.Refusal)
	if err := s.a.addRefusal(refusal); err != nil {
		return err
	}
	s.a.refused = s.a.refused || refusal != ""
	for _, call := range c.Delta.ToolCalls {
		d := callDelta{id: string(call.ID), name: string(call.Function.Name), args: string(call.Function.Arguments)}
		if call.Index != nil {
			d.index, d.indexed = int64(*call.Index), true
		}
		if err := s.a.addCall(d); err != nil {
			return err
		}
	}
	return s.readFinish(string(c.FinishReason))
}

// readReasoning keeps the name of the field as the signature: it is what the server wants it back as.
func (s openAIStream) readReasoning(d openAIDelta) error {
	field, text := d.reasoning()
	if text == "" {
		return nil
	}
	if len(s.a.thoughts) == 0 {
		t, err := s.a.newThought()
		if err != nil {
			return err
		}
		t.signature.WriteString(field)
	}
	return s.a.addThinking(s.a.thoughts[0], text)
}

func (s openAIStream) readFinish(reason string) error {
	switch reason {
	case "":
	case "tool_calls", "function_call":
		s.a.stop = StopToolCalls
	case "length":
		s.a.stop = StopLength
	case "content_filter":
		s.a.stop = StopRefusal
	case "insufficient_system_resource", "error": // DeepSeek, OpenRouter: not an end, but the lack of one
		return s.m.refused(http.StatusInternalServerError, "the answer was given up: "+reason, 0)
	default:
		if s.a.stop = StopEnd; s.a.refused {
			s.a.stop = StopRefusal
		}
	}
	return nil
}
