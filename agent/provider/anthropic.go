package provider

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"
)

// AnthropicConfig describes a model behind Anthropic's messages.
type AnthropicConfig struct {
	Name      string        // of the model, as its server and our callers call it; required
	BaseURL   string        // without /v1/messages; default https://api.anthropic.com
	APIKey    string        // empty: none is sent
	MaxTokens int           // of an answer whose request sets none; default 8192
	Timeout   time.Duration // of an answer, all attempts and waits included; default 10 min
	Idle      time.Duration // longest silence of the server before and within an answer; default 60 s
	MaxBytes  int           // of an answer: text, thinking and arguments together; default 4 MiB
	Retry     Retry         // default: as its zero value says

	// ThinkingTokens lets the model think before it speaks, with this many tokens at most, which come on top of those of
	// the answer. The least is 1024. Default: it does not think.
	ThinkingTokens int

	// AdaptiveThinking lets the model decide itself how much it thinks, within the tokens of the answer. Models from
	// Claude Opus 4.7 on know no other way of thinking, and refuse ThinkingTokens.
	AdaptiveThinking bool

	HTTPClient *http.Client // default: one that keeps connections for many turns; redirects are never followed
	Log        *slog.Logger // default: discard
}

// Anthropic is a model behind Anthropic's messages, in the API's version 2023-06-01: that one all of its models and all
// compatible servers speak, and it has a temperature.
type Anthropic struct {
	caller
	messages  anthropic.MessageService
	maxTokens int
	thinking  int
	adaptive  bool
}

var _ Model = (*Anthropic)(nil)

// NewAnthropic returns the model. What is wrong with its configuration shows in every answer. No variable of the
// environment is read.
func NewAnthropic(cfg AnthropicConfig) *Anthropic {
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://api.anthropic.com"
	}
	orDefault(&cfg.MaxTokens, 8192)
	if cfg.ThinkingTokens > 0 {
		cfg.ThinkingTokens = max(cfg.ThinkingTokens, 1024)
	}
	m := &Anthropic{
		maxTokens: cfg.MaxTokens, thinking: cfg.ThinkingTokens, adaptive: cfg.AdaptiveThinking, caller: caller{
			model: cfg.Name, key: cfg.APIKey, timeout: cfg.Timeout, idle: cfg.Idle, limit: cfg.MaxBytes, retry: cfg.Retry,
			http: cfg.HTTPClient, log: cfg.Log,
		},
	}
	m.init(cfg.BaseURL)
	base := strings.TrimSuffix(strings.TrimSuffix(cfg.BaseURL, "/"), "/v1") // the SDK appends v1/messages
	options := []option.RequestOption{
		option.WithBaseURL(base), option.WithHTTPClient(m.http), option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(), // what is said is nobody's matter but the vendor's
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	m.messages = anthropic.NewMessageService(options...) // unlike a Client, it does not look at the environment
	return m
}

// Name implements Model.
func (m *Anthropic) Name() string { return m.model }

// Generate implements Model.
func (m *Anthropic) Generate(ctx context.Context, r Request, emit func(Delta)) (Answer, error) {
	params, err := m.params(r)
	if err != nil {
		return newAnswer(emit, 0).partial(), m.unsupported(err)
	}
	return m.generate(ctx, emit, func(ctx context.Context, w *wire, a *answer) error {
		stream := m.messages.NewStreaming(ctx, params, option.WithMiddleware(w.do))
		defer func() { _ = stream.Close() }()
		return m.read(stream, a)
	})
}

// read reads a stream to its end. An answer is whole as soon as its stop reason is there; behind it comes nothing but a
// farewell.
func (m *Anthropic) read(stream *ssestream.Stream[anthropic.MessageStreamEventUnion], a *answer) error {
	b := blocks{a: a, open: map[int64]*block{}}
	for stream.Next() {
		if err := b.read(stream.Current()); err != nil {
			return err
		}
	}
	err := stream.Err()
	if reported, ok := errors.AsType[*anthropic.Error](err); ok {
		return m.reportedIn([]byte(reported.RawJSON()))
	}
	switch {
	case isTooLong(err):
		return err
	case a.stop != "":
		return nil
	case isJSON(err):
		return errNonsense
	case err != nil:
		return err
	}
	return errCutOff
}

