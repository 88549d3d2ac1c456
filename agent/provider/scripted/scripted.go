// Package scripted implements language models for tests: HTTP servers that send scripted answers in the vendors'
// streaming formats. They check requests as the vendors do, and reject invalid ones with 400. They never wait for a
// clock: a slow answer waits until the test continues it.
//
//	server := scripted.OpenAI(t,
//		scripted.Reply(scripted.Calls(scripted.Call{Name: "echo", Args: `{"text":"hi"}`})),
//		scripted.Reply(scripted.Text("It said ", "hi.")),
//	)
//	model := provider.NewOpenAI(provider.Config{Name: "m", BaseURL: server.URL, HTTPClient: server.Client()})
package scripted

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/farhand/farhand/agent/provider"
)

// maxBody is the maximum size of a request body in bytes.
const maxBody = 32 << 20

// Request is a parsed request.
type Request struct {
	Number      int // counted from 0
	Header      http.Header
	Raw         []byte // the body
	Model       string
	System      string
	Messages    []provider.Message // each tool result is a message, in both formats
	Tools       []provider.Tool
	MaxTokens   int
	Temperature *float64
	Stop        []string
	Refused     string // why it was rejected with 400; such a request consumes no step
}

// Server is a scripted model server.
type Server struct {
	URL string // the base URL for a provider's configuration

	t       testing.TB
	http    *httptest.Server
	vendor  vendor
	script  func(Request) Step
	closing chan struct{}

	mu       sync.Mutex
	requests []Request
}

// vendor is one streaming format.
type vendor interface {
	path() string
	// read parses a body into r. The error is the answer of the vendor.
	read(r *Request) error
	// fault is the body of an error.
	fault(status int, message string) string
	// speaker begins a stream.
	speaker(p *player) speaker
}

// OpenAI starts a Chat Completions server that answers each request with the next step. The test fails if there are
// more or fewer requests than steps.
func OpenAI(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return start(t, openAI{}, "/v1", inOrder(t, steps))
}

// OpenAIFunc starts a Chat Completions server that calls script for each answer, concurrently if requests overlap.
func OpenAIFunc(t testing.TB, script func(Request) Step) *Server {
	t.Helper()
	return start(t, openAI{}, "/v1", script)
}

// Anthropic is OpenAI for Anthropic's Messages API.
func Anthropic(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return start(t, anthropic{}, "", inOrder(t, steps))
}

// AnthropicFunc is OpenAIFunc for Anthropic's Messages API.
func AnthropicFunc(t testing.TB, script func(Request) Step) *Server {
	t.Helper()
	return start(t, anthropic{}, "", script)
}

func start(t testing.TB, v vendor, base string, script func(Request) Step) *Server {
	t.Helper()
	s := &Server{t: t, vendor: v, script: script, closing: make(chan struct{})}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL + base
	t.Cleanup(func() {
		close(s.closing) // releases held answers, which Close would wait for
		s.http.Close()
	})
	return s
}

// inOrder is a script of a list of steps.
func inOrder(t testing.TB, steps []Step) func(Request) Step {
	t.Helper()
	var mu sync.Mutex
	next := 0
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if next < len(steps) && !t.Failed() {
			t.Errorf("scripted: %d of %d steps were not asked for", len(steps)-next, len(steps))
		}
	})
	return func(r Request) Step {
		mu.Lock()
		defer mu.Unlock()
		if next == len(steps) {
			t.Errorf("scripted: request %d comes after the end of the script: %s", r.Number, r.Raw)
			return Fail(http.StatusBadRequest, "the script is over")
		}
		next++
		return steps[next-1]
	}
}

// Client returns an HTTP client whose connections are closed with the server.
func (s *Server) Client() *http.Client { return s.http.Client() }

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != s.vendor.path() {
		s.fail(w, http.StatusNotFound, fmt.Sprintf("no such endpoint: %s %s", r.Method, r.URL.Path))
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		s.fail(w, http.StatusRequestEntityTooLarge, "request too large")
		return
	}
	req := Request{Header: r.Header.Clone(), Raw: body}
	if err := s.vendor.read(&req); err != nil {
		req.Refused = err.Error()
	}
	s.mu.Lock()
	req.Number = len(s.requests)
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	if req.Refused != "" {
		s.fail(w, http.StatusBadRequest, req.Refused)
		return
	}
	s.play(w, r, req, s.script(req))
}

func (s *Server) fail(w http.ResponseWriter, status int, message string) {
	s.write(w, Fail(status, message))
}

// write sends an answer that is not a stream.
func (s *Server) write(w http.ResponseWriter, step Step) {
	body := step.body
	if body == "" {
		body = s.vendor.fault(step.status, step.message)
	}
	w.Header().Set("Content-Type", "application/json")
	for name, values := range step.header {
		w.Header()[name] = values
	}
	w.WriteHeader(step.status)
	_, _ = io.WriteString(w, body) // fails if the client has disconnected
}
