package api_test

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/registry/textsafe"
)

// answers returns a device that answers every call in the same way.
func answers(r registry.Result) func(routing.DeviceCall) (registry.Result, bool) {
	return func(routing.DeviceCall) (registry.Result, bool) { return r, true }
}

// What a tool returns is content of the kind it is.
func TestMCPContent(t *testing.T) {
	f := newFleet(t, setup{})
	part := func(kind registry.PartType, mime, data, url string) registry.Part {
		return registry.Part{Type: kind, MIMEType: mime, Name: "n", Data: []byte(data), URL: url, Size: 3}
	}
	for i, c := range []struct {
		result registry.Result
		want   string
	}{
		{registry.Result{Success: true, Output: "hi"}, `{"type":"text","text":"hi"}`},
		{registry.Result{Success: true}, `{"type":"text","text":""}`},
		{registry.Result{Success: false, Error: "broken"}, `{"type":"text","text":"broken"}`},
		{registry.Result{Success: true, Parts: []registry.Part{part(registry.PartImage, "image/png", "png", "")}},
			`{"type":"image","data":"cG5n","mimeType":"image/png"}`},
		{registry.Result{Success: true, Parts: []registry.Part{part(registry.PartAudio, "audio/wav", "wav", "")}},
			`{"type":"audio","data":"d2F2","mimeType":"audio/wav"}`},
		{registry.Result{Success: true, Parts: []registry.Part{part(registry.PartFile, "text/plain", "txt", "")}},
			`{"type":"resource","resource":{"uri":"farhand://calls/ID/parts/0","mimeType":"text/plain","text":"txt"}}`},
		{registry.Result{Success: true, Parts: []registry.Part{part(registry.PartFile, "a/b", "\xff", "")}},
			`{"type":"resource","resource":{"uri":"farhand://calls/ID/parts/0","mimeType":"a/b","blob":"/w=="}}`},
		{registry.Result{Success: true, Output: "see", Parts: []registry.Part{
			part(registry.PartImage, "image/png", "", "/blobs/x"),
		}}, `{"type":"text","text":"see"},{"type":"resource_link","uri":"URL/blobs/x","name":"n",` +
			`"mimeType":"image/png","size":3}`},
		{registry.Result{Success: true, Parts: []registry.Part{part(registry.PartFile, "a/b", "", "")}},
			`{"type":"text","text":"[n, a/b, 3 bytes, not stored]"}`},
		{registry.NewResult(true, registry.MustJSON(`[1]`), ""), `{"type":"text","text":"[1]"}`},
	} {
		c.want = strings.Replace(c.want, "URL", f.pods[0].server.URL, 1)
		id := fmt.Sprint("s", i)
		f.connect(0, session(id), answers(c.result), tools("t")...)
		var res struct {
			Meta              map[string]json.RawMessage `json:"_meta"`
			Content           json.RawMessage
			IsError           bool
			StructuredContent json.RawMessage
		}
		f.mcp(0, "/mcp/sessions/"+id, "tools/call", `"name":"t"`).into(t, &res)
		var call string
		f.must(json.Unmarshal(res.Meta["farhand/call_id"], &call))
		if got := strings.ReplaceAll(string(res.Content), call, "ID"); got != "["+c.want+"]" ||
			res.IsError == c.result.Success || string(res.StructuredContent) != c.result.Structured.String() {
			t.Errorf("%+v: %s %v %s", c.result, got, res.IsError, res.StructuredContent)
		}
	}
	f.connect(0, session("list"), answers(registry.NewResult(true, registry.MustJSON(`[1]`), "")), tools("t")...)
	if got := f.legacy(0, "/mcp/sessions/list", "tools/call", `"name":"t"`).tool(t); got.StructuredContent != nil {
		t.Errorf("of an earlier revision: %s", got.StructuredContent)
	}
}

