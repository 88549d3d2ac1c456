package farhand_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/testkit"
)

// serversFile writes a file with one server at a URL.
func serversFile(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "servers.json")
	text := fmt.Sprintf(`{"mcpServers": {"far": {"url": %q}}}`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// get returns the body of an answer.
func getText(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The tools of an MCP server are listed and called as any other, and follow the policy; a server that is not there
// hurts nobody.
func TestToolsOfAnMCPServer(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	type in struct {
		Text string `json:"text"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "say"},
		func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
	upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		upstream.CloseClientConnections()
		upstream.Close()
	})
	url := start(t, farhand.Config{MCPServers: serversFile(t, upstream.URL),
		ToolNames: agent.PolicyRules{CallDeny: []string{"far__no*"}}})
	list := ""
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(list, "far__say"); {
		if list = getText(t, url+"/api/tools?source_type=mcp"); time.Now().After(deadline) {
			t.Fatalf("listed: %s", list)
		}
	}
	if !strings.Contains(list, `"source":"mcp:far"`) {
		t.Errorf("listed: %s", list)
	}
	resp, err := http.Post(url+"/api/tools/far__say/call", "application/json",
		strings.NewReader(`{"args": {"text": "hello"}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Output string `json:"output"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Output != "hello" {
		t.Errorf("%d: %+v, %v", resp.StatusCode, answer, err)
	}
	if text := getText(t, url+"/metrics"); !strings.Contains(text, `farhand_mcp_server_up{server="far"} 1`) {
		t.Error("no metric says that the server answers")
	}
	found := false
	for _, f := range farhand.Diagnose(t.Context(), farhand.Config{MCPServers: serversFile(t, upstream.URL)}, nil,
		self) {
		found = found || f.Part == "mcp servers" && f.OK && strings.Contains(f.Text, "far: 1 tools")
	}
	if !found {
		t.Error("doctor does not know the server")
	}
}

// A server that never answers delays neither the start nor a list nor the end of a gateway.
func TestMCPServerThatNeverAnswers(t *testing.T) {
	over := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	defer upstream.Close()
	defer close(over)
	url := start(t, farhand.Config{MCPServers: serversFile(t, upstream.URL)})
	if text := getText(t, url+"/api/tools"); strings.Contains(text, "far__") {
		t.Errorf("listed: %s", text)
	}
	if text := getText(t, url+"/readyz"); strings.Contains(text, "far") {
		t.Errorf("ready: %s", text)
	}
}

// A call of a tool whose server is away, also one that has not answered yet, is not told that there is no such tool.
func TestCallWhileAnMCPServerIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // so nothing answers there
	url := start(t, farhand.Config{MCPServers: serversFile(t, "http://"+listener.Addr().String())})
	const soon = `{"timeout_ms": 1000}` // leaves time to admit the call on a busy machine
	resp, err := http.Post(url+"/api/tools/far__say/call", "application/json", strings.NewReader(soon))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	const away = `"code":"not_connected"`
	if resp.StatusCode != http.StatusConflict || resp.Header.Get("Retry-After") == "" ||
		!strings.Contains(string(text), away) || !strings.Contains(string(text), `"retryable":true`) {
		t.Errorf("over HTTP: %d %v %s", resp.StatusCode, resp.Header, text)
	}
	resp, err = http.Post(url+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,`+
		`"method":"tools/call","params":{"name":"far__say","_meta":{"farhand/timeout_ms":1000}}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ = io.ReadAll(resp.Body)
	if !strings.Contains(string(text), away) || !strings.Contains(string(text), `"retryable":true`) ||
		!strings.Contains(string(text), `"retry_after_ms":`) {
		t.Errorf("over MCP: %s", text)
	}
}

// A file that cannot be used ends the start with the reason.
func TestFileOfMCPServersIsChecked(t *testing.T) {
	_, err := farhand.New(t.Context(), farhand.Config{MCPServers: serversFile(t, "ftp://x")}, quiet)
	if err == nil || !strings.Contains(err.Error(), "FARHAND_MCP_SERVERS") || !strings.Contains(err.Error(), "http") {
		t.Error(err)
	}
}

// Slow calls of one tenant do not keep those of another from a server that they share.
func TestMCPServerIsShared(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	type in struct {
		Slow bool `json:"slow,omitempty"`
	}
	begun, over := make(chan struct{}, 16), make(chan struct{})
	mcp.AddTool(server, &mcp.Tool{Name: "do"},
		func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			if in.Slow {
				begun <- struct{}{}
				<-over
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
	upstream := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		upstream.CloseClientConnections()
		upstream.Close()
	})
	url := start(t, farhand.Config{Token: adminToken, MCPServers: serversFile(t, upstream.URL)})
	hostile := makeKey(t, url, `{"roles":["caller"],"tenant":"hostile"}`).Key
	other := makeKey(t, url, `{"roles":["caller"],"tenant":"other"}`).Key
	for deadline := time.Now().Add(limit); ; {
		if _, list := send(t, url+"/api/tools?source_type=mcp", "", other); strings.Contains(list, "far__do") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("listed: %s", list)
		}
	}
	quick := testkit.Alone(t, "calls to one MCP server", func() error {
		status, text := send(t, url+"/api/tools/far__do/call", `{"timeout_ms":20000}`, other)
		if status != http.StatusOK || !strings.Contains(text, "done") {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	ended := make(chan int, 16)
	for range cap(ended) { // a server takes eight of them at once
		go func() {
			status, _ := send(t, url+"/api/tools/far__do/call", `{"args":{"slow":true}}`, hostile)
			ended <- status
		}()
	}
	for range 4 {
		<-begun
	}
	quick.Crowded()
	close(over)
	for range cap(ended) {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("a slow call: %d", status)
		}
	}
}
