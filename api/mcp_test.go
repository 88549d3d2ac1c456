package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// rpc is an answer of JSON-RPC as a client reads it.
type rpc struct {
	status int
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    struct {
			Code         registry.Code
			CallID       string `json:"call_id"`
			Dispatched   registry.Dispatched
			Retryable    bool
			RetryAfterMS int64 `json:"retry_after_ms"`
			Supported    []string
			Requested    string
			URI          string
		}
	}
}

const mcpMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{}}`

// mcp asks as a client of revision 2026-07-28 does. params are members, without braces.
func (f *fleet) mcp(pod int, path, method, params string) rpc {
	f.Helper()
	if params != "" {
		params += ","
	}
	header := http.Header{
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method},
		"Accept": {"application/json, text/event-stream"},
	}
	var named struct{ Name, URI string }
	f.must(json.Unmarshal([]byte("{"+params+mcpMeta+"}"), &named))
	if name := named.Name + named.URI; name != "" {
		header.Set("Mcp-Name", name)
	}
	return f.rpc(request{
		method: http.MethodPost, path: path, pod: pod, header: header,
		body: fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s%s}}`, method, params, mcpMeta),
	})
}

// legacy asks as a client of an earlier revision does.
func (f *fleet) legacy(pod int, path, method, params string) rpc {
	f.Helper()
	return f.rpc(request{
		method: http.MethodPost, path: path, pod: pod,
		body: fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s}}`, method, params),
	})
}

func (f *fleet) rpc(r request) rpc {
	f.Helper()
	return rpcOf(f.T, f.send(r))
}

func rpcOf(t *testing.T, r reply) rpc {
	t.Helper()
	out := rpc{status: r.status}
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &out); err != nil {
			t.Fatalf("%d %s: %v", r.status, r.body, err)
		}
	}
	return out
}

// names returns the names of a list of tools.
func (r rpc) names(t *testing.T) []string {
	t.Helper()
	var list struct{ Tools []struct{ Name string } }
	r.into(t, &list)
	names := make([]string, len(list.Tools))
	for i, tool := range list.Tools {
		names[i] = tool.Name
	}
	return names
}

func (r rpc) into(t *testing.T, v any) {
	t.Helper()
	if r.Error != nil || r.status != http.StatusOK {
		t.Fatalf("%d %+v", r.status, r.Error)
	}
	if err := json.Unmarshal(r.Result, v); err != nil {
		t.Fatalf("%s: %v", r.Result, err)
	}
}

// toolResult is what a call of MCP is answered with.
type toolResult struct {
	ResultType        string
	IsError           bool
	StructuredContent json.RawMessage
	Content           []struct {
		Type, Text, Data, MIMEType, URI, Name string
		Resource                              struct{ URI, MIMEType, Text, Blob string }
	}
}

func (r rpc) tool(t *testing.T) toolResult {
	t.Helper()
	var res toolResult
	r.into(t, &res)
	return res
}

// A device on one pod is listed and called on another, by clients old and new.
func TestMCPListsAndCalls(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	f.connect(0, session("kitchen"), echo, tool("light", ""), tool("dim", ""))
	f.connect(0, session("office"), echo, tool("light", ""))

	equal(t, "all", f.mcp(1, "/mcp", "tools/list", "").names(t),
		[]string{"dim", "light__kitchen", "light__office"})
	equal(t, "one session", f.legacy(1, "/mcp/sessions/kitchen", "tools/list", "").names(t), []string{"dim", "light"})

	for _, ask := range []func(int, string, string, string) rpc{f.mcp, f.legacy} {
		for path, name := range map[string]string{
			"/mcp": "light__office", "/mcp/sessions/office": "light", "/mcp/users/": "",
		} {
			if name == "" {
				continue
			}
			res := ask(1, path, "tools/call", `"name":"`+name+`","arguments":{"on":true}`).tool(t)
			if res.IsError || res.Content[0].Text != `{"on":true}` || string(res.StructuredContent) != `{"on":true}` {
				t.Errorf("%s: %+v", path, res)
			}
		}
		if got := ask(1, "/mcp", "tools/call", `"name":"dim"`); got.Error != nil { // the only one
			t.Errorf("dim: %+v", got.Error)
		}
		got := ask(1, "/mcp", "tools/call", `"name":"light"`) // two have it
		if got.Error == nil || got.Error.Data.Code != registry.CodeAmbiguousTarget ||
			got.Error.Data.Dispatched != registry.DispatchedNo || got.Error.Data.CallID == "" {
			t.Errorf("light: %+v", got.Error)
		}
	}
}

// What two of the repository's suites have found to matter in the first answers.
func TestMCPBegins(t *testing.T) {
	f := newFleet(t, setup{})
	var init struct {
		ProtocolVersion, Instructions string
		ServerInfo                    struct{ Name, Version string }
	}
	for asked, want := range map[string]string{
		"2025-11-25": "2025-11-25", "2024-11-05": "2024-11-05", "1999-01-01": "2025-11-25", "2026-07-28": "2025-11-25",
	} {
		f.legacy(0, "/mcp", "initialize", `"protocolVersion":"`+asked+`","capabilities":{}`).into(t, &init)
		if init.ProtocolVersion != want || init.ServerInfo.Version != "1.2.3" || init.Instructions == "" {
			t.Errorf("%s: %+v", asked, init)
		}
	}
	var found struct {
		SupportedVersions []string
		TTLMs             *int
		CacheScope        string
	}
	f.mcp(0, "/mcp", "server/discover", "").into(t, &found)
	if found.SupportedVersions[0] != "2026-07-28" || found.TTLMs == nil || found.CacheScope != "private" {
		t.Errorf("%+v", found)
	}
	for method, modern := range map[string]bool{
		"initialize": true, "ping": true, "prompts/list": true, "server/discover": false, "logging/setLevel": false,
	} {
		ask, want := f.legacy, http.StatusOK
		if modern {
			ask, want = f.mcp, http.StatusNotFound
		}
		if got := ask(0, "/mcp", method, ""); got.Error == nil || got.Error.Code != -32601 || got.status != want {
			t.Errorf("%s: %d %+v", method, got.status, got.Error)
		}
	}
	if got := f.send(request{method: http.MethodPost, path: "/mcp",
		body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}); got.status != http.StatusAccepted ||
		len(got.body) != 0 {
		t.Errorf("a notification: %d %s", got.status, got.body)
	}
}

// What cannot be read is refused with its id, if it has one.
func TestMCPRefuses(t *testing.T) {
	f := newFleet(t, setup{})
	modern := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/list"}}
	for body, want := range map[string]struct {
		status, code int
		id           string
		header       http.Header
	}{
		`[]`:              {400, -32600, "", nil},
		`[{"id":1}]`:      {400, -32600, "", nil},
		`{`:               {400, -32700, "", nil},
		`7`:               {400, -32600, "", nil},
		`{"id":1}`:        {400, -32600, "1", nil},
		`{"id":1,"id":2}`: {400, -32600, "", nil},
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                               {400, -32600, "", nil},
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:                                {400, -32600, "", nil},
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 300) + `","method":"ping"}`: {400, -32600, "", nil},
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`:                {200, -32602, "1", nil},
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat(`{"a":`, 99) + "1" +
			strings.Repeat("}", 99) + `}`: {400, -32600, "", nil},
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`:                            {400, -32602, "2", modern},
		`{"jsonrpc":"2.0","id":3,"method":"ping","params":{` + mcpMeta + `}}`:       {400, -32020, "3", modern},
		`{"jsonrpc":"2.0","id":4,"method":"tools/list","params":{` + mcpMeta + `}}`: {400, -32020, "4", nil},
		`{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`: {400, -32602, "5", modern},
		`{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{"cursor":"x",` +
			mcpMeta + `}}`: {400, -32602, "6", modern},
	} {
		got := f.rpc(request{method: http.MethodPost, path: "/mcp", body: body, header: want.header})
		if got.Error == nil || got.status != want.status || got.Error.Code != want.code || string(got.ID) != want.id {
			t.Errorf("%.80s: %d %s %+v", body, got.status, got.ID, got.Error)
		}
	}
	got := f.rpc(request{method: http.MethodPost, path: "/mcp", header: http.Header{
		"Mcp-Protocol-Version": {"2099-01-01"}, "Mcp-Method": {"tools/list"},
	}, body: `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` +
		strings.ReplaceAll(mcpMeta, "2026-07-28", "2099-01-01") + `}}`})
	if got.Error == nil || got.Error.Code != -32022 || got.Error.Data.Requested != "2099-01-01" ||
		len(got.Error.Data.Supported) == 0 || string(got.ID) != "1" {
		t.Errorf("%+v", got)
	}
	refused := f.rpc(request{
		method: http.MethodPost, path: "/mcp", body: `{}`, header: http.Header{"Authorization": nil},
	})
	if refused.status != http.StatusUnauthorized || refused.Error.Data.Code != registry.CodeUnauthenticated {
		t.Errorf("%+v", refused)
	}
}

