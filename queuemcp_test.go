package farhand_test

import (
	"encoding/json"
	"fmt"
	"io"
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
	for _, wrong := range []withQueue{"999", "86400001", "soon"} { // tools that are listed for it could not be called
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := wrong.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: status %d", wrong, resp.StatusCode)
		}
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

// mcpCallAnswer is the answer to a request about a call or its task.
type mcpCallAnswer struct {
	Result struct {
		ResultType, TaskID, Status, StatusMessage string
		Content                                   []struct{ Text string }
		Result                                    struct{ Content []struct{ Text string } }
	}
	Error struct {
		Code    int
		Message string
	}
}

// A call with farhand/queue in its _meta waits for its device. For a client that takes tasks it is a task: it works
// while it waits, can be cancelled, and has the result in the end.
func TestMCPQueuesACall(t *testing.T) {
	url := start(t, farhand.Config{Token: adminToken})
	q := queuePods{T: t, a: url, b: url}
	q.slept("phone", echoTools)
	ask := func(method, name, params, meta, extensions string) (said mcpCallAnswer) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,"_meta":{%s`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
			`"io.modelcontextprotocol/clientCapabilities":{"extensions":{%s}}}}}`, method, params, meta, extensions)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/mcp/sessions/phone",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Authorization": {"Bearer " + adminToken}, "Content-Type": {"application/json"},
			"Accept":               {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {name},
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(text, &said)
		}
		if err != nil {
			t.Fatalf("%s: %v %s", method, err, text)
		}
		return said
	}
	const tasks = `"io.modelcontextprotocol/tasks":{}`
	call := func(n int, queue, extensions string) mcpCallAnswer {
		t.Helper()
		return ask("tools/call", "echo", fmt.Sprintf(`"name":"echo","arguments":{"n":%d}`, n),
			`"farhand/queue":`+queue+",",
			extensions)
	}
	about := func(method, id string) mcpCallAnswer {
		t.Helper()
		return ask(method, id, `"taskId":"`+id+`"`, "", tasks)
	}
	const hour = `{"ttl_ms":3600000}`
	for _, wrong := range []string{`{"ttl_ms":0}`, `{}`, `7`, `{"ttl_ms":1.5}`, `{"ttl_ms":999}`,
		`{"ttl_ms":90000000}`} {
		if said := call(0, wrong, tasks); said.Error.Code != -32602 {
			t.Errorf("%s: %+v", wrong, said)
		}
	}
	said := call(1, hour, "")
	if c := said.Result.Content; len(c) != 1 || !strings.Contains(c[0].Text, "queued at position 1") {
		t.Errorf("without tasks: %+v", said)
	}
	task := func(n int) string {
		t.Helper()
		said := call(n, hour, tasks).Result
		if said.ResultType != "task" || said.Status != "working" ||
			!strings.Contains(said.StatusMessage, "device, which sleeps") {
			t.Fatalf("a task: %+v", said)
		}
		return said.TaskID
	}
	gone, kept := task(2), task(3)
	if said := about("tasks/get", kept); said.Result.Status != "working" {
		t.Errorf("while it waits: %+v", said)
	}
	if said := about("tasks/cancel", gone); said.Error.Code != 0 {
		t.Errorf("cancel: %+v", said)
	}
	if said := about("tasks/get", gone); said.Result.Status != "cancelled" ||
		q.outcome(url, gone).State != "cancelled" {
		t.Errorf("cancelled: %+v", said)
	}
	phone := wakePhone(t, url, "phone", adminToken, echoTools, true)
	q.outcome(url, kept)
	said = about("tasks/get", kept)
	if c := said.Result.Result.Content; said.Result.Status != "completed" || len(c) != 1 || c[0].Text != `{"n":3}` {
		t.Errorf("in the end: %+v", said)
	}
	if got := strings.Join(phone.seen(), " "); got != `{"n":1} {"n":3}` {
		t.Errorf("the device got %s", got)
	}
}
