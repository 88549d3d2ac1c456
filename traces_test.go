package farhand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/otlp"
	"github.com/farhand/farhand/internal/otlp/otlptest"
	"github.com/farhand/farhand/internal/testkit"
)

const callersSpan = "00f067aa0ba902b7"

// tracedHome is a gateway that exports all spans. It has everything that a trace passes through on one pod.
type tracedHome struct {
	*home
	collector *otlptest.Collector

	mu   sync.Mutex
	sent map[string]string // by destination: the last header traceparent, and that of _meta after a space
}

func newTracedHome(t *testing.T) *tracedHome {
	h := &tracedHome{collector: otlptest.New(t), sent: make(map[string]string)}
	settings, err := otlp.LoadConfig([]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + h.collector.URL, "OTEL_BSP_SCHEDULE_DELAY=20",
	})
	if err != nil {
		t.Fatal(err)
	}
	p := otlp.Open(settings, "v1", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { p.Close(context.Background()) })
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, policy, "tools:\n  - {id: ask, names: [asked], approval: always}\n")
	say := func(context.Context, struct{}) (any, error) { return "said", nil }
	h.home = newHome(t, nil, func(c *farhand.Config) {
		c.Builtins, c.Sandbox = []string{"exec", "browser"}, farhand.SandboxLandlock
		c.PrivateURLs, c.BrowserBare, c.ApprovalTime = true, os.Getuid() == 0, limit
		c.PolicyFile, c.HooksFile, c.MCPServers = policy, h.hook(t), h.upstream(t)
	}, farhand.WithTracerProvider(p), farhand.WithToolFunc("hello", "", say), farhand.WithToolFunc("hooked", "", say),
		farhand.WithToolFunc("asked", "", say))
	testkit.Eventually(t, "the server's tools are listed", func() bool {
		_, list := send(t, h.url+"/api/tools?source_type=mcp", "", adminToken)
		return strings.Contains(list, "far__say")
	})
	return h
}

func (h *tracedHome) note(to, what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[to] = what
}

