// Package scripted plays language models for tests: real HTTP servers that speak the vendors' streaming formats and say
// what a script tells them to. They check requests as the vendors do and answer what breaks the rules with 400, so that
// a mistake in a conversation shows up. Nothing in them waits for a clock: what is slow is slow until a test lets it go
// on.
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

// maxBody bounds what is read of a request, in bytes.
const maxBody = 32 << 20

// Request is a request as the server understood it.
type Request struct {
	Number      int // counted from 0
	Header      http.Header
	Raw         []byte // the body
	Model       string
	System      string
	Messages    []provider.Message // each result of a tool a message of its own, whatever the vendor's format
	Tools       []provider.Tool
	MaxTokens   int
	Temperature *float64
	Stop        []string
	Refused     string // why it was answered 400; such a request takes no step of the script
}

// Server is a scripted model server.
type Server struct {
	URL string // the base URL, as the configuration of a provider takes it

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
	// read fills what a body says into r. The error is what the vendor would answer to it.
	read(r *Request) error
	// fault is the body of an error.
	fault(status int, message string) string
	// speaker begins a stream.
	speaker(p *player) speaker
}

// OpenAI starts a server of chat completions that answers each request with the next step. One request too many, or too
// few by the end of the test, is an error of the test.
func OpenAI(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return start(t, openAI{}, "/v1", inOrder(t, steps))
}

// OpenAIFunc starts a server of chat completions that asks script for every answer. Requests may come at the same time.
func OpenAIFunc(t testing.TB, script func(Request) Step) *Server {
	t.Helper()
	return start(t, openAI{}, "/v1", script)
}

// Anthropic is OpenAI for Anthropic's messages.
func Anthropic(t testing.TB, steps ...Step) *Server {
	t.Helper()
	return start(t, anthropic{}, "", inOrder(t, steps))
}

// AnthropicFunc is OpenAIFunc for Anthropic's messages.
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
		close(s.closing) // whatever is held is let go, or Close would wait for it
		s.http.Close()
	})
	return s
}

// inOrder is the script that is a list.
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

// Requests returns what was asked until now.
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

// write answers with what is not a stream.
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
	_, _ = io.WriteString(w, body) // a client that is gone hears nothing
}
