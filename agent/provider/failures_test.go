package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func TestStatusesBecomeKinds(t *testing.T) {
	t.Parallel()
	cases := []struct {
		status, attempts int
		kind             provider.Kind
	}{
		{400, 1, provider.KindRequest}, {404, 1, provider.KindRequest}, {413, 1, provider.KindRequest},
		{422, 1, provider.KindRequest},
		{401, 1, provider.KindAuth}, {403, 1, provider.KindAuth},
		{402, 1, provider.KindFailure}, {307, 1, provider.KindFailure},
		{408, 4, provider.KindFailure}, {409, 4, provider.KindFailure}, {429, 4, provider.KindLimit},
		{500, 4, provider.KindFailure}, {503, 4, provider.KindFailure}, {529, 4, provider.KindFailure},
	}
	onBoth(t, func(t *testing.T, b backend) {
		for _, c := range cases {
			s := b.script(t, func(scripted.Request) scripted.Step {
				return scripted.Fail(c.status, "the reason\nwith "+key).With("Location", "/elsewhere")
			})
			var log bytes.Buffer
			_, e, _ := fail(t, b.model(s, options{retry: (&waits{}).retry(), log: &log}), c.kind)
			if n := len(s.Requests()); n != c.attempts || e.Status != c.status {
				t.Errorf("%d: %d attempts, %+v", c.status, n, e)
			}
			const reason = "the reason with [key]"
			if forLog := c.kind == provider.KindAuth || c.kind == provider.KindLimit ||
				c.status == 402; forLog == strings.Contains(e.Message, reason) {
				t.Errorf("%d: people read %q", c.status, e.Message)
			}
			if known := c.kind != provider.KindRequest; !strings.HasSuffix(e.Error(), "t says: "+reason) ||
				known != strings.Contains(log.String(), reason) {
				t.Errorf("%d: error %v; the log says %s", c.status, e, log.String())
			}
		}
	})
}

// An answer that takes more than a little memory asks for room, also while one event of it is not complete, and is not
// asked for again if there is none.
func TestAnswersAskForRoom(t *testing.T) {
	t.Parallel()
	word := strings.Repeat("x", 10<<10)
	for name, raw := range map[string]string{
		"of many events": strings.Repeat(delta(`{"content":"`+word+`"}`), 60),
		"of one event":   `data: {"choices":[{"delta":{"content":"` + strings.Repeat(word, 60),
	} {
		asked := 0
		s := scripted.OpenAI(t, scripted.Reply(scripted.Raw(raw), scripted.Cut()))
		r := ask("hi")
		r.Room = func(n int) error {
			if asked = n; n > 500<<10 {
				return errors.New("full")
			}
			return nil
		}
		_, err := openAI(s).Generate(deadline(t), r, nil)
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || asked <= 500<<10 || asked > 700<<10 || len(s.Requests()) != 1 ||
			!strings.Contains(e.Message, "room") {
			t.Errorf("%s: %v, %d bytes, %d requests", name, err, asked, len(s.Requests()))
		}
	}
}

func TestServersTextIsBounded(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"vendor": `{"error":{"message":"` + strings.Repeat("ö", 5000) + `"}}`,
		"text":   `{"error":"` + strings.Repeat("ö", 5000) + `"}`,
		"detail": `{"detail":[{"msg":"` + strings.Repeat("ö", 5000) + `"}]}`,
		"html":   "<html>" + strings.Repeat("ö\n", 500_000), // more than is read
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b backend) {
				s := b.server(t, scripted.Fail(400, "").Body(body))
				_, e, _ := fail(t, b.model(s, options{}), provider.KindRequest)
				if _, says, _ := strings.Cut(e.Message, "It says: "); len([]rune(says)) != 300 ||
					!strings.Contains(says, "ö") {
					t.Errorf("it says %d characters: %s", len([]rune(says)), says)
				}
			})
		})
	}
}

