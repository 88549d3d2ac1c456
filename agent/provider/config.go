package provider

import (
	"log/slog"
	"net/http"
	"time"
)

// Config describes one model of OpenAI or Anthropic, or of a server that speaks as one of them does.
type Config struct {
	Name      string        // of the model, as its server and our callers call it; required
	BaseURL   string        // without /chat/completions or /v1/messages; default: the vendor's own
	APIKey    string        // empty: none is sent, as local servers need none
	MaxTokens int           // of an answer whose request sets none; default: the server's, with Anthropic 8192
	Timeout   time.Duration // of an answer, all attempts and waits included; default 10 min
	Idle      time.Duration // longest silence of the server before and within an answer; default 60 s
	MaxBytes  int           // of an answer: text, thinking and arguments together; default 4 MiB
	Retry     Retry         // default: as its zero value says

	// ThinkingTokens lets a model of Anthropic think before it speaks, with this many tokens at most, which come on top
	// of those of the answer. The least is 1024. Default: it does not think.
	ThinkingTokens int

	// AdaptiveThinking lets a model of Anthropic decide itself how much it thinks, within the tokens of the answer.
	// Models from Claude Opus 4.7 on know no other way of thinking, and refuse ThinkingTokens.
	AdaptiveThinking bool

	// Images says whether the model is shown images that tools return. Default: models of OpenAI and Anthropic are,
	// behind the vendors' own addresses and Azure's; a model of another server may refuse all of a request for one.
	Images *bool

	HTTPClient *http.Client // default: one that keeps connections for many turns; redirects are never followed
	Log        *slog.Logger // default: discard
}

// withDefaults returns the configuration with defaults filled in.
func (c Config) withDefaults() Config {
	orDefault(&c.Timeout, 10*time.Minute)
	orDefault(&c.Idle, time.Minute)
	orDefault(&c.MaxBytes, 4<<20)
	c.Retry = c.Retry.withDefaults()
	client := http.Client{Transport: pooled()}
	if c.HTTPClient != nil {
		client = *c.HTTPClient
	}
	// A redirect would carry the key to wherever the server says.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTPClient = &client
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// isSet returns what is set, or otherwise the default.
func isSet(set *bool, otherwise bool) bool {
	if set != nil {
		return *set
	}
	return otherwise
}

// maxIdle is how many connections to a provider are kept for the next requests.
const maxIdle = 256

// pooled returns the default transport, but it keeps the connections of many turns at once, which go to one host; the
// default keeps two. Where the default was replaced, that is used.
func pooled() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, maxIdle
	return t
}
