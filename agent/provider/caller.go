package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/ssereader"
)

// Causes of contexts that this package cancels.
var (
	errSlow   = errors.New("the answer took too long")
	errSilent = errors.New("the provider stopped sending")
)

// vendor is one format of requests and answers.
type vendor interface {
	// body translates a request.
	body(Request) ([]byte, error)

	// reader returns a function that adds an event of one stream to an answer. io.EOF means that no further events
	// follow.
	reader(*answer) func(ssereader.Event) error
}

// caller is the common part of all providers: it requests one answer, in one or more attempts.
type caller struct {
	cfg     Config // with defaults; APIKey must never be shown
	vendor  vendor
	url     string
	header  http.Header
	invalid error // the configuration error; nil: none
}

// newCaller returns a caller for a vendor. path is the path of requests below the base URL.
func newCaller(cfg Config, v vendor, baseURL, path string) caller {
	c := caller{cfg: cfg.withDefaults(), vendor: v, header: http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"farhand"},
	}}
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		c.invalid = errors.New("the base URL is not an http or https URL")
		return c
	}
	c.url = u.JoinPath(path).String()
	return c
}

func (c *caller) Name() string { return c.cfg.Name }

// Generate implements Model. Each attempt has its own reader.
func (c *caller) Generate(parent context.Context, r Request, emit func(Delta)) (Answer, error) {
	nothing := Answer{Message: Message{Role: RoleAssistant}}
	body, err := c.vendor.body(r)
	if err != nil {
		return nothing, c.unsupported(err)
	}
	if c.invalid != nil {
		return nothing, &Error{
			Kind: KindFailure, Cause: c.invalid,
			Message: fmt.Sprintf("The configuration of the model %q is invalid. Ask the operator.", c.cfg.Name),
		}
	}
	ctx, cancel := context.WithTimeoutCause(parent, c.cfg.Timeout, errSlow)
	defer cancel()
	for attempt := 1; ; attempt++ {
		a := newAnswer(emit, c.cfg.MaxBytes, r.Room)
		err := c.attempt(ctx, body, a, c.vendor.reader(a))
		if err == nil {
			return a.whole(), nil
		}
		if parent.Err() != nil {
			return a.partial(), parent.Err()
		}
		f := c.classify(err, a.said)
		wait, again := c.cfg.Retry.pause(ctx, attempt, f)
		c.note(ctx, attempt, f.err, again, wait)
		switch {
		case again && c.cfg.Retry.Wait(ctx, wait) == nil: // the next attempt
		case parent.Err() != nil:
			return a.partial(), parent.Err()
		default:
			return a.partial(), f.err
		}
	}
}

// note logs a failure. A provider may quote the request when it rejects it, so that text is logged at level debug only.
func (c *caller) note(ctx context.Context, attempt int, e *Error, again bool, wait time.Duration) {
	attributes := []any{"model", c.cfg.Name, "attempt", attempt, "kind", e.Kind, "status", e.Status, "again", again,
		"wait", wait}
	if e.Kind != KindRequest || c.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		attributes = append(attributes, "error", e)
	}
	c.cfg.Log.WarnContext(ctx, "model request failed", attributes...)
}

