package provider

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// OpenAIConfig describes a model behind OpenAI's chat completions, of OpenAI itself or of a server that speaks as it
// does: vLLM, Ollama, DeepSeek and many more.
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
	maxTokens int
	newLimit  bool // the server wants max_completion_tokens
	official  bool // the server is OpenAI's own
}

var _ Model = (*OpenAI)(nil)

// NewOpenAI returns the model. What is wrong with its configuration shows in every answer. No variable of the
// environment is read.
func NewOpenAI(cfg OpenAIConfig) *OpenAI {
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://api.openai.com/v1"
	}
	m := &OpenAI{maxTokens: cfg.MaxTokens, caller: caller{
		model: cfg.Name, key: cfg.APIKey, timeout: cfg.Timeout, idle: cfg.Idle, limit: cfg.MaxBytes,
		retry: cfg.Retry, http: cfg.HTTPClient, log: cfg.Log,
	}}
	m.init(cfg.BaseURL, "chat/completions")
	m.official, m.newLimit = hosted(cfg.BaseURL)
	if cfg.APIKey != "" {
		m.header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	return m
}

// hosted tells where a server is. OpenAI's own models refuse max_tokens (the reasoning ones) or have deprecated it,
// and Azure serves the same models; most other servers know nothing but max_tokens, and ignore or refuse
// max_completion_tokens. An ignored bound is the worst of these, so only where max_completion_tokens is known it is
// sent.
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
	body, err := m.body(r)
	if err != nil {
		return newAnswer(emit, 0).partial(), m.unsupported(err)
	}
	return m.generate(ctx, body, emit, func(a *answer) eventReader { return openAIStream{m, a} })
}
