package provider

import (
	"encoding/json"
	"fmt"
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

// Choice says whether a model is to call tools. The zero value leaves it to the model.
type Choice struct {
	Mode ChoiceMode
	Name string // with ChoiceTool
}

// ChoiceMode is what is asked of a model about tools.
type ChoiceMode string

// The modes.
const (
	ChoiceAuto     ChoiceMode = ""
	ChoiceNone     ChoiceMode = "none"     // no tool is called
	ChoiceRequired ChoiceMode = "required" // some tool is called
	ChoiceTool     ChoiceMode = "tool"     // the named tool is called
)

// Options are what a caller may ask of an answer beside what it is about. Zero fields ask for nothing. A model whose
// vendor does not know an option refuses the request and names it: none is ignored.
type Options struct {
	Parallel         *bool // several calls in one answer
	Format           *Format
	TopP             *float64
	PresencePenalty  *float64
	FrequencyPenalty *float64
	Seed             *int64
	LogitBias        map[string]int64
	Effort           string // how much a model reasons
	Verbosity        string
	ServiceTier      string
	User             string // for whom the vendor's records say the answer is
	SafetyIdentifier string
	CacheKey         string
	Metadata         map[string]string
}

// Format is that of an answer that must be JSON.
type Format struct {
	Name        string          // of the schema
	Description string          // of the schema
	Schema      json.RawMessage // nil: any JSON object
	Strict      *bool
}

// Part is a piece of what a user says: text, or an image.
type Part struct {
	Text  string `json:"text,omitempty"`
	Image *Image `json:"image,omitempty"`
}

// Image is one a model is shown. The gateway does not look at it: the vendor does.
type Image struct {
	URL    string `json:"url"` // http, https, or data: with a type of image
	Detail string `json:"detail,omitempty"`
}

// unoffered is why a request cannot be put to a model: an option its vendor does not know.
type unoffered struct{ param, why string }

func (u unoffered) Error() string {
	if u.why == "" {
		return fmt.Sprintf("%q is not offered by its provider", u.param)
	}
	return fmt.Sprintf("%q %s", u.param, u.why)
}
