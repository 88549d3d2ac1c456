package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/gorilla/websocket"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/ws/client"
)

// hostileServer returns an MCP server that has the texts in everything that it names and answers, and so many tools and
// one more.
func hostileServer(texts []string, tools int) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: texts[0], Title: texts[1], Version: texts[2]}, &mcp.ServerOptions{
		Instructions: strings.Join(texts, "\n"), Logger: slog.New(slog.DiscardHandler), // of names that are none
	})
	var content []mcp.Content
	structured := make(map[string]any)
	for i, text := range texts {
		about := &mcp.Annotations{Audience: []mcp.Role{mcp.Role(text)}, LastModified: text}
		content = append(content, &mcp.ResourceLink{
			URI: text, Name: text, Title: text, Description: text, MIMEType: text, Annotations: about,
		})
		if i < 24 { // a result has 16 parts
			content = append(content, &mcp.EmbeddedResource{Annotations: about, Resource: &mcp.ResourceContents{
				URI: text, MIMEType: []string{"text/html", "image/svg+xml", text}[i%3], Text: text,
			}})
		}
		structured[text] = []string{text}
	}
	answer := func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i, text := range texts[:20] {
			if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: r.Params.GetProgressToken(), Progress: float64(i), Message: text,
			}); err != nil {
				return nil, err
			}
		}
		return &mcp.CallToolResult{Content: content, StructuredContent: structured}, nil
	}
	for i, text := range texts[:tools] {
		s.AddTool(&mcp.Tool{
			Name: fmt.Sprintf("t%d%s", i, text), Title: text, Description: []string{"", text}[i%2],
			Annotations: &mcp.ToolAnnotations{Title: text, ReadOnlyHint: true},
			InputSchema: map[string]any{
				"type": "object", "title": text, "properties": map[string]any{text: map[string]any{"title": text}},
			},
		}, answer)
	}
	s.AddTool(&mcp.Tool{Name: "answers", Title: texts[3], InputSchema: map[string]any{"type": "object"}}, answer)
	return s
}

