package upstream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/tools/upstream"
	"github.com/farhand/farhand/internal/secret"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// serve serves what a server answers with over HTTP.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// streamable serves a server of the SDK.
func streamable(t *testing.T, s *mcp.Server, stateless bool) string {
	t.Helper()
	t.Cleanup(func() { // a session whose client has gone stays with the server
		for session := range s.Sessions() {
			_ = session.Close()
		}
	})
	return serve(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s },
		&mcp.StreamableHTTPOptions{Stateless: stateless}))
}

// A server at a URL has its tools listed and called; what it returns keeps its form, and changes of the list are heard.
func TestServerAtURL(t *testing.T) {
	for name, stateless := range map[string]bool{"with sessions": false, "stateless": true} {
		t.Run(name, func(t *testing.T) {
			server := newServer()
			servers := open(t, nil, upstream.Server{Name: "web", URL: streamable(t, server, stateless)})
			tools := until(t, servers, has("web__echo"))
			spec := tools["web__echo"].Spec()
			if spec.Description != "Says what it is told." || !strings.Contains(string(spec.Parameters), `"text"`) {
				t.Errorf("the definition: %+v", spec)
			}
			if source, _ := agent.SourceOf(tools["web__echo"]); source != "mcp:web" {
				t.Errorf("the source is %q", source)
			}
			var shown agent.Tool
			for name, tool := range tools {
				if strings.HasPrefix(name, "web__show_all_") {
					shown = tool
				}
			}
			if got := string(shown.Spec().OutputSchema); got != `{"type":"object"}` {
				t.Errorf("the output schema: %s", got)
			}
			if got := spec.OutputSchema; got != nil {
				t.Errorf("an output schema that no one declared: %s", got)
			}
			res, err := call(t, shown, `{}`)
			if err != nil || !res.Success || res.Output != "seen\nwords\nfar: https://example.com/x" ||
				res.Structured.String() != `{"n":7}` || len(res.Parts) != 2 {
				t.Fatalf("%+v, %v", res, err)
			}
			if p := res.Parts[0]; p.Type != registry.PartImage || p.MIMEType != "image/png" || string(p.Data) != "png" {
				t.Errorf("the image: %+v", p)
			}
			if p := res.Parts[1]; p.MIMEType != "text/plain" || p.Name != "b.txt" || p.URI != "file:///a/b.txt" ||
				string(p.Data) != "words" {
				t.Errorf("the file: %+v", p)
			}
			server.AddTool(&mcp.Tool{Name: "late", InputSchema: map[string]any{"type": "object"}},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
					return &mcp.CallToolResult{}, nil
				})
			until(t, servers, has("web__late"))
			server.RemoveTools("late")
			until(t, servers, func(tools map[string]agent.Tool) bool { return tools["web__late"] == nil })
		})
	}
}

// A caller that gives up has the call cancelled at the server.
func TestCancelReachesTheServer(t *testing.T) {
	server, begun, ended := newServer(), make(chan struct{}), make(chan struct{})
	mcp.AddTool(server, &mcp.Tool{Name: "long"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			close(begun)
			<-ctx.Done()
			close(ended)
			return nil, nil, ctx.Err()
		})
	servers := open(t, nil, upstream.Server{Name: "web", URL: streamable(t, server, false)})
	tools := until(t, servers, has("web__long"))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := tools["web__long"].Execute(ctx, []byte(`{}`))
		failed <- err
	}()
	<-begun
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(testkit.Limit):
		t.Error("the server was not told")
	}
	if res, err := call(t, tools["web__echo"], `{"text":"still here"}`); err != nil || res.Output != "still here" {
		t.Errorf("%+v, %v", res, err)
	}
}