// The resources show who is connected, each scope its own.
func TestMCPResources(t *testing.T) {
	f := newFleet(t, setup{})
	f.connect(0, session("kitchen"), echo, tool("light", ""))
	f.connect(0, session("office:1"), echo, tool("light", ""))
	read := func(path, uri string) (text string, failed int) {
		got := f.mcp(0, path, "resources/read", `"uri":"`+uri+`"`)
		if got.Error != nil {
			if got.Error.Data.URI != uri {
				t.Errorf("%s: %+v", uri, got.Error)
			}
			return "", got.Error.Code
		}
		var res struct {
			CacheScope string
			Contents   []struct{ URI, Text, MIMEType string }
		}
		got.into(t, &res)
		if res.Contents[0].URI != uri || res.CacheScope != "private" {
			t.Errorf("%+v", res)
		}
		return res.Contents[0].Text, 0
	}
	all, _ := read("/mcp", "farhand://sessions")
	one, _ := read("/mcp/sessions/kitchen", "farhand://sessions")
	if !strings.Contains(all, "office:1") || !strings.Contains(one, "kitchen") || strings.Contains(one, "office") {
		t.Errorf("%s\n%s", all, one)
	}
	if text, _ := read("/mcp", "farhand://sessions/office%3A1"); !strings.Contains(text, `"light"`) {
		t.Error(text)
	}
	for path, uri := range map[string]string{
		"/mcp": "farhand://sessions/ghost", "/mcp/sessions/kitchen": "farhand://sessions/office:1",
		"/mcp/users/anna": "farhand://sessions/kitchen", "/mcp/sessions/office:1": "test://static",
	} {
		if _, failed := read(path, uri); failed != -32602 {
			t.Errorf("%s %s: %d", path, uri, failed)
		}
	}
}
