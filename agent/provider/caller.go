package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/farhand/farhand/internal/ssereader"
)

// The causes of contexts that end here.
var (
	errSlow   = errors.New("the answer took too long")
	errSilent = errors.New("the provider fell silent")
)

// vendor is one format of requests and answers.
type vendor interface {
	// body translates a request.
	body(Request) ([]byte, error)

	// reader returns what reads one stream into an answer.
	reader(*answer) eventReader
}

// caller is what all providers share: one answer is asked for in one or more attempts.
type caller struct {
	cfg     Config // with defaults; APIKey is never to be shown
	vendor  vendor
	url     string
	header  http.Header
	invalid error // what is wrong with the configuration; nil: nothing
}

// newCaller returns what asks a vendor. path is that of the requests, below the base URL.
func newCaller(cfg Config, v vendor, baseURL, path string) caller {
	c := caller{cfg: cfg.withDefaults(), vendor: v, header: http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"farhand"},
	}}
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		c.invalid = errors.New("the base URL is not one of http or https")
		return c
	}
	c.url = u.JoinPath(path).String()
	return c
}

// Name implements Model.
func (c *caller) Name() string { return c.cfg.Name }

// eventReader takes over what one event of a stream says. io.EOF means that nothing follows.
type eventReader interface {
	read(e ssereader.Event) error
}

// Generate implements Model. Each attempt has a reader of its own.
func (c *caller) Generate(parent context.Context, r Request, emit func(Delta)) (Answer, error) {
	nothing := Answer{Message: Message{Role: RoleAssistant}}
	body, err := c.vendor.body(r)
	if err != nil {
		return nothing, c.unsupported(err)
	}
	if c.invalid != nil {
		return nothing, c.misconfigured()
	}
	ctx, cancel := context.WithTimeoutCause(parent, c.cfg.Timeout, errSlow)
	defer cancel()
	for attempt := 1; ; attempt++ {
		a := newAnswer(emit, c.cfg.MaxBytes)
		err := c.attempt(ctx, body, a, c.vendor.reader(a))
		if err == nil {
			return a.whole(), nil
		}
		if parent.Err() != nil {
			return a.partial(), parent.Err()
		}
		f := c.classify(err, a.said)
		if !f.passing {
			c.note(ctx, attempt, f.err, "again", false)
			return a.partial(), f.err
		}
		d, again := c.cfg.Retry.pause(ctx, attempt, f.err.RetryAfter)
		c.note(ctx, attempt, f.err, "again", again, "wait", d)
		if !again {
			return a.partial(), f.err
		}
		if err := c.cfg.Retry.Wait(ctx, d); err != nil {
			if parent.Err() != nil {
				return a.partial(), parent.Err()
			}
			return a.partial(), f.err
		}
	}
}

// note logs a failure. The provider may say why it does not take a request in words of the request: those words
// are logged at the level debug only.
func (c *caller) note(ctx context.Context, attempt int, e *Error, more ...any) {
	attributes := append([]any{"model", c.cfg.Name, "attempt", attempt, "kind", e.Kind, "status", e.Status}, more...)
	if e.Kind != KindRequest || c.cfg.Log.Enabled(ctx, slog.LevelDebug) {
		attributes = append(attributes, "error", e)
	}
	c.cfg.Log.WarnContext(ctx, "a model did not answer", attributes...)
}

// attempt makes one request. The error of one that was given up is the reason for that.
func (c *caller) attempt(ctx context.Context, body []byte, a *answer, r eventReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWire(c, func() { cancel(errSilent) })
	defer w.stop()
	err := w.ask(ctx, body, func(events *ssereader.Reader) error { return a.ended(readEvents(events, r)) })
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// readEvents returns why a stream has ended, which is never nil.
func readEvents(events *ssereader.Reader, r eventReader) error {
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

// classify says what a failed attempt means.
func (c *caller) classify(err error, said bool) *failure {
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok:
	case errors.Is(err, errSlow):
		const slow = "The answer of %q took longer than %v. Ask for less, or try again later."
		f = c.failed(false, err, slow, c.cfg.Name, c.cfg.Timeout)
	case errors.Is(err, errSilent):
		f = c.failed(true, err, "%q said nothing for %v. Try again later.", c.cfg.Name, c.cfg.Idle)
	case isTooLong(err):
		message := fmt.Sprintf("The answer of %q is too long.", c.cfg.Name)
		f = &failure{err: &Error{Kind: KindBroken, Message: message, Cause: err}}
	case errors.Is(err, errNonsense):
		f = c.failed(true, err, "The provider of %q answered in a way that makes no sense. Try again later.",
			c.cfg.Name)
	case errors.Is(err, errCutOff):
		f = c.failed(true, err, "The answer of %q broke off. Try again.", c.cfg.Name)
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
	_, ok := errors.AsType[tooLong](err)
	return ok || errors.Is(err, ssereader.ErrTooLong)
}

func (c *caller) failed(passing bool, cause error, format string, args ...any) *failure {
	cause = redacted{text: c.presentable(cause.Error()), err: cause}
	e := &Error{Kind: KindFailure, Message: fmt.Sprintf(format, args...), Cause: cause}
	return &failure{err: e, passing: passing}
}

// redacted is an error as it may be shown: some hold what a server sent, as long as it is.
type redacted struct {
	text string
	err  error
}

func (t redacted) Error() string { return t.text }
func (t redacted) Unwrap() error { return t.err }

func (c *caller) misconfigured() *Error {
	return &Error{
		Kind: KindFailure, Cause: c.invalid,
		Message: fmt.Sprintf("The model %q is configured wrongly. Ask the operator of this gateway.", c.cfg.Name),
	}
}

// Retry says how often a request is made again and how long is waited before. The zero value is the default policy.
//
// A request is made again only while nothing of its answer was emitted, and only after failures that may pass: the
// statuses 408, 409, 429 and 5xx, a connection that fails or breaks, silence. The waits double from Base to Max, each
// cut by up to half at random, so that requests that failed together do not come back together. A wait the server asks
// for (Retry-After, retry-after-ms) is kept if it is longer.
type Retry struct {
	Attempts  int           // in all; default 4
	Base      time.Duration // of the first wait; default 500 ms
	Max       time.Duration // of any wait the server did not ask for; default 8 s
	MaxAdvice time.Duration // a server that asks for more is not asked again: the caller is told at once; default 20 s

	// Wait returns after d, or with ctx's error as soon as ctx ends. Default: a timer. Tests put their own here.
	Wait func(ctx context.Context, d time.Duration) error
}

func (r Retry) withDefaults() Retry {
	orDefault(&r.Attempts, 4)
	orDefault(&r.Base, 500*time.Millisecond)
	orDefault(&r.Max, 8*time.Second)
	orDefault(&r.MaxAdvice, 20*time.Second)
	if r.Wait == nil {
		r.Wait = wait
	}
	return r
}

// pause returns how long to wait after the attempt of this number, counted from 1, and whether there is another one. A
// wait that would outlast ctx is not begun: the failure at hand says more than a deadline.
func (r Retry) pause(ctx context.Context, attempt int, advice time.Duration) (time.Duration, bool) {
	if attempt >= r.Attempts || advice > r.MaxAdvice {
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

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
