package provider

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
)

// OpenAIConfig describes a model behind OpenAI's chat completions, of OpenAI itself or of a server that speaks as it does:
// vLLM, Ollama, DeepSeek and many more.
type OpenAIConfig struct {
	Name      string        // of the model, as its server and our callers call it; required
	BaseURL   string        // up to, and without, /chat/completions; default https://api.openai.com/v1
	APIKey    string        // empty: none is sent, as local servers need none
	MaxTokens int           // of an answer whose request sets none; default: the server's
	Timeout   time.Duration // of an answer, all attempts and waits included; default 10 min
	Idle      time.Duration // longest silence of the server before and within an answer; default 60 s
	MaxBytes  int           // of an answer: text, thinking and arguments together; default 4 MiB
	Retry     Retry         // default: as its zero value says

	HTTPClient *http.Client // default: one that keeps connections for many turns; redirects are never followed
	Log        *slog.Logger // default: discard
}

// OpenAI is a model behind OpenAI's chat completions.
type OpenAI struct {
	caller
	chat      openai.ChatCompletionService
	maxTokens int
	newLimit  bool // the server wants max_completion_tokens
	official  bool // the server is OpenAI's own
}

var _ Model = (*OpenAI)(nil)

// NewOpenAI returns the model. What is wrong with its configuration shows in every answer. No variable of the environment
// is read.
func NewOpenAI(cfg OpenAIConfig) *OpenAI {
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://api.openai.com/v1"
	}
	m := &OpenAI{maxTokens: cfg.MaxTokens, caller: caller{
		model: cfg.Name, key: cfg.APIKey, timeout: cfg.Timeout, idle: cfg.Idle, limit: cfg.MaxBytes, retry: cfg.Retry,
		http: cfg.HTTPClient, log: cfg.Log,
	}}
	m.init(cfg.BaseURL)
	m.official, m.newLimit = hosted(cfg.BaseURL)
	options := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL), option.WithHTTPClient(m.http), option.WithMaxRetries(0),
	}
	if cfg.APIKey != "" {
		options = append(options, option.WithAPIKey(cfg.APIKey))
	}
	m.chat = openai.NewChatCompletionService(options...) // unlike a Client, it does not look at the environment
	return m
}

// hosted tells where a server is. OpenAI's own models refuse max_tokens (the reasoning ones) or have deprecated it, and
// Azure serves the same models; most other servers know nothing but max_tokens, and ignore or refuse
// max_completion_tokens. An ignored bound is the worst of these, so only where max_completion_tokens is known it is sent.
func hosted(baseURL string) (official, newLimit bool) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return false, false
	}
	host := u.Hostname()
	official = host == "api.openai.com" || strings.HasSuffix(host, ".api.openai.com") // regions have hosts of their own
	return official, official || strings.HasSuffix(host, ".openai.azure.com")
}

// Name implements Model.
func (m *OpenAI) Name() string { return m.model }

// Generate implements Model.
func (m *OpenAI) Generate(ctx context.Context, r Request, emit func(Delta)) (Answer, error) {
	params, err := m.params(r)
	if err != nil {
		return newAnswer(emit, 0).partial(), m.unsupported(err)
	}
	return m.generate(ctx, emit, func(ctx context.Context, w *wire, a *answer) error {
		stream := m.chat.NewStreaming(ctx, params, option.WithMiddleware(w.do))
		defer func() { _ = stream.Close() }()
		return m.read(stream, a)
	})
}

// read reads a stream to its end. An answer is whole as soon as its finish reason is there: some servers leave out the
// [DONE] behind it, and what is lost with a connection that breaks later is the usage.
func (m *OpenAI) read(stream *ssestream.Stream[openai.ChatCompletionChunk], a *answer) error {
	for stream.Next() {
		if err := m.readChunk(stream.Current(), a); err != nil {
			return err
		}
	}
	err := stream.Err()
	if reported, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return m.reportedIn(reported.Event.Data)
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

func (c *caller) reportedIn(event []byte) error {
	status, text := reported(event)
	return c.refused(status, text, 0)
}

// isJSON reports whether an error is one of decoding JSON.
func isJSON(err error) bool {
	_, syntax := errors.AsType[*json.SyntaxError](err)
	_, kind := errors.AsType[*json.UnmarshalTypeError](err)
	return syntax || kind
}

func (m *OpenAI) readChunk(chunk openai.ChatCompletionChunk, a *answer) error {
	if u := chunk.Usage; u.PromptTokens > 0 || u.CompletionTokens > 0 {
		a.usage = Usage{Input: int(u.PromptTokens), Output: int(u.CompletionTokens)}
	}
	if len(chunk.Choices) == 0 || chunk.Choices[0].Index != 0 {
		return nil
	}
	choice := chunk.Choices[0]
	if err := readReasoning(choice.Delta, a); err != nil {
		return err
	}
	if err := a.addText(choice.Delta.Content); err != nil {
		return err
	}
	refusal := choice.Delta.Refusal
	if err := a.addRefusal(refusal); err != nil {
		return err
	}
	a.refused = a.refused || refusal != ""
	for _, c := range choice.Delta.ToolCalls {
		err := a.addCall(callDelta{
			index: c.Index, indexed: c.JSON.Index.Valid(), id: c.ID, name: c.Function.Name, args: c.Function.Arguments,
		})
		if err != nil {
			return err
		}
	}
	return m.readFinish(choice.FinishReason, a)
}

// readReasoning reads the extension of DeepSeek (reasoning_content) and of vLLM, OpenRouter and others (reasoning). Where
// both are sent they say the same. The name of the field is kept as the signature: it is what the server wants it back as.
func readReasoning(delta openai.ChatCompletionChunkChoiceDelta, a *answer) error {
	for _, field := range reasoningFields {
		var text string
		raw := delta.JSON.ExtraFields[field].Raw()
		if json.Unmarshal([]byte(raw), &text) != nil || text == "" {
			continue
		}
		if len(a.thoughts) == 0 {
			t, err := a.newThought()
			if err != nil {
				return err
			}
			t.signature.WriteString(field)
		}
		return a.addThinking(a.thoughts[0], text)
	}
	return nil
}

func (m *OpenAI) readFinish(reason string, a *answer) error {
	switch reason {
	case "":
	case "tool_calls", "function_call":
		a.stop = StopToolCalls
	case "length":
		a.stop = StopLength
	case "content_filter":
		a.stop = StopRefusal
	case "insufficient_system_resource", "error": // DeepSeek, OpenRouter: not an end, but the lack of one
		return m.refused(http.StatusInternalServerError, "the answer was given up: "+reason, 0)
	default:
		if a.stop = StopEnd; a.refused {
			a.stop = StopRefusal
		}
	}
	return nil
}
