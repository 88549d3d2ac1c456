package hooks_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secret is what the hooks of tests sign with.
const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// service is the HTTP service behind a hook. It checks the signature of every question.
type service struct {
	*httptest.Server
	t      *testing.T
	answer http.HandlerFunc

	mu    sync.Mutex
	asked []asked
}

type asked struct {
	id   string
	body string
}

// serve starts a service that answers with answer, after the body was read.
func serve(t *testing.T, answer http.HandlerFunc) *service {
	t.Helper()
	s := &service{t: t, answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serveHTTP))
	t.Cleanup(s.Close)
	return s
}

func (s *service) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the question was taken back
	}
	err = testkit.VerifyWebhook(secret, r.Header, body)
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("%s %v: %v", r.Method, r.Header, err)
	}
	s.mu.Lock()
	s.asked = append(s.asked, asked{r.Header.Get("Webhook-Id"), string(body)})
	s.mu.Unlock()
	s.answer(w, r)
}

func (s *service) questions() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.asked...)
}

// say answers with a text.
func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// open makes a hook with defaults for tests. What it logs is returned, too.
func open(t *testing.T, url string, change func(*hooks.Config)) (*hooks.Hook, *lines) {
	t.Helper()
	c := hooks.Config{
		Name: "guard", URL: url, Secret: secret, Before: true, After: true, AllowPrivate: true,
		Timeout: hooks.MaxTimeout,
	}
	if change != nil {
		change(&c)
	}
	log := &lines{}
	h, err := hooks.New(c, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, log
}

// invocation is a call of the tool camera_take.
func invocation() agent.Invocation {
	id := auth.Identity{Tenant: "acme", User: "ada"}
	if err := id.SetRoles(auth.NameCaller); err != nil {
		panic(err)
	}
	return agent.Invocation{
		CallID: "c1", Caller: id, Spec: registry.ToolSpec{Name: "camera_take"}, Args: registry.MustJSON(`{"n":"<1>"}`),
		Session: registry.Session{
			Key: registry.Key{Tenant: "acme", Session: "s1"}, DeviceID: "phone", Proofs: []string{"proof-canary"},
		},
		Turn: "t1", Source: "remote:s1", Deadline: time.Now().Add(time.Minute),
	}
}

// after asks a hook about a result.
func after(t *testing.T, h *hooks.Hook, res registry.Result) (registry.Result, error) {
	t.Helper()
	return h.Amend(t.Context(), invocation(), agent.Outcome{CallID: "c1", Result: res}, nil)
}

// before asks a hook before a call.
func before(ctx context.Context, h *hooks.Hook) (agent.Decision, error) {
	return h.Before(ctx, invocation())
}