// blocks puts an answer together from the events of a stream.
type blocks struct {
	a    *answer
	open map[int64]*block // by index; one more than an answer may have is refused by its size
}

// block is a part of an answer: a thought, a call, or (with neither) text.
type block struct {
	thought *thought
	call    *call
	input   json.RawMessage // of the call, if it came at once
}

func (b *blocks) read(e anthropic.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		b.count(e.Message.Usage.InputTokens, e.Message.Usage.CacheReadInputTokens, e.Message.Usage.CacheCreationInputTokens,
			e.Message.Usage.OutputTokens)
	case "message_delta":
		b.count(e.Usage.InputTokens, e.Usage.CacheReadInputTokens, e.Usage.CacheCreationInputTokens, e.Usage.OutputTokens)
		if e.Delta.StopReason != "" {
			b.a.stop = stopOf(e.Delta.StopReason)
		}
	case "content_block_start":
		return b.begin(e.Index, e.ContentBlock)
	case "content_block_delta":
		return b.goOn(e.Index, e.Delta)
	case "content_block_stop":
		return b.end(e.Index)
	}
	return nil
}

// count takes over what an event counts. The counts are cumulative; the second event may leave the input out.
func (b *blocks) count(input, cacheRead, cacheWrite, output int64) {
	if sum := input + cacheRead + cacheWrite; sum > 0 {
		b.a.usage.Input = int(sum)
	}
	if output > 0 {
		b.a.usage.Output = int(output)
	}
}

func (b *blocks) begin(index int64, start anthropic.ContentBlockStartEventContentBlockUnion) error {
	bl := &block{}
	b.open[index] = bl
	var err error
	switch start.Type {
	case "text":
		if err = b.a.grow(callOverhead); err == nil {
			err = b.a.addText(start.Text)
		}
	case "thinking":
		if bl.thought, err = b.a.newThought(); err == nil {
			bl.thought.signature.WriteString(start.Signature)
			err = b.a.addThinking(bl.thought, start.Thinking)
		}
	case "redacted_thinking":
		if bl.thought, err = b.a.newThought(); err == nil {
			bl.thought.redacted = start.Data
			err = b.a.grow(len(start.Data))
		}
	case "tool_use":
		bl.input = json.RawMessage(start.JSON.Input.Raw())
		bl.call, err = b.a.newCall(start.ID, start.Name)
	default: // tools of the server, which nobody asked for
		delete(b.open, index)
	}
	return err
}

func (b *blocks) goOn(index int64, d anthropic.MessageStreamEventUnionDelta) error {
	bl := b.open[index]
	switch {
	case bl == nil:
		return nil
	case d.Type == "text_delta":
		return b.a.addText(d.Text)
	case d.Type == "thinking_delta" && bl.thought != nil:
		return b.a.addThinking(bl.thought, d.Thinking)
	case d.Type == "signature_delta" && bl.thought != nil:
		bl.thought.signature.WriteString(d.Signature)
		return b.a.grow(len(d.Signature))
	case d.Type == "input_json_delta" && bl.call != nil:
		return b.a.addArgs(bl.call, d.PartialJSON)
	}
	return nil
}

// end closes a block. The input of a call comes in pieces, after an empty object; from some servers it comes at once.
func (b *blocks) end(index int64) error {
	bl := b.open[index]
	delete(b.open, index)
	if bl == nil || bl.call == nil || bl.call.args.Len() > 0 || len(bl.input) == 0 {
		return nil
	}
	return b.a.addArgs(bl.call, string(bl.input))
}

func stopOf(r anthropic.StopReason) StopReason {
	switch r {
	case anthropic.StopReasonToolUse:
		return StopToolCalls
	case anthropic.StopReasonMaxTokens, anthropic.StopReasonModelContextWindowExceeded:
		return StopLength
	case anthropic.StopReasonRefusal:
		return StopRefusal
	}
	return StopEnd
}
