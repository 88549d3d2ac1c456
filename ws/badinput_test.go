package ws_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws"
)

func TestBadFramesAreAnsweredAndTheSocketStays(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	d := g.connect("clumsy")
	for _, bad := range ws.BadFrames() {
		t.Run(bad.Name, func(t *testing.T) {
			d.t = t
			d.send(bad.Frame)
			d.expectError(bad.Code, bad.Names)
			d.alive()
		})
	}
}

func TestBinaryMessageIsAnswered(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("binary")
	must(t, d.conn.WriteMessage(websocket.BinaryMessage, []byte(`{"type":"abort"}`)))
	d.expectError("INVALID_JSON", "text")
	d.alive()
}

func TestUnknownFieldsAndNullsAreIgnored(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("lenient")
	d.send(`{"type":"connect","v":1,"session_id":null,"device_name":null,"labels":null,` +
		`"future":{"a":[1,{"b":2}]},"TypeX":3}`)
	if got := d.expect("connected"); got["v"] != 1.0 || got["message"] != "Connection established" {
		t.Fatalf("connected: %v", got)
	}
	d.send(" \t\r\n{ \"type\" : \"abort\" , \"x\" : -1.5e300 } ")
	if got := d.expect("abort_ack"); got["status"] != "no_active_response" {
		t.Fatalf("abort_ack: %v", got)
	}
	d.send(`{"type":"tool_call_accepted","id":"1"}`)
	d.send(`{"type":"tool_progress","id":"1","progress":0.4,"total":1,"message":"m","chunk":{"x":1}}`)
	d.alive()
}

func TestInvalidUTF8ClosesWith1007(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for name, text := range map[string]string{
		"in a string":      "{\"type\":\"message\",\"content\":\"\xff\"}",
		"overlong":         "{\"type\":\"\xc0\xaf\"}",
		"surrogate":        "{\"type\":\"\xed\xa0\x80\"}",
		"outside the JSON": "\xfe",
	} {
		t.Run(name, func(t *testing.T) {
			d := g.connect("utf8")
			d.t = t
			d.send(text)
			d.expectClose(ws.CloseInvalidUTF8)
		})
	}
	g.connect("after").alive()
}

func TestRejectedTools(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	bad := []struct{ tool, name, reason string }{
		{`7`, "", "object"},
		{`null`, "", "object"},
		{`{"description":"no name"}`, "", "name"},
		{`{"name":5}`, "", "name"},
		{`{"Name":"upper_case_key"}`, "", "name"},
		{`{"name":"a","NAME":"b"}`, "", "NAME"},
		{`{"name":""}`, "", "name"},
		{`{"name":"good!"}`, "good!", "name"},
		{`{"name":"ｇood"}`, "ｇood", "looks like"},
		{`{"name":"sp ace"}`, "sp ace", "name"},
		{`{"name":"кириллица_gоod"}`, "кириллица_gоod", "one script"},
		{`{"name":"Good"}`, "Good", "looks like"},
		{`{"name":"` + strings.Repeat("x", 65) + `"}`, strings.Repeat("x", 65), "name"},
		{`{"name":"forbidden_tool"}`, "forbidden_tool", "not allow"},
		{`{"name":"bad_description","description":1}`, "bad_description", "description"},
		{`{"name":"schema_string","parameters":"{}"}`, "schema_string", "parameters"},
		{`{"name":"schema_array","parameters":[]}`, "schema_array", "parameters"},
		{`{"name":"schema_type","parameters":{"type":"nonsense"}}`, "schema_type", "parameters"},
		{`{"name":"schema_remote","parameters":{"$ref":"http://example.com/x"}}`, "schema_remote", "parameters"},
		{`{"name":"schema_pattern","parameters":{"pattern":"(?=x)"}}`, "schema_pattern", "parameters"},
		{`{"name":"schema_deep","parameters":` + strings.Repeat(`{"not":`, 33) + `{}` + strings.Repeat(`}`, 33) + `}`,
			"schema_deep", "32"},
		{`{"name":"schema_big","parameters":{"description":"` + strings.Repeat("x", 64<<10) + `"}}`, "schema_big",
			"65536"},
		{`{"name":"timeout_text","timeout_ms":"1"}`, "timeout_text", "timeout_ms"},
		{`{"name":"timeout_negative","timeout_ms":-1}`, "timeout_negative", "timeout_ms"},
		{`{"name":"level","security_level":"root"}`, "level", "security_level"},
		{`{"name":"annotated","annotations":{"readOnlyHint":"yes"}}`, "annotated", "readOnlyHint"},
		{`{"name":"annotated","annotations":7}`, "annotated", "annotations"},
	}
	tools := []string{`{"name":"good","description":"fine","parameters":{"type":"object"}}`}
	for _, b := range bad {
		tools = append(tools, b.tool)
	}
	tools = append(tools, `{"name":"bare"}`)
	d := g.connect("careless")
	d.send(`{"type":"register_tools","tools":[` + strings.Join(tools, ",") + `]}`)
	got := d.expect("tools_registered")
	if got["count"] != float64(len(tools)) || got["registered"] != 2.0 {
		t.Fatalf("count %v, registered %v", got["count"], got["registered"])
	}
	rejected, _ := got["rejected"].([]any)
	if len(rejected) != len(bad) {
		t.Fatalf("%d rejected, want %d: %v", len(rejected), len(bad), rejected)
	}
	for i, b := range bad {
		r := rejected[i].(map[string]any)
		if reason, _ := r["reason"].(string); r["name"] != b.name || !strings.Contains(reason, b.reason) {
			t.Errorf("%.60s: rejected as %v", b.tool, r)
		}
	}
	d.alive()
}

