package provider

import (
	"cmp"
	"strings"
)

// Anthropic is a model behind Anthropic's messages, in the API's version 2023-06-01: that one all of its models and all
// compatible servers speak, and it has a temperature.
type Anthropic struct {
	caller
	images bool // the model is shown those that tools return
}

var _ Model = (*Anthropic)(nil)

// NewAnthropic returns the model. What is wrong with its configuration shows in every answer. No variable of the
// environment is read.
func NewAnthropic(cfg Config) *Anthropic {
	orDefault(&cfg.MaxTokens, 8192)
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
func (m *Anthropic) reader(a *answer) eventReader {
	return &anthropicStream{m: m, a: a, open: map[int64]*block{}}
}
