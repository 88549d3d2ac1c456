package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/farhand/farhand/cmd/farhand/mcpbridge"
	"github.com/farhand/farhand/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves a handler as a gateway, and returns its URL.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// pipe is the other side of a bridge that runs.
type pipe struct {
	*testing.T
	in    *io.PipeWriter
	lines *bufio.Scanner
	out   *io.PipeReader
	ended chan error
}

func bridge(t *testing.T, cfg mcpbridge.Config) *pipe {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	p := &pipe{T: t, in: inWrite, out: outRead, lines: bufio.NewScanner(outRead), ended: make(chan error, 1)}
	p.lines.Buffer(nil, mcpbridge.MaxMessage)
	client := &http.Client{Transport: &http.Transport{}}
	if cfg.Client == nil {
		cfg.Client = client
	}
	go func() {
		err := mcpbridge.Run(t.Context(), cfg, inRead, outWrite)
		outWrite.Close()
		p.ended <- err
	}()
	t.Cleanup(client.CloseIdleConnections)
	return p
}

func (p *pipe) say(format string, args ...any) {
	p.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.Fatal(err)
	}
}

// hear returns the next message.
func (p *pipe) hear() string {
	p.Helper()
	if !p.lines.Scan() {
		p.Fatalf("no message: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// end says that nothing more will be said, and returns what is heard until the bridge has ended.
func (p *pipe) end() (rest []string) {
	p.Helper()
	p.in.Close()
	for p.lines.Scan() {
		rest = append(rest, p.lines.Text())
	}
	if err := <-p.ended; err != nil {
		p.Error(err)
	}
	return rest
}

// sdkServer is a server that others wrote, with a tool that says who asks, and one that waits for its end.
func sdkServer(started, cancelled chan<- struct{}) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"},
		func(ctx context.Context, req *mcp.CallToolRequest, in struct{ Name string }) (
			*mcp.CallToolResult, any, error,
		) {
			if token := req.Params.GetProgressToken(); token != nil {
				params := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1}
				err := req.Session.NotifyProgress(ctx, params)
				if err != nil {
					return nil, nil, err
				}
			}
			text := "hello " + in.Name + " " + req.Extra.Header.Get("Authorization")
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "wait"},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			started <- struct{}{}
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil, nil, ctx.Err()
		})
	return server
}

func sdkHandler(server *mcp.Server) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
}