func TestThe129thToolIsRejected(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("greedy")
	var tools []string
	for i := range 129 {
		tools = append(tools, fmt.Sprintf(`{"name":"tool_%d"}`, i))
	}
	d.send(`{"type":"register_tools","tools":[` + strings.Join(tools, ",") + `]}`)
	got := d.expect("tools_registered")
	rejected, _ := got["rejected"].([]any)
	if got["count"] != 129.0 || got["registered"] != 128.0 || len(rejected) != 1 {
		t.Fatalf("tools_registered: %v", got)
	}
	if r := rejected[0].(map[string]any); r["name"] != "tool_128" || !strings.Contains(r["reason"].(string), "128") {
		t.Fatalf("rejected: %v", r)
	}
	// One that is there already may still be replaced, and one that goes makes room.
	d.send(`{"type":"register_tools","tools":[{"name":"tool_5","description":"new"}]}`)
	if got := d.expect("tools_registered"); got["registered"] != 128.0 || got["rejected"] != nil {
		t.Fatalf("tools_registered: %v", got)
	}
	d.send(`{"type":"unregister_tools","names":["tool_0","never_there"]}`)
	if got := d.expect("tools_registered"); got["count"] != 2.0 || got["registered"] != 127.0 {
		t.Fatalf("tools_registered: %v", got)
	}
	d.send(`{"type":"register_tools","tools":[{"name":"tool_128"}]}`)
	if got := d.expect("tools_registered"); got["registered"] != 128.0 || got["rejected"] != nil {
		t.Fatalf("tools_registered: %v", got)
	}
}

func TestRegisteredToolsAreListed(t *testing.T) {
	t.Parallel()
	d := newGateway(t).connect("lister")
	d.send(`{"type":"get_registered_tools"}`)
	if got := d.expect("registered_tools"); len(got["tools"].([]any)) != 0 {
		t.Fatalf("registered_tools: %v", got)
	}
	d.send(`{"type":"register_tools","tools":[{"name":"b","description":"<b> & co",` +
		`"parameters":{"type":"object","maximum":12345678901234567890}},{"name":"a"}]}`)
	d.expect("tools_registered")
	d.send(`{"type":"get_registered_tools"}`)
	_, data, err := d.conn.ReadMessage()
	must(t, err)
	var got struct {
		Tools []struct {
			Name        string
			Description string
			Parameters  json.RawMessage
		}
	}
	must(t, json.Unmarshal(data, &got))
	if len(got.Tools) != 2 || got.Tools[0].Name != "a" || got.Tools[1].Description != "<b> & co" ||
		!strings.Contains(string(got.Tools[1].Parameters), "12345678901234567890") ||
		!strings.Contains(string(data), "<b> & co") {
		t.Fatalf("registered_tools: %s", data)
	}
}

// Fields of a tool that registration does not know are named, not dropped in silence: also when another device has sent
// the same definition before.
func TestUnknownFieldsOfToolsAreNamed(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, session := range []string{"first", "second"} {
		d := g.connect(session)
		d.send(`{"type":"register_tools","tools":[
			{"name":"plain","description":"d","parameters":{},"timeout_ms":null,"security_level":"safe",
				"annotations":{"readOnlyHint":true}},
			{"name":"rich","title":"Rich","x-vendor":null,"annotations":{"title":"Rich","openWorldHint":true}},
			{"name":"bad name","title":"Bad"}]}`)
		got := d.expect("tools_registered")
		named, err := json.Marshal(got["ignored"])
		if err != nil {
			t.Fatal(err)
		}
		const want = `[{"fields":["title","x-vendor","annotations.title"],"name":"rich"}]`
		if string(named) != want || got["registered"] != 2.0 {
			t.Errorf("%v, want ignored %s", got, want)
		}
	}
}