// attempt makes one request. If the request was cancelled, the error is the cause.
func (c *caller) attempt(ctx context.Context, body []byte, a *answer, read func(ssereader.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := c.ask(ctx, body, a, read, func() { cancel(errSilent) })
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func readEvents(events *ssereader.Reader, read func(ssereader.Event) error) error {
	for {
		e, err := events.Next()
		if err != nil {
			return err
		}
		if err := read(e); err != nil {
			return err
		}
	}
}

func (c *caller) classify(err error, said bool) *failure {
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok:
	case errors.Is(err, errSlow):
		const slow = "The answer of %q took longer than %v. Ask for less, or try again later."
		f = c.failed(false, err, slow, c.cfg.Name, c.cfg.Timeout)
	case errors.Is(err, errSilent):
		f = c.failed(true, err, "%q sent nothing for %v. Try again later.", c.cfg.Name, c.cfg.Idle)
	case isTooLong(err):
		message := fmt.Sprintf("The answer of %q is too long.", c.cfg.Name)
		f = &failure{err: &Error{Kind: KindBroken, Message: message, Cause: err}}
	case errors.Is(err, errNoRoom):
		message := fmt.Sprintf("There is no room for the long answer of %q now. Try again later.", c.cfg.Name)
		f = &failure{err: &Error{Kind: KindLimit, Message: message, Cause: err}}
	case errors.Is(err, errNonsense):
		f = c.failed(true, err, "The provider of %q sent an invalid answer. Try again later.",
			c.cfg.Name)
	case errors.Is(err, errCutOff):
		f = c.failed(true, err, "The answer of %q is incomplete. Try again.", c.cfg.Name)
	default:
		f = c.failed(true, err, "The connection to the provider of %q failed. Try again later.", c.cfg.Name)
	}
	if said {
		broken := *f.err
		broken.Kind = KindBroken
		f = &failure{err: &broken}
	}
	return f
}

func isTooLong(err error) bool {
	return errors.Is(err, errTooLong) || errors.Is(err, ssereader.ErrTooLong)
}

func (c *caller) failed(passing bool, cause error, format string, args ...any) *failure {
	cause = redacted{text: c.presentable(cause.Error()), err: cause}
	e := &Error{Kind: KindFailure, Message: fmt.Sprintf(format, args...), Cause: cause}
	return &failure{err: e, passing: passing}
}

// redacted is an error in a form that can be shown. The original may contain long text from a server.
type redacted struct {
	text string
	err  error
}

func (t redacted) Error() string { return t.text }
func (t redacted) Unwrap() error { return t.err }

// Retry is the retry policy of requests to a model. The zero value is the default policy.
//
// A request is retried only while nothing of its answer was emitted, and only after temporary failures: the statuses
// 408, 409, 429 and 5xx, a connection that fails or breaks, or silence. Waits double from Base to Max. Each is reduced
// by up to half at random, so that requests that failed together are not retried together. If the server asks for a
// longer wait (Retry-After, retry-after-ms), that is used.
type Retry struct {
	Attempts  int           // attempts in total; default 4
	Base      time.Duration // the first wait; default 500 ms
	Max       time.Duration // the longest wait without a server's advice; default 8 s
	MaxAdvice time.Duration // if a server asks for a longer wait, the request fails immediately; default 20 s

	// Wait returns after d, or with the cause of ctx when ctx ends. Default: a timer. Tests replace it.
	Wait func(ctx context.Context, d time.Duration) error
}

func (r Retry) withDefaults() Retry {
	r.Attempts = cmp.Or(max(r.Attempts, 0), 4)
	r.Base = cmp.Or(max(r.Base, 0), 500*time.Millisecond)
	r.Max = cmp.Or(max(r.Max, 0), 8*time.Second)
	r.MaxAdvice = cmp.Or(max(r.MaxAdvice, 0), 20*time.Second)
	if r.Wait == nil {
		r.Wait = pause.For
	}
	return r
}

// pause returns the wait after attempt number attempt, counted from 1, and whether to retry. If the wait would exceed
// ctx's deadline there is no retry, because the current error is more useful than a timeout.
func (r Retry) pause(ctx context.Context, attempt int, f *failure) (time.Duration, bool) {
	advice := f.err.RetryAfter
	if !f.passing || attempt >= r.Attempts || advice > r.MaxAdvice {
		return 0, false
	}
	d := r.Max
	if shift := attempt - 1; shift < 30 && r.Base < r.Max>>shift {
		d = r.Base << shift
	}
	d = max(d-rand.N(d/2+1), advice)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return 0, false
	}
	return d, true
}

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
	c.Timeout = cmp.Or(max(c.Timeout, 0), 10*time.Minute)
	c.Idle = cmp.Or(max(c.Idle, 0), time.Minute)
	c.MaxBytes = cmp.Or(max(c.MaxBytes, 0), 4<<20)
	c.Retry = c.Retry.withDefaults()
	client := http.Client{Transport: pooled()}
	if c.HTTPClient != nil {
		client = *c.HTTPClient
	}
	// A redirect would send the key to any host that the server names.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTPClient = &client
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

func isSet(set *bool, otherwise bool) bool {
	if set != nil {
		return *set
	}
	return otherwise
}

const (
	maxIdle   = 256      // idle connections to a provider that are kept
	maxHeader = 64 << 10 // bytes of the header of an answer, which stays in memory as long as the answer is read
)

// pooled returns a copy of the default transport that keeps maxIdle idle connections per host, because the requests of
// many turns go to one host. The default keeps two. It also bounds the headers of answers, of which the default allows
// 10 MiB. It speaks HTTP/1.1 only: over HTTP/2 a provider fills 4 MiB of each answer that is not read yet, which no
// room was asked for, and has the pod answer pings and settings, also without a request. A replaced
// http.DefaultTransport is used unchanged.
func pooled() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxResponseHeaderBytes = 0, maxIdle, maxHeader
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
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
// request is rejected and the error names the option. No option is ignored. The JSON is that of chat completions.
type Options struct {
	Parallel         *bool             `json:"parallel_tool_calls,omitempty"` // several calls in one answer
	Format           *Format           `json:"-"`
	TopP             *float64          `json:"top_p,omitempty"`
	PresencePenalty  *float64          `json:"presence_penalty,omitempty"`
	FrequencyPenalty *float64          `json:"frequency_penalty,omitempty"`
	Seed             *int64            `json:"seed,omitempty"`
	LogitBias        map[string]int64  `json:"logit_bias,omitzero"`
	Effort           string            `json:"reasoning_effort,omitempty"` // how much a model reasons
	Verbosity        string            `json:"verbosity,omitempty"`
	ServiceTier      string            `json:"service_tier,omitempty"`
	User             string            `json:"user,omitempty"` // the end user, for the vendor's records
	SafetyIdentifier string            `json:"safety_identifier,omitempty"`
	CacheKey         string            `json:"prompt_cache_key,omitempty"`
	Metadata         map[string]string `json:"metadata,omitzero"`
}

// Format is the format of an answer that must be JSON.
type Format struct {
	Name        string          `json:"name"`                  // of the schema
	Description string          `json:"description,omitempty"` // of the schema
	Schema      json.RawMessage `json:"schema"`                // nil: any JSON object
	Strict      *bool           `json:"strict,omitempty"`
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
		return fmt.Sprintf("%q is not supported by this provider", u.param)
	}
	return fmt.Sprintf("%q %s", u.param, u.why)
}
