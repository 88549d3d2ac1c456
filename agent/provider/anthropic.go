package provider

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"
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

	// ThinkingTokens lets the model think before it speaks, with this many tokens at most, which come on top of those
	// of the answer. The least is 1024. Default: it does not think.
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
			model: cfg.Name, key: cfg.APIKey, timeout: cfg.Timeout, idle: cfg.Idle, limit: cfg.MaxBytes,
			retry: cfg.Retry, http: cfg.HTTPClient, log: cfg.Log,
		},
	}
	m.init(strings.TrimSuffix(strings.TrimSuffix(cfg.BaseURL, "/"), "/v1"), "v1/messages")
	m.header.Set("Anthropic-Version", "2023-06-01")
	if cfg.APIKey != "" {
		m.header.Set("X-Api-Key", cfg.APIKey)
	}
	return m
}

// Name implements Model.
func (m *Anthropic) Name() string { return m.model }

// Generate implements Model.
func (m *Anthropic) Generate(ctx context.Context, r Request, emit func(Delta)) (Answer, error) {
	body, err := m.body(r)
	if err != nil {
		return newAnswer(emit, 0).partial(), m.unsupported(err)
	}
	return m.generate(ctx, body, emit, func(a *answer) eventReader {
		return &anthropicStream{m: m, a: a, open: map[int64]*block{}}
	})
}