func TestFailuresThatPass(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		var w waits
		s := b.server(t,
			scripted.Fail(529, "overloaded"),
			scripted.Reply(scripted.Cut()),
			scripted.Reply(scripted.Fault("overloaded_error", "Overloaded")),
			scripted.Reply(scripted.Text("Here I am.")),
		)
		a, h := generate(t, b.model(s, options{retry: w.retry()}), ask("hi"))
		if a.Message.Content != "Here I am." || h.said() != "Here I am." {
			t.Errorf("answer %+v, heard %q", a, h.text)
		}
		for i, top := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
			if len(w.list) != 3 || w.list[i] < top/2 || w.list[i] > top {
				t.Fatalf("waits %v", w.list)
			}
		}
	})
}

// Whatever breaks an answer: it is asked for again while nothing was said, and is KindBroken afterwards.
func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]scripted.Part{
		"cut":       scripted.Cut(),
		"ended":     scripted.End(),
		"garbage":   scripted.Garbage(),
		"overload":  scripted.Fault("overloaded_error", "Overloaded"),
		"refusal":   scripted.Fault("api_error", "Internal error with "+key),
		"truncated": scripted.Raw("event: content_block_delta\ndata: {\"type\": \"content_blo"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b backend) {
				o := options{retry: (&waits{}).retry()}
				step := []scripted.Part{breaks, scripted.End()}
				s := b.script(t, func(scripted.Request) scripted.Step { return scripted.Reply(step...) })
				fail(t, b.model(s, o), provider.KindFailure)
				if n := len(s.Requests()); n != 4 {
					t.Errorf("%d attempts while nothing was said", n)
				}
				// Calls are not emitted, so they do not count as said.
				call := scripted.Calls(scripted.Call{Name: "echo", Args: "{}"})
				s = b.server(t, scripted.Reply(append([]scripted.Part{call}, step...)...), scripted.Reply(call))
				if a, _ := generate(t, b.model(s, o), ask("hi")); len(a.Message.ToolCalls) != 1 {
					t.Errorf("answer %+v", a)
				}
				s = b.server(t, scripted.Reply(append([]scripted.Part{scripted.Text("Hel", "lo"), call}, step...)...))
				if a, _, h := fail(t, b.model(s, o), provider.KindBroken); h.said() != "Hello" {
					t.Errorf("answer %+v, heard %q", a, h.said())
				}
				s = b.server(t, scripted.Reply(append([]scripted.Part{scripted.Thinking("Hm.")}, step...)...))
				if a, _, h := fail(t, b.model(s, o), provider.KindBroken); h.thought() != "Hm." ||
					a.Message.Thinking[0].Text != "Hm." {
					t.Errorf("answer %+v, heard %q", a, h.thought())
				}
			})
		})
	}
}

func TestErrorsInTheStreamBecomeKinds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		for kind, want := range map[string]provider.Kind{
			"rate_limit_error": provider.KindLimit, "overloaded_error": provider.KindFailure,
			"api_error":            provider.KindFailure,
			"authentication_error": provider.KindAuth, "invalid_request_error": provider.KindRequest,
		} {
			s := b.script(t, func(scripted.Request) scripted.Step {
				return scripted.Reply(scripted.Fault(kind,
					"why"))
			})
			_, e, _ := fail(t, b.model(s, options{retry: (&waits{}).retry()}), want)
			if !strings.HasSuffix(e.Error(), "t says: why") {
				t.Errorf("%s: %v", kind, e)
			}
		}
	})
}

