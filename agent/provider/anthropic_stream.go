package provider

import (
	"encoding/json"

	"github.com/farhand/farhand/internal/ssereader"
)

// anthropicEvent is one event of a stream of Anthropic's messages.
type anthropicEvent struct {
	Type    lenientString `json:"type"`
	Index   lenientInt    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	ContentBlock anthropicStart `json:"content_block"`
	Delta        anthropicDelta `json:"delta"`
	Usage        anthropicUsage `json:"usage"`
}

type anthropicUsage struct {
	Input         lenientInt `json:"input_tokens"`
	CacheRead     lenientInt `json:"cache_read_input_tokens"`
	CacheCreation lenientInt `json:"cache_creation_input_tokens"`
	Output        lenientInt `json:"output_tokens"`
}

// anthropicStart is a block as it begins.
type anthropicStart struct {
	Type      lenientString   `json:"type"`
	Text      lenientString   `json:"text"`
	Thinking  lenientString   `json:"thinking"`
	Signature lenientString   `json:"signature"`
	Data      lenientString   `json:"data"`
	ID        lenientString   `json:"id"`
	Name      lenientString   `json:"name"`
	Input     json.RawMessage `json:"input"`
}

type anthropicDelta struct {
	Type        lenientString `json:"type"`
	Text        lenientString `json:"text"`
	Thinking    lenientString `json:"thinking"`
	Signature   lenientString `json:"signature"`
	PartialJSON lenientString `json:"partial_json"`
	StopReason  lenientString `json:"stop_reason"`
}

// anthropicStream puts an answer together from the events of a stream.
type anthropicStream struct {
	m    *Anthropic
	a    *answer
	open map[int64]*block // by index; one more than an answer may have is refused by its size
}

// block is a part of an answer: a thought, a call, or (with neither) text.
type block struct {
	thought *thought
	call    *call
	input   json.RawMessage // of the call, if it came at once
}

// read implements eventReader. An answer is whole as soon as its stop reason is there; behind it comes nothing but a
// farewell.
func (s *anthropicStream) read(e ssereader.Event) error {
	switch {
	case e.Name == "error":
		return s.m.reportedIn(e.Data)
	case e.Name == "" || len(e.Data) == 0: // the vendor names all of its events
		return nil
	}
	var event anthropicEvent
	if err := decode(e.Data, &event); err != nil {
		return err
	}
	switch event.Type {
	case "message_start":
		s.count(event.Message.Usage)
	case "message_delta":
		s.count(event.Usage)
		if event.Delta.StopReason != "" {
			s.a.stop = stopOf(string(event.Delta.StopReason))
		}
	case "content_block_start":
		return s.begin(int64(event.Index), event.ContentBlock)
	case "content_block_delta":
		return s.goOn(int64(event.Index), event.Delta)
	case "content_block_stop":
		return s.end(int64(event.Index))
	}
	return nil
}

// count takes over what an event counts. The counts are cumulative; the second event may leave the input out.
func (s *anthropicStream) count(u anthropicUsage) {
	if sum := u.Input + u.CacheRead + u.CacheCreation; sum > 0 {
		s.a.usage.Input = int(sum)
	}
	if u.Output > 0 {
		s.a.usage.Output = int(u.Output)
	}
}

func (s *anthropicStream) begin(index int64, start anthropicStart) error {
	bl := &block{}
	s.open[index] = bl
	var err error
	switch start.Type {
	case "text":
		if err = s.a.grow(callOverhead); err == nil {
			err = s.a.addText(string(start.Text))
		}
	case "thinking":
		if bl.thought, err = s.a.newThought(); err == nil {
			bl.thought.signature.WriteString(string(start.Signature))
			err = s.a.addThinking(bl.thought, string(start.Thinking))
		}
	case "redacted_thinking":
		if bl.thought, err = s.a.newThought(); err == nil {
			bl.thought.redacted = string(start.Data)
			err = s.a.grow(len(start.Data))
		}
	case "tool_use":
		bl.input = start.Input
		bl.call, err = s.a.newCall(string(start.ID), string(start.Name))
	default: // tools of the server, which nobody asked for
		delete(s.open, index)
	}
	return err
}

func (s *anthropicStream) goOn(index int64, d anthropicDelta) error {
	bl := s.open[index]
	switch {
	case bl == nil:
		return nil
	case d.Type == "text_delta":
		return s.a.addText(string(d.Text))
	case d.Type == "thinking_delta" && bl.thought != nil:
		return s.a.addThinking(bl.thought, string(d.Thinking))
	case d.Type == "signature_delta" && bl.thought != nil:
		bl.thought.signature.WriteString(string(d.Signature))
		return s.a.grow(len(d.Signature))
	case d.Type == "input_json_delta" && bl.call != nil:
		return s.a.addArgs(bl.call, string(d.PartialJSON))
	}
	return nil
}

// end closes a block. The input of a call comes in pieces, after an empty object; from some servers it comes at once.
func (s *anthropicStream) end(index int64) error {
	bl := s.open[index]
	delete(s.open, index)
	if bl == nil || bl.call == nil || bl.call.args.Len() > 0 || len(bl.input) == 0 {
		return nil
	}
	return s.a.addArgs(bl.call, string(bl.input))
}

func stopOf(reason string) StopReason {
	switch reason {
	case "tool_use":
		return StopToolCalls
	case "max_tokens", "model_context_window_exceeded":
		return StopLength
	case "refusal":
		return StopRefusal
	}
	return StopEnd
}