// A client of MCP is a model: what it reads of a result has nothing in it that a reader would not see. What the tool
// returned byte for byte is a file, for those that ask for it.
func TestMCPContentIsClean(t *testing.T) {
	f := newFleet(t, setup{})
	const hidden = "a\x1b[31mb\x00c\u202ed\u200be\U000E0041f"
	quoted := `"a\u001b[31mb\u0000c\u202ed\u200be\udb40\udc41f"`
	file := registry.Part{
		Type: registry.PartFile, MIMEType: "text/plain", Name: hidden, URI: "x:" + hidden, Data: []byte(hidden),
		Size: 9,
	}
	link := registry.Part{Type: registry.PartFile, MIMEType: "a/b", Name: hidden, URL: "/blobs/x", Size: 9}
	structured := registry.NewResult(true, registry.MustJSON(`{"k\u200b":[`+quoted+`,1.50]}`), "")
	text := registry.Result{Success: true, Output: hidden + "!", Parts: []registry.Part{file, link}}
	failed := registry.Result{Error: hidden}
	same := registry.NewResult(true, registry.MustJSON(`{"k":1,"k\u200b":2}`), "")
	for i, c := range []struct {
		result              registry.Result
		content, structured string // clean
		exact, mimeType     string
	}{
		{text, "abcdef!|abcdef x:abcdef|abcdef", "", hidden + "!", "text/plain"},
		{structured, "", `{"k":["abcdef",1.50]}`, structured.Structured.String(), "application/json"},
		{failed, "abcdef", "", hidden, "text/plain"},
		{same, "", "", same.Structured.String(), "application/json"},
	} {
		id := fmt.Sprint("s", i)
		f.connect(0, session(id), answers(c.result), tools("t")...)
		res := f.mcp(0, "/mcp/sessions/"+id, "tools/call", `"name":"t"`).tool(t)
		var said []string
		for _, b := range res.Content {
			said = append(said, strings.TrimSpace(b.Text+b.Name+b.Resource.Text+" "+b.Resource.URI))
		}
		all := strings.Join(said, "|")
		if c.content != "" && all != c.content || textsafe.Hides(all) || string(res.StructuredContent) != c.structured {
			t.Errorf("%d: %q, %s", i, said, res.StructuredContent)
		}
		header := http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"t"},
			"Accept": {"application/json, text/event-stream"}}
		exact := f.rpc(request{method: http.MethodPost, path: "/mcp/sessions/" + id, header: header,
			body: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t",` +
				strings.Replace(mcpMeta, "{", `{"farhand/exact":true,`, 1) + `}}`}).tool(t)
		last := exact.Content[len(exact.Content)-1].Resource
		data, err := base64.StdEncoding.DecodeString(last.Blob)
		if err != nil || string(data) != c.exact || last.MIMEType != c.mimeType ||
			!strings.HasPrefix(last.URI, "farhand://calls/") || !strings.HasSuffix(last.URI, "/output") {
			t.Errorf("%d, exactly: %+v, %v", i, last, err)
		}
		if string(exact.StructuredContent) != c.structured {
			t.Errorf("%d, exactly: %s", i, exact.StructuredContent)
		}
	}
}

