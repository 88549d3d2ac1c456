package api_test

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Output schemas are listed on every pod, over HTTP and MCP. An answer that breaks its schema is marked over both, and
// in the record of its call.
func TestOutputSchemas(t *testing.T) {
	f := newFleet(t, setup{pods: 2})
	count, text := tool("count", ""), tool("text", "")
	count.OutputSchema = []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)
	text.OutputSchema = []byte(`{"type":"string"}`)
	f.connect(0, session("s"), func(c routing.DeviceCall) (registry.Result, bool) {
		return registry.NewResult(true, c.Args, ""), true
	}, count.Hashed(), text.Hashed())

	for path, want := range map[string]string{
		"/api/sessions/s":             `"output_schema":{"type":"object"`,
		"/api/tools":                  `"output_schema":{"type":"object"`,
		"/api/tools?view=grouped":     `"output_schema":{"type":"object"`,
		"/api/tools?format=mcp":       `"outputSchema":{"type":"object"`,
		"/api/tools?format=openai":    `"output_schemas":{"count":{"type":"object"`,
		"/api/tools?format=anthropic": `"output_schemas":{"count":{"type":"object"`,
	} {
		got := string(f.send(request{pod: 1, path: path}).want(200).body)
		if !strings.Contains(got, want) || strings.Contains(got, `"outputSchema":{"type":"string"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
	for format, exact := range map[string]string{ // the tools themselves can be handed on
		"openai": `{"type":"function","function":{"name":"count","description":"","parameters":` +
			string(count.Parameters) + `}}`,
		"anthropic": `{"name":"count","description":"","input_schema":` + string(count.Parameters) + `}`,
	} {
		var page struct {
			Tools   []registry.JSON
			Schemas map[string]registry.JSON `json:"output_schemas"`
		}
		f.send(request{pod: 1, path: "/api/tools/" + format + "?name=count"}).want(200).into(&page)
		if len(page.Tools) != 1 || page.Tools[0].String() != exact || len(page.Schemas) != 1 {
			t.Errorf("%s: %v, %v", format, page.Tools, page.Schemas)
		}
	}
	list := string(f.legacy(1, "/mcp", "tools/list", "").Result)
	if !strings.Contains(list, `"outputSchema":{"type":"object"`) || strings.Contains(list, `{"type":"string"}`) {
		t.Errorf("tools/list: %s", list)
	}

	for pod := range 2 {
		type marked struct {
			CallID     string               `json:"call_id"`
			Violations []registry.Violation `json:"output_violations"`
			Structured registry.JSON
		}
		call := func(args, more string) (m marked) {
			f.send(request{pod: pod, method: "POST", path: "/api/sessions/s/tools/count/call",
				body: `{"args":` + args + more + `}`}).want(200).into(&m)
			return m
		}
		if m := call(`{"n":1}`, ""); len(m.Violations) > 0 {
			t.Errorf("a valid answer: %+v", m)
		}
		for _, more := range []string{"", `,"idempotency_key":"k` + string(rune('0'+pod)) + `"`} {
			m := call(`{"n":"1"}`, more)
			if len(m.Violations) != 1 || m.Violations[0].Pointer != "/n" || m.Structured.String() != `{"n":"1"}` {
				t.Errorf("pod %d%s: %+v", pod, more, m)
			}
			if more != "" {
				var kept marked
				f.get("/api/calls/" + m.CallID).want(200).into(&kept)
				if len(kept.Violations) != 1 {
					t.Errorf("the record: %+v", kept)
				}
			}
		}
		good := f.legacy(pod, "/mcp", "tools/call", `"name":"count","arguments":{"n":1}`).tool(t)
		if good.IsError || string(good.StructuredContent) != `{"n":1}` {
			t.Errorf("over MCP: %+v", good)
		}
		bad := f.legacy(pod, "/mcp", "tools/call", `"name":"count","arguments":{"n":"1"}`).tool(t)
		if !bad.IsError || bad.StructuredContent != nil || len(bad.Content) != 2 ||
			bad.Content[0].Text != `{"n":"1"}` ||
			!strings.Contains(bad.Content[1].Text, "output schema") || !strings.Contains(bad.Content[1].Text, "/n: ") {
			t.Errorf("a broken answer over MCP: %+v", bad)
		}
	}
}