func TestCancelling(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		never := make(chan struct{})
		t.Run("in mid-stream", func(t *testing.T) {
			s := b.server(t, scripted.Reply(scripted.Thinking("Hm."), scripted.Text("Once upon"), scripted.Hold(never)))
			ctx, cancel := context.WithCancelCause(deadline(t))
			a, err := b.model(s, options{}).Generate(ctx, ask("hi"), func(d provider.Delta) {
				if d.Text != "" {
					cancel(errors.New("enough"))
				}
			})
			if !errors.Is(err, context.Canceled) || a.Message.Content != "Once upon" {
				t.Errorf("answer %+v, %v", a, err)
			}
		})
		t.Run("before the headers", func(t *testing.T) {
			ctx, cancel := context.WithCancel(deadline(t))
			s := b.script(t, func(scripted.Request) scripted.Step {
				cancel()
				<-ctx.Done()
				return scripted.Reply(scripted.Hold(never))
			})
			if _, err := b.model(s, options{}).Generate(ctx, ask("hi"), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 600)
	for name, parts := range map[string][]scripted.Part{
		"text":      {scripted.Text(long, long)},
		"thinking":  {scripted.Thinking(long, long)},
		"together":  {scripted.Thinking(long), scripted.Text(long)},
		"arguments": {scripted.Calls(scripted.Call{Name: "a", Args: long + long, Pieces: 100})},
		"calls":     {scripted.Calls(make([]scripted.Call, 200)...)},
		"event":     {scripted.Raw("data: " + strings.Repeat("data: x\n", 100_000))},
		"line":      {scripted.Raw("data: " + strings.Repeat("x", 500_000))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, b backend) {
				s := b.server(t, scripted.Reply(parts...)) // once: a longer answer would not be shorter
				a, _, h := fail(t, b.model(s, options{maxBytes: 1000}), provider.KindBroken)
				if len(h.said())+len(h.thought()) > 1000 {
					t.Errorf("answer %+v", a)
				}
			})
		})
	}
	onBoth(t, func(t *testing.T, b backend) { // the number of calls is bounded, too
		s := b.server(t, scripted.Reply(scripted.Calls(make([]scripted.Call, 129)...)))
		fail(t, b.model(s, options{}), provider.KindBroken)
	})
}

func TestServersThatDoNotStream(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.script(t, func(scripted.Request) scripted.Step {
			return scripted.Fail(200, "I am a proxy").With("Content-Type", "text/event-stream")
		})
		_, e, _ := fail(t, b.model(s, options{}), provider.KindFailure)
		if !strings.Contains(e.Message, "does not stream") || !strings.Contains(e.Message, "I am a proxy") ||
			len(s.Requests()) != 1 {
			t.Errorf("message %q after %d requests", e.Message, len(s.Requests()))
		}
	})
}

func TestStreamsOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, d := range dialects {
		stream := playback(d.ping, d.word, d.end)
		m := d.model(func(r *http.Request) (*http.Response, error) {
			res, err := stream(r)
			res.Header = http.Header{"Content-Type": {"application/json"}}
			return res, err
		}, options{})
		if got := listen(deadline(t), m, nil); got.err != nil || got.said != "word" {
			t.Errorf("%s: %+v", d.name, got)
		}
	}
}

func TestUnreachableServers(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, url := range []string{closed.URL, "not a URL", "ftp://example.org"} {
		var w waits
		for i, m := range []provider.Model{
			provider.NewOpenAI(provider.Config{Name: "m", BaseURL: url, Retry: w.retry()}),
			provider.NewAnthropic(provider.Config{Name: "m", BaseURL: url, Retry: w.retry()}),
		} {
			fail(t, m, provider.KindFailure)
			if tried := len(w.list) / (i + 1); url == closed.URL && tried != 3 || url != closed.URL && tried != 0 {
				t.Errorf("%s: %d waits", url, len(w.list))
			}
		}
	}
}