// Links begin with the URL that clients are told, if there is one, and with the one they came by else.
func TestMCPLinks(t *testing.T) {
	link := answers(registry.Result{Success: true, Parts: []registry.Part{
		{Type: registry.PartImage, MIMEType: "image/png", URL: "/blobs/x", Size: 3},
	}})
	for _, public := range []string{"", publicResource.URL} {
		f := newFleet(t, resource(api.Resource{URL: public}))
		f.connect(0, session("s1"), link, tools("t")...)
		want := cmp.Or(public, f.pods[0].server.URL) + "/blobs/x"
		if got := f.mcp(0, "/mcp", "tools/call", `"name":"t"`).tool(t); got.Content[0].URI != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
}

// What keeps a call from running is an error with the gateway's code, but for arguments that a model can mend.
func TestMCPFailures(t *testing.T) {
	f := newFleet(t, setup{policy: agent.PolicyRules{CallDeny: []string{"secret"}}})
	d := f.connect(0, session("s1"), silent, tool("t", "", `{"type":"object","required":["a"]}`), tool("secret", ""))
	for params, want := range map[string]struct {
		code int
		name registry.Code
	}{
		`"name":"none"`:             {-32602, registry.CodeToolNotFound},
		`"name":"t__ghost"`:         {-32602, registry.CodeSessionNotFound},
		`"name":"secret"`:           {-32000, registry.CodePolicyDenied},
		`"name":"t","arguments":[]`: {-32602, ""},
		`"name":""`:                 {-32602, ""},
		`"name":"t","_meta":{"farhand/timeout_ms":0}`:                      {-32602, ""},
		`"name":"t","_meta":{"farhand/idempotency_key":""}`:                {-32602, ""},
		`"name":"t","arguments":{"a":1},"_meta":{"farhand/timeout_ms":20}`: {-32000, registry.CodeTimeout},
	} {
		got := f.legacy(0, "/mcp", "tools/call", params)
		if got.Error == nil || got.Error.Code != want.code || got.Error.Data.Code != want.name ||
			want.name != "" && got.Error.Data.Dispatched == "" && want.name != registry.CodeSessionNotFound {
			t.Errorf("%s: %+v", params, got.Error)
		}
	}
	<-d.calls
	res := f.mcp(0, "/mcp", "tools/call", `"name":"t","arguments":{}`).tool(t)
	if !res.IsError || !strings.Contains(res.Content[0].Text, "missing property 'a'") {
		t.Errorf("%+v", res)
	}
	equal(t, "listed", f.mcp(0, "/mcp", "tools/list", "").names(t), []string{"t"})
	if log := f.logOf(0); !strings.Contains(log, "code=policy_denied") || !strings.Contains(log, "route=/mcp") {
		t.Errorf("the log does not say why calls failed: %s", log)
	}
}

// A repetition with a key gets the answer of the first call.
func TestMCPIdempotency(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	d := f.connect(0, session("s1"), echo, tools("t")...)
	var ids [2]string
	for pod := range ids {
		got := f.legacy(pod, "/mcp", "tools/call", `"name":"t","_meta":{"farhand/idempotency_key":"k"}`)
		var res struct {
			Meta struct {
				CallID string `json:"farhand/call_id"`
			} `json:"_meta"`
		}
		got.into(t, &res)
		ids[pod] = res.Meta.CallID
	}
	if ids[0] == "" || ids[0] != ids[1] || len(d.calls) != 1 {
		t.Errorf("%v, %d calls", ids, len(d.calls))
	}
}

// A large fleet is searched, page by page, and what is found is called by its own name.
func TestMCPSearch(t *testing.T) {
	f := newFleet(t, setup{policy: agent.PolicyRules{CallDeny: []string{"light_off"}}})
	for i := range 3 {
		f.connect(0, session(fmt.Sprint("s", i)), echo, tool("light_on", "Switches a lamp"), tool("light_off", ""),
			tool("größe", ""))
	}
	equal(t, "tools", f.mcp(0, "/mcp?tools=search", "tools/list", "").names(t), []string{"call_tool", "search_tools"})
	var found []string
	for cursor := ""; ; {
		res := f.mcp(0, "/mcp?tools=search", "tools/call",
			`"name":"search_tools","arguments":{"query":"LAMP","limit":2,"cursor":"`+cursor+`"}`).tool(t)
		var page struct {
			Tools []struct {
				Name, Session string
				InputSchema   json.RawMessage
			}
			NextCursor string
		}
		f.must(json.Unmarshal(res.StructuredContent, &page))
		for _, tool := range page.Tools {
			found = append(found, tool.Name+" "+tool.Session)
		}
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	equal(t, "found", found, []string{"light_on s0", "light_on s1", "light_on s2"})
	call := func(args string) toolResult {
		return f.mcp(0, "/mcp?tools=search", "tools/call", `"name":"call_tool","arguments":`+args).tool(t)
	}
	for _, name := range []string{"light_on", "größe"} {
		res := call(`{"name":"` + name + `","session":"s1","arguments":{"a":1}}`)
		if res.IsError || res.Content[0].Text != `{"a":1}` {
			t.Errorf("%+v", res)
		}
	}
	for _, args := range []string{`{}`, `{"name":"light_on","session":7}`, `{"name":"light_on","arguments":[]}`} {
		if res := call(args); !res.IsError {
			t.Errorf("%s: %+v", args, res)
		}
	}
	for params, want := range map[string]registry.Code{
		`"name":"call_tool","arguments":{"name":"light_off","session":"s1"}`: registry.CodePolicyDenied,
		`"name":"call_tool","arguments":{"name":"light_on"}`:                 registry.CodeAmbiguousTarget,
		`"name":"light_on"`: registry.CodeToolNotFound,
	} {
		if got := f.mcp(0, "/mcp?tools=search", "tools/call", params); got.Error == nil || got.Error.Data.Code != want {
			t.Errorf("%s: %+v", params, got.Error)
		}
	}
	f.send(request{method: http.MethodPost, path: "/mcp?tools=all", body: `{}`}).want(http.StatusBadRequest)
}

// A list that does not fit on a page has every tool once, with its session.
func TestMCPPages(t *testing.T) {
	f := newFleet(t, setup{})
	big := tool("t", "", `{"type":"object","description":"`+strings.Repeat("x", 40<<10)+`"}`)
	for i := range 40 {
		f.connect(0, session(fmt.Sprintf("s%02d", i)), echo, big)
	}
	var all []string
	pages := 0
	for cursor := ""; ; pages++ {
		params := ""
		if cursor != "" {
			params = `"cursor":"` + cursor + `"`
		}
		got := f.mcp(0, "/mcp", "tools/list", params)
		var list struct{ NextCursor string }
		got.into(t, &list)
		if len(got.Result) > 2<<20 {
			t.Errorf("a page of %d bytes", len(got.Result))
		}
		all = append(all, got.names(t)...)
		if cursor = list.NextCursor; cursor == "" {
			break
		}
	}
	for i, name := range all {
		if name != fmt.Sprintf("t__s%02d", i) {
			t.Errorf("%d: %s", i, name)
		}
	}
	if len(all) != 40 || pages == 0 {
		t.Errorf("%d tools on %d pages", len(all), pages+1)
	}
}
