package provider

import (
	"cmp"
	"net/url"
	"strings"
)

// OpenAI is a model behind OpenAI's chat completions, of OpenAI itself or of a server that speaks as it does: vLLM,
// Ollama, DeepSeek and many more.
type OpenAI struct {
	caller
	newLimit bool // the server wants max_completion_tokens
	official bool // the server is OpenAI's own
	images   bool // the model is shown those that tools return
}

var _ Model = (*OpenAI)(nil)

// NewOpenAI returns the model. What is wrong with its configuration shows in every answer. No variable of the
// environment is read.
func NewOpenAI(cfg Config) *OpenAI {
	base := cmp.Or(cfg.BaseURL, "https://api.openai.com/v1")
	m := &OpenAI{}
	m.caller = newCaller(cfg, m, base, "chat/completions")
	m.official, m.newLimit = hosted(base)
	m.images = isSet(cfg.Images, m.newLimit)
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

// reader implements vendor.
func (m *OpenAI) reader(a *answer) eventReader { return openAIStream{m, a} }
