package ws_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws"
)

const countSchema = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`

// A tool's output schema is kept and listed; an answer that breaks it is passed on and marked, also in its record.
func TestOutputSchemaOfADevice(t *testing.T) {
	g := newGateway(t)
	d := g.connect("s1")
	d.send(`{"type":"register_tools","tools":[{"name":"count","output_schema":` + countSchema + `},
		{"name":"bad","output_schema":{"$ref":"https://example.com/x"}}]}`)
	if got := d.expect("tools_registered"); got["registered"] != 1.0 ||
		!strings.HasPrefix(got["rejected"].([]any)[0].(map[string]any)["reason"].(string), "output_schema: ") {
		t.Fatalf("registered %v", got)
	}
	d.send(`{"type":"get_registered_tools"}`)
	listed := d.expect("registered_tools")["tools"].([]any)[0].(map[string]any)
	if schema, ok := listed["output_schema"].(map[string]any); !ok || schema["type"] != "object" {
		t.Errorf("listed %v", listed)
	}
	for output, at := range map[string]string{`{"n":1}`: "-", `{"n":"1"}`: "/n", `"1"`: ""} {
		done := g.call("s1", "count", `{}`)
		d.send(`{"type":"tool_result","id":"` + d.expect("tool_call_request")["id"].(string) + `","output":` +
			output + `}`)
		d.expect("result_acknowledged")
		wantViolation(t, output, await(t, done), at)
	}
	id, done := g.callDurable("s1", "count")
	d.send(`{"type":"tool_result","id":"` + d.expect("tool_call_request")["id"].(string) + `","output":{"n":[]}}`)
	wantViolation(t, "of a durable call", await(t, done), "/n")
	rec, err := g.store.ReadCall(t.Context(), registry.DefaultTenant, id)
	must(t, err)
	wantViolation(t, "of its record", outcome{result: *rec.Result}, "/n")
}

func wantViolation(t *testing.T, what string, o outcome, at string) {
	t.Helper()
	found := o.result.Violations
	if o.err != nil || !o.result.Success || o.result.Output == "" || at == "-" && len(found) > 0 ||
		at != "-" && (len(found) != 1 || found[0].Pointer != at) {
		t.Errorf("%s: %+v", what, o)
	}
}

// The output schema of an MCP device's tool is kept if it can be used; the tool is offered without one that cannot.
func TestOutputSchemaOfAnMCPDevice(t *testing.T) {
	g := newGateway(t)
	p := g.dialMCP("session_id=s1")
	p.answer(p.initialize(), `{"tools":[{"name":"count","inputSchema":{"type":"object"},"outputSchema":`+countSchema+`},
		{"name":"odd","inputSchema":{"type":"object"},"outputSchema":{"$ref":"https://example.com/x"}}]}`)
	tools := g.offersMCP("s1", "count", "odd")
	if string(tools[0].OutputSchema) != countSchema || tools[1].OutputSchema != nil {
		t.Errorf("output schemas %s, %s", tools[0].OutputSchema, tools[1].OutputSchema)
	}
	for result, at := range map[string]string{
		`{"structuredContent":{"n":1},"content":[{"type":"text","text":"1"}]}`: "-",
		`{"structuredContent":{"n":0.5}}`:                                      "/n",
		`{"content":[{"type":"text","text":"1"}]}`:                             "",
	} {
		done := g.call("s1", "count", `{}`)
		p.answer(p.asked("tools/call"), result)
		wantViolation(t, result, await(t, done), at)
	}
}

// lines counts the lines of a log that have a text.
type lines struct {
	slog.Handler
	text string
	n    *atomic.Int64
}

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l lines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, l.text) {
		l.n.Add(1)
	}
	return nil
}

// However many output schemas cannot be used, and however often an MCP device changes its list, the log has one line.
func TestUnusableOutputSchemasDoNotFloodTheLog(t *testing.T) {
	var logged atomic.Int64
	g := newGateway(t, func(c *ws.Config) {
		c.Log = slog.New(lines{slog.DiscardHandler, "output schema", &logged})
	})
	p := g.dialMCP("session_id=s1")
	list := func(schema string) string {
		var tools []string
		for _, name := range []string{"a", "b", "c", "d"} {
			tools = append(tools, `{"name":"`+name+`","outputSchema":`+schema+`}`)
		}
		return `{"tools":[` + strings.Join(tools, ",") + `]}`
	}
	p.answer(p.initialize(), list("0"))
	g.offersMCP("s1", "a", "b", "c", "d")
	for _, schema := range []string{"1", "2"} {
		p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.answer(p.asked("tools/list"), list(schema))
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.answer(p.asked("tools/list"), `{"tools":[]}`)
	g.offersMCP("s1")
	if n := logged.Load(); n != 1 {
		t.Errorf("%d lines", n)
	}
}