func TestAdviceOfTheServer(t *testing.T) {
	t.Parallel()
	soon := func() string { return time.Now().Add(15 * time.Second).UTC().Format(http.TimeFormat) }
	onBoth(t, func(t *testing.T, b backend) {
		for _, c := range []struct {
			header, value string
			least, most   time.Duration // of the wait; zero: there is none
		}{
			{"Retry-After", "7", 7 * time.Second, 7 * time.Second},
			{"Retry-After", "0.75", 750 * time.Millisecond, 750 * time.Millisecond},
			{"Retry-After-Ms", "1500", 1500 * time.Millisecond, 1500 * time.Millisecond},
			{"Retry-After", soon(), 10 * time.Second, 15 * time.Second},
			{"Retry-After", "0", 250 * time.Millisecond, 500 * time.Millisecond},
			{"Retry-After", "nonsense", 250 * time.Millisecond, 500 * time.Millisecond},
			{"Retry-After", "-5", 250 * time.Millisecond, 500 * time.Millisecond},
			{"Retry-After", "NaN", 250 * time.Millisecond, 500 * time.Millisecond},
			{"Retry-After", "21", 0, 0},
			{"Retry-After", "1e300", 0, 0},
			{"X-Should-Retry", "false", 0, 0},
		} {
			var w waits
			s := b.script(t, func(r scripted.Request) scripted.Step {
				if r.Number == 0 {
					return scripted.Fail(429, "slow down").With(c.header, c.value)
				}
				return scripted.Reply(scripted.Text("ok"))
			})
			_, err := b.model(s, options{retry: w.retry(), timeout: time.Hour}).Generate(t.Context(), ask("hi"), nil)
			name := fmt.Sprintf("%s: %s", c.header, c.value)
			if c.most == 0 {
				if e, ok := errors.AsType[*provider.Error](err); !ok || e.Kind != provider.KindLimit ||
					len(w.list) > 0 ||
					c.header == "Retry-After" && e.RetryAfter < 21*time.Second {
					t.Errorf("%s: %v after waits %v", name, err, w.list)
				}
				continue
			}
			if err != nil || len(w.list) != 1 || w.list[0] < c.least || w.list[0] > c.most {
				t.Errorf("%s: %v after waits %v", name, err, w.list)
			}
		}
	})
}

func TestRetryIsConfigurable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		var w waits
		r := w.retry()
		r.Attempts, r.Base, r.Max = 7, 10*time.Millisecond, 40*time.Millisecond
		s := b.script(t, func(scripted.Request) scripted.Step { return scripted.Fail(500, "no") })
		fail(t, b.model(s, options{retry: r}), provider.KindFailure)
		if len(w.list) != 6 || w.list[5] > 40*time.Millisecond || w.list[5] < 20*time.Millisecond ||
			len(s.Requests()) != 7 {
			t.Errorf("waits %v", w.list)
		}
	})
}

// A wait that would outlast the caller is not begun: why the model failed says more than that time is over.
func TestNoWaitBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.server(t, scripted.Fail(503, "later").With("Retry-After", "19"))
		_, e, _ := fail(t, b.model(s, options{}), provider.KindFailure) // whose timeout is callTime
		if e.Status != 503 || e.RetryAfter != 19*time.Second {
			t.Errorf("error %+v", e)
		}
	})
}

// An event of many small values is not read: in memory it would be a hundred times as long.
func TestEventsOfManyValues(t *testing.T) {
	t.Parallel()
	bomb := `data: {"choices":[{"delta":{"content":"hi"}}` + strings.Repeat(",{}", 1_000_000) + "]}\n\n"
	s := scripted.OpenAI(t, scripted.Reply(scripted.Raw(bomb), scripted.End()))
	m := backends[0].model(s, options{retry: provider.Retry{Attempts: 1}})
	if a, _, h := fail(t, m, provider.KindFailure); h.said() != "" {
		t.Errorf("answer %+v, heard %q", a, h.said())
	}
}

// A header of an answer that is longer than any vendor's fails the request: it would stay in memory, uncounted, as long
// as the answer is read.
func TestHeadersOfAnswersAreBounded(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Long", strings.Repeat("h", 1<<20))
		fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n"+
			"data: [DONE]\n\n")
	}))
	defer s.Close()
	m := provider.NewOpenAI(provider.Config{Name: "m", BaseURL: s.URL, Retry: (&waits{}).retry()})
	answer, e, _ := fail(t, m, provider.KindFailure)
	if answer.Message.Content != "" || !strings.Contains(e.Message, "connection") {
		t.Errorf("%+v, %v", answer, e)
	}
}

// A date as advice is at most a day away, as seconds are: callers get it as a header.
func TestAdviceOfFarDates(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b backend) {
		s := b.script(t, func(scripted.Request) scripted.Step {
			return scripted.Fail(429, "no").With("Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT")
		})
		m := b.model(s, options{retry: (&waits{}).retry()})
		if _, e, _ := fail(t, m, provider.KindLimit); e.RetryAfter > 24*time.Hour {
			t.Errorf("advice: %v", e.RetryAfter)
		}
	})
}
