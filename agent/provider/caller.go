package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"

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