// hostileUpstream returns the setting that makes a hostile MCP server one of the gateway's.
func hostileUpstream(t *testing.T, texts []string) string {
	t.Helper()
	server := hostileServer(texts, 12) // models get them all
	upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() {
		upstream.Close()
		for session := range server.Sessions() { // a pod that is killed leaves its session open
			_ = session.Close()
		}
	})
	file := filepath.Join(t.TempDir(), "servers.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers":{"stranger":{"url":"`+upstream.URL+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return "FARHAND_MCP_SERVERS=" + file
}

// connectServer connects an MCP server as `farhand device --mcp` does.
func connectServer(t testing.TB, url, session string, s *mcp.Server) {
	t.Helper()
	c, err := client.New("ws"+strings.TrimPrefix(url, "http")+"/ws/mcp", client.WithToken(fleetToken),
		client.WithSession(session))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	var both sync.WaitGroup
	t.Cleanup(both.Wait)
	t.Cleanup(cancel)
	both.Go(func() { _ = s.Run(ctx, &mcp.IOTransport{Reader: theirs, Writer: theirs}) })
	both.Go(func() { _ = c.RunMCP(ctx, ours) })
}

// connectFully connects a device with so many tools, again if the gateway was too busy to check all of them.
func connectFully(t testing.TB, url, session string, tools ...client.Option) {
	t.Helper()
	eventually(t, waitLimit, "all tools of "+session, func() bool {
		disconnect := connectDevice(t, url, session, tools...)
		var row struct{ Tools []any }
		getJSON(t, url+"/api/sessions/"+session, &row)
		if len(row.Tools) < len(tools) {
			disconnect()
		}
		return len(row.Tools) == len(tools)
	})
}

// mcpServers: what MCP servers name and answer, as devices and as servers of the gateway. Titles are nowhere else.
func (h *hostileStage) mcpServers() {
	connectServer(h.parentTB, h.url, "mcp-0", hostileServer(h.texts, len(h.texts)))
	h.view("/devices/mcp-0")
	h.see("Tools (201)", h.texts[0])
	h.press("1 more")
	h.inert()
	for _, tool := range []string{"/devices/mcp-0/tools/answers", "/tools/stranger__answers"} {
		h.view(tool)
		h.see("Arguments")
		h.press("Call")
		h.see("Succeeded")
		h.press("{200}")
		h.press("100 more")
		h.inert()
		h.press("Text")
		h.see(h.texts[199])
		h.inert()
		h.press("Open the call")
		h.see("Received by", "Decisions")
		h.inert()
	}
	h.titled()
}

// titled: an ordinary device gives its tool titles, as a server of MCP does.
func (h *hostileStage) titled() {
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.url, "http")+"/ws/chat?session_id=titled-0",
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if err != nil {
		h.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WriteJSON(map[string]any{"type": "register_tools", "tools": []any{map[string]any{
		"name": "named", "title": h.texts[6], "annotations": map[string]any{"title": h.texts[7], "readOnlyHint": true},
	}}}); err != nil {
		h.Fatal(err)
	}
	h.view("/devices/titled-0")
	h.see("named", "Read-only")
	h.inert()
}

// largeRecord makes the records of calls that the page reads large, and addresses of their parts malformed.
const largeRecord = `{
	const real = window.fetch, text = "<img src=x onerror=alert(1)>".repeat(360_000);
	window.fetch = async (to, ...rest) => {
		const answer = await real(to, ...rest);
		if (!/^\/api\/calls\/[\w-]+$/.test(new URL(to.url ?? to, location.href).pathname)) return answer;
		const {output_kept, ...record} = await answer.json();
		const urls = ["http://[", "//", "javascript:alert(1)", "/blobs/../api/me", "https://mallory.example/x", "\u0000"];
		return Response.json({...record, output: text, structured: {text, list: Array(1_000_000).fill(7)},
			parts: urls.map(url => ({type: "image", mime_type: "image/png", size: 1, url}))});
	};
}`

// large: as many tools as a device can register at once, and results of ten megabytes. What the page makes of them is
// bounded.
func (h *hostileStage) large() {
	const tools = 5000
	many := []client.Option{client.WithTool(client.Tool{Name: "large"},
		func(context.Context, client.Call) (any, error) {
			return strings.Repeat(h.texts[2], 10<<20/len(h.texts[2])), nil
		})}
	for i := 1; i < tools; i++ {
		many = append(many, client.WithTool(client.Tool{Name: fmt.Sprintf("tool-%04d", i), Description: h.texts[i%200]},
			func(context.Context, client.Call) (any, error) { return "done", nil }))
	}
	connectFully(h.parentTB, h.url, "many-0", many...)
	h.view("/devices?q=tool-4999")
	h.see("many-0")
	h.bounded()
	h.view("/devices/many-0")
	h.see("Tools (5000)", "4800 more")
	h.bounded()
	h.fill("Filter tools", "tool-4999")
	h.until("one tool", `document.querySelectorAll(".tool-list li").length === 1`)
	h.see("tool-4999")
	h.inert()
	h.view("/devices/many-0/tools/large")
	h.press("Call")
	h.see("Succeeded", "Cut here")
	h.bounded()
	script := evalScript(h.pageBrowser, largeRecord)
	h.view("/calls/" + callTool(h, h.url, "/api/sessions/many-0/tools/tool-0001/call", `{}`).CallID)
	h.press("list: [1000000]")
	h.see("999900 more")
	h.bounded()
	h.press("Text")
	h.see("Cut here")
	h.until("six parts without bytes", `document.body.innerText.split("These bytes were not stored").length === 7`)
	h.bounded()
	tellBrowser(h.pageBrowser, page.RemoveScriptToEvaluateOnNewDocument,
		page.RemoveScriptToEvaluateOnNewDocumentParams{Identifier: script})
}

// bounded fails the test if the page has more elements, or longer texts, than it can lay out at once.
func (h *hostileStage) bounded() {
	h.Helper()
	h.inert()
	if n := eval[int](h.pageBrowser, "document.querySelectorAll('*').length"); n > 5000 {
		h.Errorf("%d elements", n)
	}
	if n := eval[int](h.pageBrowser, "document.documentElement.outerHTML.length"); n > 4<<20 {
		h.Errorf("%d characters", n)
	}
}
