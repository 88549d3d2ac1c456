package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/routing"
)

// nobody receives an answer and keeps nothing of it.
type nobody struct {
	header http.Header
	status int
}

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) WriteHeader(status int)      { n.status = status }
func (n *nobody) Write(p []byte) (int, error) { return len(p), nil }

// BenchmarkCallAPI is what a call costs here, all but net/http, the way to a device, and back: the tool is the
// gateway's own.
func BenchmarkCallAPI(b *testing.B) {
	surface := newBenchAPI(b)
	body := `{"args":{"text":"` + strings.Repeat("x", 80) + `"},"timeout_ms":3000}`
	r := httptest.NewRequest(http.MethodPost, "/api/tools/clock/call", nil)
	r.ContentLength = int64(len(body))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	b.ReportAllocs()
	for b.Loop() {
		w := &nobody{header: make(http.Header)}
		r.Body = io.NopCloser(strings.NewReader(body))
		if surface.ServeHTTP(w, r); w.status != http.StatusOK {
			b.Fatal(w.status)
		}
	}
}

// newBenchAPI returns the API of one pod, in memory.
func newBenchAPI(b *testing.B) http.Handler {
	b.Helper()
	store := memory.New(memory.Options{})
	bus := store.NewBus()
	pod, err := routing.NewPod(routing.PodConfig{ID: "pod", Store: store, Bus: bus})
	if err != nil {
		b.Fatal(err)
	}
	if err := pod.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := pod.Close(ctx); err != nil {
			b.Error(err)
		}
		if err := bus.Close(ctx); err != nil {
			b.Error(err)
		}
	})
	return benchAPI(b, pod, store)
}

func benchAPI(b *testing.B, pod *routing.Pod, store *memory.Store) http.Handler {
	b.Helper()
	box, err := agent.NewLocalTools(agent.Registration{
		Names: []string{"clock"}, Make: func(agent.SessionContext) []agent.Tool { return []agent.Tool{clock{}} },
	})
	if err != nil {
		b.Fatal(err)
	}
	policy, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		b.Fatal(err)
	}
	origins, err := auth.NewOrigins(nil, false)
	if err != nil {
		b.Fatal(err)
	}
	surface, err := api.NewHandler(api.Config{
		Approvals: struct{ api.Approvals }{},
		Pod:       pod.ID(), Calls: pod.Calls, Directory: store, Conversations: store,
		AuditLog: store, Credentials: store, Usage: store, Kicker: pod.Hub, Turns: pod.Turns,
		Policy: policy, Origins: origins, Auth: auth.NewStaticToken(token), MaxCallTimeout: time.Minute,
		Invoker: agent.NewInvoker(agent.Config{
			Router: pod.Router, CallLog: pod.Calls, Policy: policy, LocalTools: box,
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	return surface
}

// BenchmarkCallMCP is the same for a call of MCP.
func BenchmarkCallMCP(b *testing.B) {
	surface := newBenchAPI(b)
	body := `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"clock","arguments":{"text":"` +
		strings.Repeat("x", 80) + `"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.ContentLength = int64(len(body))
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "Content-Type": "application/json",
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28",
		"Mcp-Method": "tools/call", "Mcp-Name": "clock",
	} {
		r.Header.Set(name, value)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := &nobody{header: make(http.Header)}
		r.Body = io.NopCloser(strings.NewReader(body))
		if surface.ServeHTTP(w, r); w.status != http.StatusOK {
			b.Fatal(w.status)
		}
	}
}
