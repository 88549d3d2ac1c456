package provider

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Config describes one model of OpenAI or Anthropic, or of a compatible server.
type Config struct {
	Name      string        // of the model, as its server and callers name it; required
	BaseURL   string        // without /chat/completions or /v1/messages; default: the vendor's own
	APIKey    string        // empty: no key is sent, because local servers need none
	MaxTokens int           // of an answer if the request sets none; default: the server's, for Anthropic 8192
	Timeout   time.Duration // of an answer, including all attempts and waits; default 10 min
	Idle      time.Duration // longest silence of the server before and within an answer; default 60 s
	MaxBytes  int           // of an answer: text, thinking and arguments together; default 4 MiB
	Retry     Retry         // default: the zero value of Retry

	// ThinkingTokens lets a model of Anthropic think before it answers, with at most this many tokens in addition to
	// those of the answer. Minimum: 1024. Default: no thinking.
	ThinkingTokens int

	// AdaptiveThinking lets a model of Anthropic decide how much to think, within the tokens of the answer. Models from
	// Claude Opus 4.7 on support only this mode, and reject ThinkingTokens.
	AdaptiveThinking bool

	// Images sets whether the model sees images that tools return. Default: true for OpenAI and Anthropic at the
	// vendors' own addresses, and for OpenAI at Azure's. Other servers may reject a whole request for one image.
	Images *bool

	HTTPClient *http.Client // default: keeps connections for many turns; redirects are never followed
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
	// A redirect would send the key to any host that the server names.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTPClient = &client
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// isSet returns the value of set, or otherwise if set is nil.
func isSet(set *bool, otherwise bool) bool {
	if set != nil {
		return *set
	}
	return otherwise
}

// maxIdle is how many idle connections to a provider are kept.
const maxIdle = 256

// pooled returns a copy of the default transport that keeps maxIdle idle connections per host, because the requests of
// many turns go to one host. The default keeps two. A replaced http.DefaultTransport is used unchanged.
func pooled() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, maxIdle
	return t
}

// Choice controls whether a model must call tools. The zero value leaves it to the model.
type Choice struct {
	Mode ChoiceMode
	Name string // with ChoiceTool
}

// ChoiceMode is the mode of a Choice.
type ChoiceMode string

// The modes.
const (
	ChoiceAuto     ChoiceMode = ""
	ChoiceNone     ChoiceMode = "none"     // no tool may be called
	ChoiceRequired ChoiceMode = "required" // some tool must be called
	ChoiceTool     ChoiceMode = "tool"     // the named tool must be called
)

// Options are optional settings of an answer. Zero fields are not sent. If a vendor does not know an option, the
// request is rejected and the error names the option. No option is ignored.
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
	User             string // the end user, for the vendor's records
	SafetyIdentifier string
	CacheKey         string
	Metadata         map[string]string
}

// Format is the format of an answer that must be JSON.
type Format struct {
	Name        string          // of the schema
	Description string          // of the schema
	Schema      json.RawMessage // nil: any JSON object
	Strict      *bool
}

// Part is a piece of a user's message: text, or an image.
type Part struct {
	Text  string `json:"text,omitempty"`
	Image *Image `json:"image,omitempty"`
}

// Image is an image for a model. The vendor reads it; the gateway does not.
type Image struct {
	URL    string `json:"url"` // http, https, or data: with a type of image
	Detail string `json:"detail,omitempty"`
}

// unoffered is the error of a request with an option that the model's vendor does not support.
type unoffered struct{ param, why string }

func (u unoffered) Error() string {
	if u.why == "" {
		return fmt.Sprintf("%q is not offered by its provider", u.param)
	}
	return fmt.Sprintf("%q %s", u.param, u.why)
}
