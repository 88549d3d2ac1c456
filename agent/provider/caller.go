package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/farhand/farhand/internal/sse"
)

// maxIdle is how many connections to a provider are kept for the next requests.
const maxIdle = 256

// The causes of contexts that end here.
var (
	errSlow   = errors.New("the answer took too long")
	errSilent = errors.New("the provider fell silent")
)

// caller is what all providers share: one answer is asked for in one or more attempts.
type caller struct {
	model   string
	url     string
	header  http.Header
	key     string // never to be shown
	timeout time.Duration
	idle    time.Duration
	limit   int // bytes of an answer
	retry   Retry
	http    *http.Client
	log     *slog.Logger
	invalid error // what is wrong with the configuration; nil: nothing
}

// init fills the defaults. path is that of the requests, below the base URL.
func (c *caller) init(baseURL, path string) {
	orDefault(&c.timeout, 10*time.Minute)
	orDefault(&c.idle, time.Minute)
	orDefault(&c.limit, 4<<20)
	c.retry = c.retry.withDefaults()
	if c.http == nil {
		c.http = &http.Client{Transport: pooled()}
	}
	// A redirect would carry the key to wherever the server says.
	client := *c.http
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &client
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.header = http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"farhand"},
	}
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		c.invalid = errors.New("the base URL is not one of http or https")
		return
	}
	c.url = u.JoinPath(path).String()
}

// eventReader takes over what one event of a stream says. io.EOF means that nothing follows.
type eventReader interface {
	read(e sse.Event) error
}

// pooled returns the default transport with room for the connections of many turns at once, which go to one host; the
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

// generate asks until there is an answer, as Model.Generate promises. Each attempt has a reader of its own.
func (c *caller) generate(
	parent context.Context, body []byte, emit func(Delta), reader func(*answer) eventReader,
) (Answer, error) {
	if c.invalid != nil {
		return newAnswer(emit, 0).partial(), c.misconfigured()
	}
	ctx, cancel := context.WithTimeoutCause(parent, c.timeout, errSlow)
	defer cancel()
	for attempt := 1; ; attempt++ {
		a := newAnswer(emit, c.limit)
		err := c.attempt(ctx, body, a, reader(a))
		if err == nil {
			return a.whole(), nil
		}
		if parent.Err() != nil {
			return a.partial(), parent.Err()
		}
		f := c.judge(err, a.said)
		if !f.passing {
			c.note(ctx, attempt, f.err, "again", false)
			return a.partial(), f.err
		}
		d, again := c.retry.pause(ctx, attempt, f.err.RetryAfter)
		c.note(ctx, attempt, f.err, "again", again, "wait", d)
		if !again {
			return a.partial(), f.err
		}
		if err := c.retry.Wait(ctx, d); err != nil {
			if parent.Err() != nil {
				return a.partial(), parent.Err()
			}
			return a.partial(), f.err
		}
	}
}

// note leaves a line about a failure. Why a request is not taken the provider may say in words of the request, which
// are nobody's matter: they are for who looks closer.
func (c *caller) note(ctx context.Context, attempt int, e *Error, more ...any) {
	attributes := append([]any{"model", c.model, "attempt", attempt, "kind", e.Kind, "status", e.Status}, more...)
	if e.Kind != KindRequest || c.log.Enabled(ctx, slog.LevelDebug) {
		attributes = append(attributes, "error", e)
	}
	c.log.WarnContext(ctx, "a model did not answer", attributes...)
}

// attempt makes one request. The error of one that was given up is the reason for that.
func (c *caller) attempt(ctx context.Context, body []byte, a *answer, r eventReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWire(c, func() { cancel(errSilent) })
	defer w.stop()
	err := w.ask(ctx, body, func(events *sse.Reader) error { return a.ended(readEvents(events, r)) })
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// readEvents returns why a stream has ended, which is never nil.
func readEvents(events *sse.Reader, r eventReader) error {
	for {
		e, err := events.Next()
		if err != nil {
			return err
		}
		if err := r.read(e); err != nil {
			return err
		}
	}
}

// judge says what a failed attempt means.
func (c *caller) judge(err error, said bool) *failure {
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok:
	case errors.Is(err, errSlow):
		const slow = "The answer of %q took longer than %v. Ask for less, or try again later."
		f = c.failed(false, err, slow, c.model, c.timeout)
	case errors.Is(err, errSilent):
		f = c.failed(true, err, "%q said nothing for %v. Try again later.", c.model, c.idle)
	case isTooLong(err):
		message := fmt.Sprintf("The answer of %q is too long.", c.model)
		f = &failure{err: &Error{Kind: KindBroken, Message: message, Cause: err}}
	case errors.Is(err, errNonsense):
		f = c.failed(true, err, "The provider of %q answered in a way that makes no sense. Try again later.", c.model)
	case errors.Is(err, errCutOff):
		f = c.failed(true, err, "The answer of %q broke off. Try again.", c.model)
	default:
		f = c.failed(true, err, "The connection to the provider of %q failed. Try again later.", c.model)
	}
	if said {
		broken := *f.err
		broken.Kind = KindBroken
		f = &failure{err: &broken}
	}
	return f
}

func isTooLong(err error) bool {
	_, ok := errors.AsType[tooLong](err)
	return ok || errors.Is(err, sse.ErrTooLong)
}

func (c *caller) failed(passing bool, cause error, format string, args ...any) *failure {
	cause = tame{text: c.presentable(cause.Error()), err: cause}
	e := &Error{Kind: KindFailure, Message: fmt.Sprintf(format, args...), Cause: cause}
	return &failure{err: e, passing: passing}
}

// tame is an error as it may be shown: some hold what a server sent, as long as it is.
type tame struct {
	text string
	err  error
}

func (t tame) Error() string { return t.text }
func (t tame) Unwrap() error { return t.err }

func (c *caller) misconfigured() *Error {
	return &Error{
		Kind: KindFailure, Cause: c.invalid,
		Message: fmt.Sprintf("The model %q is configured wrongly. Ask the operator of this gateway.", c.model),
	}
}
