package provider

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/farhand/farhand/internal/ssereader"
)

// Anthropic is a model behind Anthropic's Messages API, version 2023-06-01. All of Anthropic's models and all
// compatible servers support that version, and it has a temperature.
type Anthropic struct {
	caller
	images bool // the model sees images that tools return
}

var _ Model = (*Anthropic)(nil)

// NewAnthropic returns the model. Configuration errors are returned by Generate. No environment variable is read.
func NewAnthropic(cfg Config) *Anthropic {
	cfg.MaxTokens = cmp.Or(max(cfg.MaxTokens, 0), 8192)
	if cfg.ThinkingTokens > 0 {
		cfg.ThinkingTokens = max(cfg.ThinkingTokens, 1024)
	}
	m := &Anthropic{images: isSet(cfg.Images, cfg.BaseURL == "")}
	base := strings.TrimSuffix(cmp.Or(cfg.BaseURL, "https://api.anthropic.com"), "/")
	m.caller = newCaller(cfg, m, strings.TrimSuffix(base, "/v1"), "v1/messages")
	m.header.Set("Anthropic-Version", "2023-06-01")
	if cfg.APIKey != "" {
		m.header.Set("X-Api-Key", cfg.APIKey)
	}
	return m
}

// reader implements vendor.
// Vendor returns the name of the vendor by the semantic conventions of GenAI.
func (m *Anthropic) Vendor() string { return "anthropic" }

func (m *Anthropic) reader(a *answer) func(ssereader.Event) error {
	return (&anthropicStream{m: m, a: a, open: map[int64]*block{}}).read
}

// anthropicBody is the body of a Messages API request. Its fields are defined in the vendor's reference.
type anthropicBody struct {
	Model        string             `json:"model"`
	MaxTokens    int                `json:"max_tokens"`
	System       []anthropicBlock   `json:"system,omitempty"`
	Messages     []anthropicMessage `json:"messages"`
	Stream       bool               `json:"stream"`
	Tools        []anthropicTool    `json:"tools,omitempty"`
	ToolChoice   *anthropicChoice   `json:"tool_choice,omitempty"`
	Thinking     *anthropicThinking `json:"thinking,omitempty"`
	Temperature  *float64           `json:"temperature,omitempty"`
	TopP         *float64           `json:"top_p,omitempty"`
	Stop         []string           `json:"stop_sequences,omitzero"`
	OutputConfig anthropicOutput    `json:"output_config,omitzero"`
	Metadata     map[string]string  `json:"metadata,omitempty"`
}

type anthropicMessage struct {
	Role    Role             `json:"role"`
	Content []anthropicBlock `json:"content"`
}

// anthropicBlock is a block of any type.
type anthropicBlock struct {
	Type      string           `json:"type"`
	Text      string           `json:"text,omitempty"`
	Source    *anthropicSource `json:"source,omitempty"`    // image
	Thinking  *string          `json:"thinking,omitempty"`  // thinking
	Signature string           `json:"signature,omitempty"` // thinking
	Data      string           `json:"data,omitempty"`      // redacted_thinking
	ID        string           `json:"id,omitempty"`        // tool_use
	Name      string           `json:"name,omitempty"`      // tool_use
	Input     json.RawMessage  `json:"input,omitempty"`     // tool_use
	ToolUseID string           `json:"tool_use_id,omitempty"`
	Content   []anthropicBlock `json:"content,omitempty"`  // tool_result
	IsError   bool             `json:"is_error,omitempty"` // tool_result
}

type anthropicSource struct {
	Type      string  `json:"type"`
	URL       string  `json:"url,omitempty"`
	MediaType *string `json:"media_type,omitempty"`
	Data      *string `json:"data,omitempty"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Strict      *bool           `json:"strict,omitempty"`
}

type anthropicChoice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel *bool  `json:"disable_parallel_tool_use,omitempty"`
}

type anthropicThinking struct {
	Type    string `json:"type"`
	Budget  int    `json:"budget_tokens,omitempty"`
	Display string `json:"display,omitempty"`
}

type anthropicOutput struct {
	Effort string           `json:"effort,omitempty"`
	Format *anthropicFormat `json:"format,omitempty"`
}

type anthropicFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

// anthropicEvent is one event of a stream of Anthropic's Messages API.
type anthropicEvent struct {
	Type    lenientString `json:"type"`
	Index   lenientInt    `json:"index"`
	Message struct {
		Usage anthropicUsage `json:"usage"`
	} `json:"message"`
	ContentBlock anthropicPiece `json:"content_block"` // the start of a block
	Delta        anthropicPiece `json:"delta"`
	Usage        anthropicUsage `json:"usage"`
}

type anthropicUsage struct {
	Input         lenientInt `json:"input_tokens"`
	CacheRead     lenientInt `json:"cache_read_input_tokens"`
	CacheCreation lenientInt `json:"cache_creation_input_tokens"`
	Output        lenientInt `json:"output_tokens"`
}

// anthropicPiece is a piece of a block of any type.
type anthropicPiece struct {
	Type        lenientString   `json:"type"`
	Text        lenientString   `json:"text"`
	Thinking    lenientString   `json:"thinking"`
	Signature   lenientString   `json:"signature"`
	Data        lenientString   `json:"data"`
	ID          lenientString   `json:"id"`
	Name        lenientString   `json:"name"`
	Input       json.RawMessage `json:"input"`
	PartialJSON lenientString   `json:"partial_json"`
	StopReason  lenientString   `json:"stop_reason"`
}

// anthropicStream builds an answer from the events of a stream.
type anthropicStream struct {
	m    *Anthropic
	a    *answer
	open map[int64]*block // by index; the size limit of the answer bounds their number
}

type block struct {
	thought *thought
	call    *call
	input   json.RawMessage // of the call, if it arrived in one piece
}

// read is the reader. An answer is complete when its stop reason has arrived. Only closing events follow.
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

// count stores the token counts of an event. Counts are cumulative. The second event may omit the input.
func (s *anthropicStream) count(u anthropicUsage) {
	if sum := u.Input + u.CacheRead + u.CacheCreation; sum > 0 {
		s.a.usage.Input, s.a.usage.Cached = int(sum), int(u.CacheRead)
	}
	if u.Output > 0 {
		s.a.usage.Output = int(u.Output)
	}
}

func (s *anthropicStream) begin(index int64, start anthropicPiece) error {
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
			err = s.a.grow(len(start.Signature))
		}
		if err == nil {
			err = s.a.addThinking(bl.thought, string(start.Thinking))
		}
	case "redacted_thinking":
		if bl.thought, err = s.a.newThought(); err == nil {
			bl.thought.redacted = string(start.Data)
			err = s.a.grow(len(start.Data))
		}
	case "tool_use":
		bl.input = start.Input
		if bl.call, err = s.a.newCall(string(start.ID), string(start.Name)); err == nil {
			err = s.a.grow(len(bl.input))
		}
	default: // server tools, which the gateway does not request
		delete(s.open, index)
	}
	return err
}

func (s *anthropicStream) goOn(index int64, d anthropicPiece) error {
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

// end closes a block. Some servers send the input of a call in one piece, with its start.
func (s *anthropicStream) end(index int64) error {
	bl := s.open[index]
	delete(s.open, index)
	if bl == nil {
		return nil
	}
	s.a.size -= len(bl.input) // counted since the start
	if bl.call == nil || bl.call.args.Len() > 0 || len(bl.input) == 0 {
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