// A server that is gone has its tools listed with the reason, and is found again when it comes back.
func TestServerGoesAndComesBack(t *testing.T) {
	var gone atomic.Bool
	server := newServer()
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gone.Load() {
			http.Error(w, "gone", http.StatusBadGateway)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer s.Close()
	servers := open(t, nil, upstream.Server{Name: "web", URL: s.URL})
	tools := until(t, servers, has("web__echo"))
	gone.Store(true)
	s.CloseClientConnections()
	until(t, servers, func(tools map[string]agent.Tool) bool {
		return tools["web__echo"] != nil && strings.Contains(why(tools["web__echo"]), "farhand doctor")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := tools["web__echo"].Execute(ctx, []byte(`{"text":"x"}`))
	if !errors.Is(err, registry.CodeNotConnected) {
		t.Errorf("a call meanwhile: %v", err)
	}
	gone.Store(false)
	until(t, servers, has("web__echo"))
	s.CloseClientConnections()
}

// Headers of the file go to the server it names, and nowhere else; nothing shows their values.
func TestHeadersStayWithTheirHost(t *testing.T) {
	var leaked atomic.Int32
	elsewhere := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != "" {
			leaked.Add(1)
		}
	}))
	asked := make(chan string, 100)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("X-Key"):
		default:
		}
		http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
	}))
	servers := open(t, nil, upstream.Server{
		Name: "web", URL: url, Headers: map[string]secret.Text{"X-Key": "hunter2"},
	})
	if key := <-asked; key != "hunter2" {
		t.Errorf("the server got %q", key)
	}
	<-asked
	if leaked.Load() != 0 {
		t.Error("another host has the key")
	}
	if s := servers.Status()[0]; s.Connected || strings.Contains(s.Why, "hunter2") || strings.Contains(s.Why, url) {
		t.Errorf("%+v", s)
	}
}

// A server that repeats what it was sent in an error does not tell callers the operator's secrets, and its calls do not
// fill the log.
func TestErrorsThatRepeatSecrets(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, m message, text string){
		"in an answer": func(w http.ResponseWriter, m message, text string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":%q}}`, m.ID, text)
		},
		"in a refusal": func(w http.ResponseWriter, _ message, text string) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":{"message":%q}}`, text)
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers := open(t, nil, upstream.Server{
				Name: "evil", Headers: map[string]secret.Text{"Authorization": "Bearer hunter2hunter2"},
				URL: serve(t, evil{call: func(w http.ResponseWriter, r *http.Request, m message) {
					token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
					answer(w, m, strings.Repeat("x", 490)+" "+token)
				}}),
			})
			res, err := call(t, until(t, servers, has("evil__do"))["evil__do"], `{}`)
			if err != nil || res.Success || !strings.Contains(res.Error, "xx *") ||
				strings.Contains(res.Error, "hunt") {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

func TestCallsWithoutAnswersAreLoggedSeldom(t *testing.T) {
	var log bytes.Buffer
	servers := open(t, func(c *upstream.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) },
		upstream.Server{Name: "evil", URL: serve(t, evil{call: func(w http.ResponseWriter, _ *http.Request, _ message) {
			w.WriteHeader(http.StatusNotImplemented)
		}})})
	tool := until(t, servers, has("evil__do"))["evil__do"]
	for range 50 {
		if _, err := call(t, tool, `{}`); !errors.Is(err, registry.CodeLost) {
			t.Fatal(err)
		}
	}
	if err := servers.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "tool not answered"); n < 1 || n > 10 {
		t.Errorf("%d lines", n)
	}
}

// A server whose name leads into a private network is not asked unless the file says so.
func TestPrivateAddresses(t *testing.T) {
	var asked atomic.Int32
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	url := "http://127.0.0.1:" + port
	if name, err := os.Hostname(); err == nil {
		if addrs, err := net.LookupHost(name); err == nil && len(addrs) > 0 {
			for _, allowed := range []bool{false, true} {
				asked.Store(0)
				_, err := upstream.Probe(t.Context(), upstream.Config{},
					upstream.Server{Name: "web", URL: "http://" + name + ":" + port, Private: allowed})
				if err == nil || asked.Load() > 0 != allowed {
					t.Errorf("allowed %t: %v, asked %d times", allowed, err, asked.Load())
				}
			}
		}
	}
	asked.Store(0)
	if _, err := upstream.Probe(t.Context(), upstream.Config{}, upstream.Server{
		Name: "web", URL: "http://169.254.169.254/mcp", Private: true,
	}); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("where credentials are handed out: %v", err)
	}
	if _, err := upstream.Probe(t.Context(), upstream.Config{}, upstream.Server{Name: "web", URL: url}); err == nil ||
		asked.Load() == 0 {
		t.Error("an address that the file names was not asked")
	}
}