// hook starts a service that lets all calls of the tool hooked pass, and returns the file that names it.
func (h *tracedHome) hook(t *testing.T) string {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.note("hook", r.Header.Get("Traceparent"))
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"decision":"continue"}`)
	}))
	t.Cleanup(service.Close)
	path := filepath.Join(t.TempDir(), "hooks.yaml")
	text := fmt.Sprintf("hooks:\n- {name: guard, url: %q, secret: whsec_%s, phase: before, allow_private: true, "+
		"tools: [hooked]}\n", service.URL, strings.Repeat("c2VjcmV0", 6))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// upstream starts an MCP server, and returns the file that names it.
func (h *tracedHome) upstream(t *testing.T) string {
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "say"},
		func(_ context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			h.note("server", fmt.Sprint(r.Extra.Header.Get("Traceparent"), " ", r.Params.Meta["traceparent"]))
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "said"}}}, nil, nil
		})
	service := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		service.CloseClientConnections()
		service.Close()
	})
	return serversFile(t, service.URL)
}

// ask sends a request whose header names its trace, unless that is empty, and returns the answer.
func (h *tracedHome) ask(t *testing.T, path, body, key, trace string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	if trace != "" {
		r.Header.Set("Traceparent", parentOf(trace))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Errorf("%s: %d %s, %v", path, resp.StatusCode, text, err)
	}
	return string(text)
}

func parentOf(trace string) string { return "00-" + trace + "-" + callersSpan + "-01" }

// call calls a tool of the gateway in a trace.
func (h *tracedHome) call(t *testing.T, tool, args, trace string) {
	t.Helper()
	body := `{"timeout_ms":20000,"args":` + args + `}`
	if text := h.ask(t, "/api/tools/"+tool+"/call", body, h.keys["admin main"], trace); !strings.Contains(
		text, `"success":true`) {
		t.Errorf("%s: %s", tool, text)
	}
}

// chain waits for the spans of a trace, each below the one before and the first below the caller's, and returns the
// last.
func (h *tracedHome) chain(t *testing.T, trace string, names []string) (last otlptest.Span) {
	t.Helper()
	testkit.Eventually(t, fmt.Sprintf("the spans %q, each below the one before", names), func() bool {
		last = otlptest.Span{ID: callersSpan}
		all, found := h.collector.Spans(), 0
		for _, name := range names {
			for _, s := range all {
				if s.Trace == trace && s.Name == name && s.Parent == last.ID {
					last = s
					found++
					break
				}
			}
		}
		return found == len(names)
	})
	return last
}

// TestTracesInAndOut: each way into the gateway, through its parts and out of it continues the caller's trace. The ways
// over pods and devices are in cmd/farhand.
func TestTracesInAndOut(t *testing.T) {
	t.Parallel()
	h := newTracedHome(t)
	const tool, execute = "POST /api/tools/:name/call", "execute_tool "
	for i, way := range []struct {
		name  string
		spans []string
		to    string // the destination that gets the last span's id
		ask   func(t *testing.T, trace string)
	}{
		{"_meta of MCP", []string{"tools/call hello", execute + "hello", "admit"}, "",
			func(t *testing.T, trace string) {
				h.ask(t, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello",`+
					`"_meta":{"traceparent":"`+parentOf(trace)+`"}}}`, adminToken, "")
			}},
		{"headers of MCP", []string{"POST /mcp", "tools/call hello", execute + "hello"}, "",
			func(t *testing.T, trace string) {
				h.ask(t, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hello"}}`, adminToken,
					trace)
			}},
		{"chat completions", []string{"POST /v1/chat/completions", "invoke_agent farhand", execute + "hello"}, "",
			func(t *testing.T, trace string) {
				h.model.calls("hello", `{}`)
				h.ask(t, "/v1/chat/completions", `{"model":"farhand","messages":[{"role":"user","content":"hi"}]}`,
					h.keys["caller main"], trace)
			}},
		{"hook over HTTP", []string{tool, execute + "hooked", "admit", "hook guard"}, "hook",
			func(t *testing.T, trace string) { h.call(t, "hooked", `{}`, trace) }},
		{"MCP server", []string{tool, execute + "far__say", "tools/call say"}, "server",
			func(t *testing.T, trace string) { h.call(t, "far__say", `{}`, trace) }},
		{"sandbox", []string{tool, execute + "exec", "sandbox host"}, "",
			func(t *testing.T, trace string) { h.call(t, "exec", `{"command":"echo hello"}`, trace) }},
		{"browser", []string{tool, execute + "browser", "browser start"}, "",
			func(t *testing.T, trace string) { h.call(t, "browser", `{"action":"start"}`, trace) }},
		{"approval", []string{tool, execute + "asked", "await_approval"}, "", h.approve},
		{"queued call", []string{tool, execute + "echo", execute + "echo", "device echo"}, "", h.wake},
	} {
		t.Run(way.name, func(t *testing.T) {
			trace := fmt.Sprintf("%032x", 0xabc000+i)
			way.ask(t, trace)
			last := h.chain(t, trace, way.spans)
			h.mu.Lock()
			defer h.mu.Unlock()
			if way.to == "" {
				return
			}
			want := "00-" + trace + "-" + last.ID + "-01"
			if way.to == "server" {
				want += " " + want
			}
			if got := h.sent[way.to]; got != want {
				t.Errorf("the %s got %q, want %q", way.to, got, want)
			}
		})
	}
	h.collector.CheckDocumented(t, "docs/traces.md")
}

// approve makes a call that waits for a person, who allows it.
func (h *tracedHome) approve(t *testing.T, trace string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ask(t, "/api/tools/asked/call", `{}`, h.keys["caller main"], trace)
	}()
	var list struct{ Approvals []struct{ ID string } }
	testkit.Eventually(t, "a person is asked", func() bool {
		_, text := send(t, h.url+"/api/approvals", "", adminToken)
		return json.Unmarshal([]byte(text), &list) == nil && len(list.Approvals) == 1
	})
	h.ask(t, "/api/approvals/"+list.Approvals[0].ID, `{"decision":"allow-once"}`, adminToken, "")
	<-done
}

// wake makes a call to a device that sleeps, which then wakes.
func (h *tracedHome) wake(t *testing.T, trace string) {
	queuePods{T: t, a: h.url, b: h.url}.slept("asleep", echoTools)
	h.ask(t, "/api/tools/echo/call", `{"args":{},"target":{"device_id":"asleep"},"queue":{"ttl_ms":600000}}`,
		adminToken,
		trace)
	wakePhone(t, h.url, "asleep", adminToken, echoTools, true)
}
