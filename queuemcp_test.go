package farhand_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// withQueue sends a token, and how long calls may wait, with each request.
type withQueue string

func (w withQueue) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Farhand-Queue", string(w))
	return bearer(adminToken).RoundTrip(r)
}

// An MCP client that sends the queue header sees the tools of sleeping devices, and its calls wait for them. Others do
// not see them.
func TestMCPListsSleepingDevices(t *testing.T) {
	url := start(t, farhand.Config{Token: adminToken})
	q := queuePods{T: t, a: url, b: url}
	q.slept("phone", echoTools)
	wakePhone(t, url, "tablet", adminToken, echoTools, true)
	if names := offered(t, mcpClient(t, url, adminToken)); strings.Contains(strings.Join(names, " "), "phone") {
		t.Errorf("listed without the header: %q", names)
	}
	queued := func(path string) *mcp.ClientSession {
		t.Helper()
		client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
			&mcp.StreamableClientTransport{
				Endpoint: url + path, HTTPClient: &http.Client{Transport: withQueue("600000")},
			}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	if found := searched(t, queued("/mcp?tools=search")); found != "tablet phone" {
		t.Errorf("the search found tools of %s", found)
	}
	for _, path := range []string{"/mcp", "/mcp/sessions/phone"} {
		client := queued(path)
		name := "echo__phone"
		if path != "/mcp" {
			name = "echo"
		}
		list, err := client.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var tool *mcp.Tool
		for _, listed := range list.Tools {
			if listed.Name == name {
				tool = listed
			} else if listed.Meta["farhand/presence"] != nil || path != "/mcp" {
				t.Errorf("%s: %+v", path, listed)
			}
		}
		if tool == nil || tool.Meta["farhand/presence"] != "sleeping" || tool.Meta["farhand/last_seen"] == nil ||
			!strings.Contains(tool.Description, "The device sleeps") {
			t.Fatalf("%s: %+v among %d tools", path, tool, len(list.Tools))
		}
		args := map[string]any{"at": path}
		result, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		text, _ := result.Content[0].(*mcp.TextContent)
		if text == nil || !strings.Contains(text.Text, "queued at position") {
			t.Errorf("%s: the call ended with %+v", path, result.Content)
		}
	}
	phone := wakePhone(t, url, "phone", adminToken, echoTools, true)
	testkit.Eventually(t, "the calls have run", func() bool { return len(phone.seen()) == 2 })
}

// searched returns the sessions that a search for echo finds, with one tool on a page.
func searched(t *testing.T, client *mcp.ClientSession) string {
	t.Helper()
	var sessions []string
	for cursor := ""; ; {
		result, err := client.CallTool(t.Context(), &mcp.CallToolParams{
			Name: "search_tools", Arguments: map[string]any{"query": "echo", "limit": 1, "cursor": cursor},
		})
		if err != nil {
			t.Fatal(err)
		}
		page, _ := result.StructuredContent.(map[string]any)
		tools, _ := page["tools"].([]any)
		for _, tool := range tools {
			session, _ := tool.(map[string]any)["session"].(string)
			sessions = append(sessions, session)
		}
		if cursor, _ = page["nextCursor"].(string); cursor == "" {
			return strings.Join(sessions, " ")
		}
	}
}
