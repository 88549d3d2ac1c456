package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// instant is an Invoker whose calls take no time.
type instant struct{}

func (instant) Invoke(_ context.Context, req agent.Request) (agent.Outcome, error) {
	return agent.Outcome{CallID: req.CallID, Result: registry.Result{Success: true, Output: "now"}}, nil
}

func (instant) Read(context.Context, share.Owner, int) (func(), error) { return func() {}, nil }

// nothing is where answers go that nobody reads, and a fleet in which nothing happens.
type nothing struct {
	Gateway
	registry.Directory
	status int
}

func (n *nothing) Write(status int, _ []byte, _ *registry.Error) error {
	n.status = status
	return nil
}
func (*nothing) NoteCall(string)                           {}
func (*nothing) NoteFailure(*registry.Error)               {}
func (*nothing) NameSession(string)                        {}
func (*nothing) Open() (*ssewriter.Stream, error)          { return nil, io.ErrClosedPipe }
func (*nothing) Enter() (func(), error)                    { return func() {}, nil }
func (*nothing) ReservePage(context.Context) error         { return nil }
func (*nothing) Ended() bool                               { return false }
func (*nothing) Serve(func(registry.Key) bool)             {}
func (*nothing) Abort(context.Context, registry.Key) error { return nil }
func (*nothing) Owns(string) bool                          { return false }
func (*nothing) LocalTools() []registry.ToolSpec           { return nil }
func (*nothing) Reserve(context.Context, *ssewriter.Stream, int) (func(), error) {
	return func() {}, nil
}
func (*nothing) UntilDraining(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

const benchCall = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"tool7","arguments":{"text":"` +
	`xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"},"_meta":{` +
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`

func benchHeader() http.Header {
	return http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"tool7"},
	}
}

// BenchmarkCall is what the protocol costs of a call, and BenchmarkCallSDK what it costs in the server of the Go SDK,
// which decision 44 is about: stateless, with 100 tools, and the call answered by a middleware.
func BenchmarkCall(b *testing.B) {
	n := &nothing{}
	s := New(Config{Invoker: instant{}, Directory: n, Gateway: n, Cancels: n, Version: "1"})
	header, who := benchHeader(), auth.Identity{Tenant: registry.DefaultTenant, Admin: true}
	b.ReportAllocs()
	for b.Loop() {
		x := &Exchange{
			Caller: who, Header: header, Body: []byte(benchCall), Out: n, TakeBody: func() func() { return nil },
		}
		if err := s.Serve(b.Context(), x); err != nil || n.status != http.StatusOK {
			b.Fatal(err, n.status)
		}
	}
}

// fleet is a directory of a hundred sessions.
type fleet struct{ nothing }

func (*fleet) List(context.Context, registry.Query) (entries []registry.Entry, next *registry.Cursor, err error) {
	for i := range 100 {
		entries = append(entries, registry.Entry{Session: registry.Session{
			Key:        registry.Key{Tenant: registry.DefaultTenant, Session: fmt.Sprint("session-", i)},
			DeviceName: "Pixel 8",
		}})
	}
	return entries, nil, nil
}

// oneRecord is the record of a call that runs.
type oneRecord struct{ Calls }

func (oneRecord) Get(context.Context, string, string) (registry.Record, error) {
	rec := registry.NewRecord("8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11", registry.DefaultTenant, "tool", nil)
	rec.Mode = registry.ModeAsync
	return rec, nil
}

// BenchmarkOtherAnswers is what answers cost that are no results of calls.
func BenchmarkOtherAnswers(b *testing.B) {
	f := &fleet{}
	s := New(Config{Invoker: instant{}, Directory: f, Gateway: f, Cancels: f, Calls: oneRecord{}, Version: "1"})
	for name, message := range map[string]string{
		"error":      `{"jsonrpc":"2.0","id":17,"method":"no/such","params":{}}`,
		"initialize": `{"jsonrpc":"2.0","id":17,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`,
		"resources":  `{"jsonrpc":"2.0","id":17,"method":"resources/list","params":{}}`,
		"task": `{"jsonrpc":"2.0","id":17,"method":"tasks/get","params":{"taskId":"8b0f6a52-8c31-4d55-9a53-` +
			`0c1f6f2d7f11","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`,
	} {
		header := http.Header{}
		if name == "task" {
			header = http.Header{
				"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tasks/get"},
				"Mcp-Name": {"8b0f6a52-8c31-4d55-9a53-0c1f6f2d7f11"},
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x := &Exchange{
					Caller: auth.Identity{Tenant: registry.DefaultTenant, Admin: true}, Header: header,
					Body: []byte(message), Out: f, TakeBody: func() func() { return nil },
				}
				if err := s.Serve(b.Context(), x); err != nil || f.status != http.StatusOK {
					b.Fatal(err, f.status)
				}
			}
		})
	}
}

func BenchmarkCallSDK(b *testing.B) {
	server := sdk.NewServer(&sdk.Implementation{Name: "farhand", Version: "1"}, nil)
	for i := range 100 {
		server.AddTool(&sdk.Tool{Name: fmt.Sprint("tool", i), InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return nil, nil })
	}
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if method != methodCallTool {
				return next(ctx, method, req)
			}
			out, err := instant{}.Invoke(ctx, agent.Request{})
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: out.Result.Output}}}, err
		}
	})
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
		&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, PropagateRequestCancellation: true})
	r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
	r.Header = benchHeader()
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		r.Body = io.NopCloser(strings.NewReader(benchCall))
		if h.ServeHTTP(w, r); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"now"`) {
			b.Fatal(w.Code, w.Body)
		}
	}
}
