package provider_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/agent/provider/scripted"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key is the one all tests use. No error may show it.
const key = "sk-very-secret-0123456789"

// options are what tests vary.
type options struct {
	idle, timeout time.Duration
	maxBytes      int
	retry         provider.Retry
	maxTokens     int
	noKey         bool
	log           io.Writer // nil: none
}

// backend is a vendor: a server that speaks like it, and the model that is to understand it.
type backend struct {
	name   string
	server func(testing.TB, ...scripted.Step) *scripted.Server
	script func(testing.TB, func(scripted.Request) scripted.Step) *scripted.Server
	model  func(*scripted.Server, options) provider.Model
}

var backends = []backend{
	{"openai", scripted.OpenAI, scripted.OpenAIFunc, func(s *scripted.Server, o options) provider.Model {
		return provider.NewOpenAI(provider.Config{
			Name: "test-model", BaseURL: s.URL, APIKey: keyOf(o), MaxTokens: o.maxTokens, Idle: o.idle,
			Timeout:  o.timeout,
			MaxBytes: o.maxBytes, Retry: o.retry, HTTPClient: s.Client(), Log: logTo(o.log),
		})
	}},
	{"anthropic", scripted.Anthropic, scripted.AnthropicFunc, func(s *scripted.Server, o options) provider.Model {
		return provider.NewAnthropic(provider.Config{
			Name: "test-model", BaseURL: s.URL, APIKey: keyOf(o), MaxTokens: o.maxTokens, Idle: o.idle,
			Timeout:  o.timeout,
			MaxBytes: o.maxBytes, Retry: o.retry, HTTPClient: s.Client(), Log: logTo(o.log),
		})
	}},
}

func logTo(w io.Writer) *slog.Logger {
	if w == nil {
		return nil
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

func keyOf(o options) string {
	if o.noKey {
		return ""
	}
	return key
}

// onBoth runs a test with every backend.
func onBoth(t *testing.T, test func(t *testing.T, b backend)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// waits stands in for the clock of a Retry.
type waits struct {
	mu   sync.Mutex
	list []time.Duration
}

func (w *waits) retry() provider.Retry {
	return provider.Retry{Wait: func(ctx context.Context, d time.Duration) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.list = append(w.list, d)
		return ctx.Err()
	}}
}

// heard collects what is emitted.
type heard struct{ text, thinking []string }

func (h *heard) emit(d provider.Delta) {
	if d.Text != "" {
		h.text = append(h.text, d.Text)
	}
	if d.Thinking != "" {
		h.thinking = append(h.thinking, d.Thinking)
	}
}

func (h *heard) said() string    { return strings.Join(h.text, "") }
func (h *heard) thought() string { return strings.Join(h.thinking, "") }

func user(text string) provider.Message {
	return provider.Message{Role: provider.RoleUser, Content: text}
}

func ask(text string) provider.Request {
	return provider.Request{Messages: []provider.Message{user(text)}}
}

// callTime is how long the calls of these tests may take.
const callTime = 15 * time.Second

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callTime)
	t.Cleanup(cancel)
	return ctx
}

// generate asks and expects an answer.
func generate(t *testing.T, m provider.Model, r provider.Request) (provider.Answer, *heard) {
	t.Helper()
	h := &heard{}
	a, err := m.Generate(deadline(t), r, h.emit)
	if err != nil {
		t.Fatalf("generate: %v", err)
	}
	return a, h
}

// fail asks and expects a failure of this kind.
func fail(t *testing.T, m provider.Model, kind provider.Kind) (provider.Answer, *provider.Error, *heard) {
	t.Helper()
	h := &heard{}
	a, err := m.Generate(deadline(t), ask("hello"), h.emit)
	e, ok := errors.AsType[*provider.Error](err)
	if !ok {
		t.Fatalf("error %v, want a *provider.Error", err)
	}
	if e.Kind != kind {
		t.Errorf("kind %s, want %s: %v", e.Kind, kind, e)
	}
	if strings.Contains(e.Error(), key) {
		t.Errorf("the error shows the key: %v", e)
	}
	if e.Message == "" || len([]rune(e.Message)) > 300+150 {
		t.Errorf("message %q", e.Message)
	}
	if h.said() != a.Message.Content {
		t.Errorf("emitted %q, answered %q", h.said(), a.Message.Content)
	}
	if len(a.Message.ToolCalls) > 0 {
		t.Errorf("calls in an answer that failed: %+v", a.Message.ToolCalls)
	}
	return a, e, h
}