// A client of the SDK, which knows nothing of the bridge, lists, calls, gets progress, cancels and hears of changes.
func TestClientOfTheSDK(t *testing.T) {
	t.Parallel()
	started, cancelled := make(chan struct{}, 1), make(chan struct{}, 1)
	server := sdkServer(started, cancelled)
	p := bridge(t, mcpbridge.Config{URL: serve(t, sdkHandler(server)), Token: "secret"})
	changed, progress := make(chan struct{}, 8), make(chan float64, 8)
	client := mcp.NewClient(&mcp.Implementation{Name: "near", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			progress <- req.Params.Progress
		},
	})
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: p.out, Writer: p.in}, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	params := &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"Name": "Ann"}}
	params.SetProgressToken("p1")
	res, err := session.CallTool(t.Context(), params)
	if err != nil || res.Content[0].(*mcp.TextContent).Text != "hello Ann Bearer secret" {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := <-progress; got != 1 {
		t.Errorf("progress %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "wait"}); err == nil {
		t.Error("a call that was cancelled has a result")
	}
	<-cancelled
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

// A client of an older revision hears of changed lists, which the server over HTTP could not tell it.
func TestOlderRevisionHearsOfChanges(t *testing.T) {
	t.Parallel()
	server, listening := sdkServer(nil, nil), make(chan struct{}, 1)
	server.AddSendingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				defer func() { listening <- struct{}{} }()
			}
			return next(ctx, method, req)
		}
	})
	p := bridge(t, mcpbridge.Config{URL: serve(t, sdkHandler(server))})
	p.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
		`"clientInfo":{"name":"old","version":"1"}}}`)
	var answer struct {
		Result struct {
			ProtocolVersion string
			Capabilities    struct{ Tools struct{ ListChanged bool } }
		}
	}
	if text := p.hear(); json.Unmarshal([]byte(text), &answer) != nil ||
		!answer.Result.Capabilities.Tools.ListChanged ||
		answer.Result.ProtocolVersion != "2025-06-18" {
		t.Fatalf("initialize: %s", text)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	<-listening
	mcp.AddTool(server, &mcp.Tool{Name: "new"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
	line := p.hear()
	if line != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` {
		t.Errorf("heard %s", line)
	}
	p.end()
}

// A client of an older revision cancels: the gateway receives it, with the session name that it gave this client.
func TestOlderRevisionCancels(t *testing.T) {
	t.Parallel()
	type seen struct{ body, session, version string }
	requests := make(chan seen, 8)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seen{string(body), r.Header.Get("Mcp-Session-Id"), r.Header.Get("Mcp-Protocol-Version")}
		switch {
		case strings.Contains(string(body), "initialize"):
			w.Header().Set("Mcp-Session-Id", "name-1")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
		case strings.Contains(string(body), "tools/call"):
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	p := bridge(t, mcpbridge.Config{URL: url})
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"slow"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`,
	} {
		p.say("%s", line)
		got, want := <-requests, seen{line, "name-1", "2025-11-25"}
		if strings.Contains(line, "initialize") {
			want.session, want.version = "", ""
			p.hear()
		}
		if got != want {
			t.Errorf("the gateway was sent %+v, want %+v", got, want)
		}
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	if rest := p.end(); len(rest) > 0 || len(requests) > 0 {
		t.Errorf("answered %q, and %d requests more", rest, len(requests))
	}
}

// What the gateway refuses, and what never reaches it, is answered with an error that has the id of the request.
func TestRefusals(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "token"):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"code":"unauthenticated","detail":"This token is unknown."}`)
		case strings.Contains(string(body), "rpc-error"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "{\n\"jsonrpc\":\"2.0\",\"id\":2,\n\"error\":{\"code\":-32601,\"message\":\"no\"}}")
		case strings.Contains(string(body), "cut"):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n\n")
		case strings.Contains(string(body), "page"):
			_, _ = io.WriteString(w, "<html>")
		}
	}))
	for _, tt := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"token"}`,
			`"id":1,"error":{"code":-32603,"message":"This token is unknown. ` +
				"`farhand mcp` takes its token from --token or FARHAND_TOKEN." +
				`","data":{"code":"unauthenticated","status":401}}`},
		{`{"jsonrpc":"2.0","id":2,"method":"rpc-error"}`,
			`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}`},
		{`{"jsonrpc":"2.0","id":"a","method":"page"}`,
			`"id":"a","error":{"code":-32603,"message":"The server answered ` +
				`200 OK, and is not a Farhand gateway."`},
		{`{"jsonrpc":"2.0","id":3,"method":"cut"}`, `before the answer arrived`},
		{`{"jsonrpc`, `"id":null,"error":{"code":-32700`},
	} {
		p := bridge(t, mcpbridge.Config{URL: url})
		p.say("%s", tt.line)
		if got := strings.Join(p.end(), "\n"); !strings.Contains(got, tt.want) {
			t.Errorf("%s\n got %s\nwant %s", tt.line, got, tt.want)
		}
	}
	p := bridge(t, mcpbridge.Config{URL: "http://127.0.0.1:1"})
	p.say(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`)
	if got := p.hear(); !strings.Contains(got, "no answer from the gateway") {
		t.Error(got)
	}
	p.end()
}

// Version, method and name of a message are in its headers, whatever characters they have.
func TestHeaders(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		w.WriteHeader(http.StatusAccepted)
	}))
	p := bridge(t, mcpbridge.Config{URL: url})
	for name, want := range map[string]string{
		"greet": "greet", "grüße": "=?base64?Z3LDvMOfZQ==?=", " a": "=?base64?IGE=?=",
		"=?base64??=": "=?base64?PT9iYXNlNjQ/Pz0=?=",
	} {
		p.say(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":%q,"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, name)
		h := <-seen
		if h.Get("Mcp-Name") != want || h.Get("Mcp-Method") != "tools/call" ||
			h.Get("Mcp-Protocol-Version") != "2026-07-28" {
			t.Errorf("%q: %v", name, h)
		}
	}
	p.end()
}

// A stream of notifications whose connection breaks is asked for again, and its lists are said to have changed.
func TestStreamComesBack(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 4)
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`+
			`{"notifications":{"toolsListChanged":true}}}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		if len(asked) == 1 {
			return // the connection breaks
		}
		<-r.Context().Done()
	}))
	p := bridge(t, mcpbridge.Config{URL: url})
	p.say(`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"notifications":{"toolsListChanged":true}}}`)
	if got := p.hear(); !strings.Contains(got, "acknowledged") {
		t.Errorf("first %s", got)
	}
	if got, want := p.hear(), `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{`+
		`"io.modelcontextprotocol/subscriptionId":7}}}`; got != want {
		t.Errorf("then %s", got)
	}
	if rest := p.end(); len(rest) > 0 {
		t.Errorf("at the end %q", rest)
	}
}

// More requests than there are places are refused at once, and one with the id of another, too.
func TestBounds(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, mcpbridge.MaxRequests)
	url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see the client hang up
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	p := bridge(t, mcpbridge.Config{URL: url})
	for n := range mcpbridge.MaxRequests - 1 {
		p.say(`{"jsonrpc":"2.0","id":%d,"method":"x"}`, n)
		<-arrived
	}
	p.say(`{"jsonrpc":"2.0","id":0,"method":"x"}`)
	if got := p.hear(); !strings.Contains(got, "A request with this id is in flight") {
		t.Error(got)
	}
	p.say(`{"jsonrpc":"2.0","id":998,"method":"x"}`)
	<-arrived
	p.say(`{"jsonrpc":"2.0","id":999,"method":"x"}`)
	if got := p.hear(); !strings.Contains(got, "64 requests are in flight") || !strings.Contains(got, `"id":999`) {
		t.Error(got)
	}
	for n := range mcpbridge.MaxRequests - 1 {
		p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, n)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":998,"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	if rest := p.end(); len(rest) > 0 {
		t.Errorf("requests that were cancelled are answered: %q", rest)
	}
}

// A client may cancel a request in the next line, before the bridge has sent it.
func TestCancelInTheNextLine(t *testing.T) {
	t.Parallel()
	url := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	p := bridge(t, mcpbridge.Config{URL: url, Linger: testkit.Limit})
	for n := range mcpbridge.MaxRequests {
		p.say(`{"jsonrpc":"2.0","id":%d,"method":"x"}`+"\n"+
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, n, n)
	}
	if rest := p.end(); len(rest) > 0 {
		t.Errorf("requests that were cancelled are answered: %q", rest)
	}
}

// FuzzBridge: whatever a client says, the bridge ends with its input, and each line it writes is JSON.
func FuzzBridge(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `[]`, `{}`, `null`, `{"id":{}}`,
		`{"method":"initialize","id":1}`,
		`{"method":"notifications/cancelled","params":{"requestId":1}}`, `{"method":"subscriptions/listen","id":1}`,
	} {
		f.Add(line, line)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, first, second string) {
		var out strings.Builder
		cfg := mcpbridge.Config{URL: server.URL, Client: server.Client()}
		if err := mcpbridge.Run(t.Context(), cfg, strings.NewReader(first+"\n"+second), &out); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("wrote %q", line)
			}
		}
	})
}

// A server that answers initialize with nothing, or sends the bridge elsewhere, gets neither a crash nor the token.
func TestHostileServer(t *testing.T) {
	other := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server is asked, with %q", r.Header.Get("Authorization"))
	}))
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			http.Redirect(w, r, other, http.StatusTemporaryRedirect)
			return
		}
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"result":null}`)
	}))
	for path, want := range map[string]string{
		"": `"result":null`, "/elsewhere": "The server answered 307",
	} {
		p := bridge(t, mcpbridge.Config{URL: url + path, Token: "secret"})
		p.say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		if got := p.hear(); !strings.Contains(got, want) {
			t.Errorf("%q: %s", path, got)
		}
		p.end()
	}
}
