package provider_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/provider"
)

// What depends on the clock is tested on one that nobody has to wait for, so the servers here are no real ones.

// playback is a server that sends texts, and between them is silent for durations.
func playback(script ...any) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		ctx := r.Context()
		body, out := io.Pipe()
		context.AfterFunc(ctx, func() { _ = body.CloseWithError(ctx.Err()) })
		go func() {
			for _, part := range script {
				switch part := part.(type) {
				case string:
					if _, err := io.WriteString(out, part); err != nil {
						return
					}
				case time.Duration:
					if !sleep(ctx, part) {
						return
					}
				}
			}
			_ = out.Close() // an end, if no good one
		}()
		return &http.Response{StatusCode: 200, Request: r, Body: body}, nil
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// dialects are the same words in both formats.
var dialects = []struct {
	name            string
	word, ping, end string
	model           func(roundTripper, options) provider.Model
}{
	{"openai", delta(`{"content":"word "}`), ": ping\n\n", strings.Replace(toolCallsEnd, "tool_calls", "stop", 1),
		func(rt roundTripper, o options) provider.Model {
			return provider.NewOpenAI(provider.Config{
				Name: "m", HTTPClient: &http.Client{Transport: rt}, Idle: o.idle, Timeout: o.timeout, Retry: o.retry,
				MaxBytes: o.maxBytes,
			})
		}},
	{"anthropic", event("content_block_start", `{"type":"content_block_start","index":0,`+
		`"content_block":{"type":"text","text":"word "}}`),
		event("ping", `{"type":"ping"}`), event("message_delta",
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`),
		func(rt roundTripper, o options) provider.Model {
			return provider.NewAnthropic(provider.Config{
				Name: "m", HTTPClient: &http.Client{Transport: rt}, Idle: o.idle, Timeout: o.timeout, Retry: o.retry,
				MaxBytes: o.maxBytes,
			})
		}},
}

// outcome is what came of one Generate.
type outcome struct {
	said string
	kind provider.Kind // empty: there was no error
	took time.Duration
	err  error
}

func listen(ctx context.Context, m provider.Model, emit func(provider.Delta)) outcome {
	start := time.Now()
	a, err := m.Generate(ctx, ask("hi"), emit)
	o := outcome{said: strings.TrimSpace(a.Message.Content), took: time.Since(start), err: err}
	if e, ok := errors.AsType[*provider.Error](err); ok {
		o.kind = e.Kind
	}
	return o
}

func TestSilence(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Run("is not what is slow", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const slow = 59 * time.Second
					m := d.model(playback(slow, d.word, slow, d.ping, slow, d.ping, slow, d.word, d.end), options{})
					if got := listen(t.Context(), m, nil); got.err != nil || got.said != "word word" ||
						got.took != 4*slow {
						t.Errorf("%+v", got)
					}
				})
			})
			t.Run("is not the time of the reader", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := d.model(playback(d.word, d.word, d.end), options{})
					got := listen(t.Context(), m, func(provider.Delta) { time.Sleep(2 * time.Minute) })
					if got.err != nil || got.took != 4*time.Minute {
						t.Errorf("%+v", got)
					}
				})
			})
			t.Run("before a word is tried again", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := d.model(playback(d.ping, time.Hour), options{idle: 10 * time.Second})
					got := listen(t.Context(), m, nil)
					if got.kind != provider.KindFailure || got.took < 40*time.Second+1750*time.Millisecond ||
						got.took > 43500*time.Millisecond {
						t.Errorf("%+v", got)
					}
				})
			})
			t.Run("before the headers is tried again", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mute := func(r *http.Request) (*http.Response, error) {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					got := listen(t.Context(), d.model(mute, options{}), nil)
					if got.kind != provider.KindFailure || got.took < 4*time.Minute ||
						got.took > 4*time.Minute+4*time.Second {
						t.Errorf("%+v", got)
					}
				})
			})
			t.Run("after a word breaks the answer", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := listen(t.Context(), d.model(playback(d.word, time.Hour), options{}), nil)
					if got.kind != provider.KindBroken || got.said != "word" || got.took != time.Minute {
						t.Errorf("%+v", got)
					}
				})
			})
		})
	}
}

func TestTimeoutOfAnAnswer(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		for _, c := range []struct {
			words []any
			kind  provider.Kind
		}{{nil, provider.KindFailure}, {[]any{d.word}, provider.KindBroken}} {
			synctest.Test(t, func(t *testing.T) {
				for range 100 {
					c.words = append(c.words, 30*time.Second, d.ping)
				}
				got := listen(t.Context(), d.model(playback(c.words...), options{}), nil)
				if got.kind != c.kind || got.took != 10*time.Minute ||
					!strings.Contains(got.err.Error(), "longer than 10m") {
					t.Errorf("%s: %+v", d.name, got)
				}
			})
		}
	}
}

func TestWaitsAreReal(t *testing.T) {
	t.Parallel()
	refusals := func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 503, Request: r, Header: http.Header{"Retry-After": {"15"}},
			Body: io.NopCloser(strings.NewReader("later")),
		}, nil
	}
	for _, d := range dialects {
		synctest.Test(t, func(t *testing.T) {
			if got := listen(t.Context(), d.model(refusals, options{}), nil); got.kind != provider.KindFailure ||
				got.took != 45*time.Second {
				t.Errorf("%s: %+v", d.name, got)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Second, cancel) // while it waits for the second time
			if got := listen(ctx, d.model(refusals, options{}), nil); !errors.Is(got.err, context.Canceled) ||
				got.took != 20*time.Second {
				t.Errorf("%s: %+v", d.name, got)
			}
		})
	}
}

// A server that says nothing without an end is read at a pace, until the answer has taken too long.
func TestStreamsArePaced(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		for name, piece := range map[string]string{"comments": ": x\n\n", "events": "data: {}\n\n"} {
			t.Run(d.name+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					endless := &counted{r: &repeated{text: piece}}
					m := d.model(func(r *http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: 200, Request: r, Body: io.NopCloser(endless)}, nil
					}, options{timeout: 10 * time.Second, retry: provider.Retry{Attempts: 1}})
					got := listen(t.Context(), m, nil)
					if got.kind != provider.KindFailure || endless.read > 4<<20 {
						t.Errorf("%+v after %d bytes", got, endless.read)
					}
				})
			})
		}
	}
}
