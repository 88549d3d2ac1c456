package ws_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/ws"
)

// A device that speaks MCP is a session like any other: its request says who it is, its tools are listed and called.
func TestMCPDevice(t *testing.T) {
	g := newGateway(t)
	p := g.dialMCP("session_id=s1&device_id=d1&name=Lamp&platform=esp32&label=room=hall&label=floor=1&resume=true")
	ask := p.asked("initialize")
	var hello struct {
		ProtocolVersion string         `json:"protocolVersion"`
		Capabilities    map[string]any `json:"capabilities"`
		ClientInfo      map[string]any `json:"clientInfo"`
	}
	must(t, json.Unmarshal(ask.Params, &hello))
	if hello.ProtocolVersion != "2025-11-25" || len(hello.Capabilities) != 0 || hello.ClientInfo["name"] != "farhand" {
		t.Errorf("initialize: %s", ask.Params)
	}
	p.answer(ask, mcpServer)
	p.asked("notifications/initialized")
	p.answer(p.asked("tools/list"), `{"tools":[{"name":"self.lamp.set","title":"Lamp",
		"inputSchema":{"type":"object","properties":{"on":{"type":"boolean","required":true}}},
		"annotations":{"title":"x","readOnlyHint":false,"idempotentHint":true}}]}`)
	tool := g.offersMCP("s1", "self.lamp.set")[0]
	if tool.Description != "Lamp" || tool.Annotations == nil || !*tool.Annotations.IdempotentHint ||
		*tool.Annotations.ReadOnlyHint ||
		string(tool.Parameters) != `{"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]}` {
		t.Errorf("the tool: %+v %s", tool, tool.Parameters)
	}
	s := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: "s1"}).Session()
	if s.DeviceID != "d1" || s.Name != "Lamp" || s.Platform != "esp32" || s.DeviceName != "lamp" ||
		s.Labels["room"] != "hall" || s.Labels["floor"] != "1" || !s.Can(registry.CapabilityResume) {
		t.Errorf("the session: %+v", s)
	}

	done := g.call("s1", "self.lamp.set", `{"on":true}`)
	call := p.asked("tools/call")
	var params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken string `json:"progressToken"`
		} `json:"_meta"`
	}
	must(t, json.Unmarshal(call.Params, &params))
	if params.Name != "self.lamp.set" || string(params.Arguments) != `{"on":true}` ||
		fmt.Sprintf("%q", params.Meta.ProgressToken) != string(call.ID) {
		t.Errorf("tools/call: %s", call.Params)
	}
	p.answer(call, `{"content":[{"type":"text","text":"lit"}],"structuredContent":{"on":true}}`)
	o := await(t, done)
	if o.err != nil || !o.result.Success || o.result.Output != "lit" || o.result.Structured.String() != `{"on":true}` {
		t.Errorf("the result: %+v", o)
	}
	p.aliveMCP() // nothing else was sent, such as an acknowledgement
	must(t, p.conn.Close())
	if s := g.waitReleased(); s.Key.Session != "s1" {
		t.Errorf("released %v", s.Key)
	}
}

// Voice devices greet first, put messages into envelopes, know no other ids than numbers, and are sessions named after
// the devices they are.
func TestMCPVoiceDevice(t *testing.T) {
	g := newGateway(t)
	p := g.dialMCP("", "Device-Id", "AA:BB:CC:DD:EE:FF", "Protocol-Version", "1", "Client-Id", "x")
	must(t, p.conn.WriteMessage(websocket.BinaryMessage, []byte("voice")))
	p.send(`{"type":"hello","version":1,"features":{"mcp":true},"transport":"websocket",
		"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`)
	hello := p.expect("hello")
	if hello["transport"] != "websocket" || hello["session_id"] != "AA:BB:CC:DD:EE:FF" {
		t.Fatalf("hello: %v", hello)
	}
	p.envelope = true
	p.send(`{"session_id":"x","type":"listen","state":"detect","text":"hi"}`)
	p.answer(p.initialize(), mcpTools("self.audio_speaker.set_volume", "self.get_device_status"))
	g.offersMCP("AA:BB:CC:DD:EE:FF", "self.audio_speaker.set_volume", "self.get_device_status")
	first := g.call("AA:BB:CC:DD:EE:FF", "self.get_device_status", `{}`)
	one := p.asked("tools/call")
	second := g.call("AA:BB:CC:DD:EE:FF", "self.audio_speaker.set_volume", `{"volume":50}`)
	two := p.asked("tools/call")
	for _, id := range []json.RawMessage{one.ID, two.ID} {
		var n int32
		must(t, json.Unmarshal(id, &n))
	}
	p.say(`{"jsonrpc":"2.0","id":` + string(two.ID) + `,"error":{"message":"no speaker"}}`) // without a code
	p.answer(one, `{"content":[{"type":"text","text":"fine"}],"isError":false}`)
	if o := await(t, first); o.err != nil || o.result.Output != "fine" {
		t.Errorf("%+v", o)
	}
	if o := await(t, second); o.err != nil || o.result.Success || o.result.Output != "no speaker" {
		t.Errorf("%+v", o)
	}
	p.answer(one, `{"content":[{"type":"text","text":"again"}]}`) // changes nothing
	p.aliveMCP()

	// It loses its network without a word and comes back: the session is its own.
	again := g.dialMCP("", "Device-Id", "AA:BB:CC:DD:EE:FF", "Protocol-Version", "1")
	again.send(`{"type":"hello","transport":"websocket"}`)
	again.expect("hello")
	p.expectClose(ws.CloseReplaced)
}

// A device may greet although its request did not look like that of a voice device.
func TestMCPHelloAfterInitialize(t *testing.T) {
	g := newGateway(t)
	p := g.dialMCP("session_id=s1")
	p.asked("initialize")
	p.send(`{"type":"hello","transport":"websocket"}`)
	p.expect("hello")
	p.envelope = true
	p.answer(p.initialize(), mcpTools("t"))
	g.offersMCP("s1", "t")
}

// Everything a result of MCP may hold, as a result of ours.
func TestMCPResults(t *testing.T) {
	g := newGateway(t)
	p := g.connectMCP("session_id=s1", "t")
	g.offersMCP("s1", "t")
	big := strings.Repeat("AAAA", registry.MaxInlinePart/3)
	photoBytes := []byte("\x89PNG\x0D\x0A\x1A\x0A" + strings.Repeat("\xff", 61))
	photo := base64.StdEncoding.EncodeToString(photoBytes)
	for _, tt := range []struct {
		name, result string
		want         registry.Result
	}{
		{"texts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
			registry.Result{Success: true, Output: "a\nb"}},
		{"nothing", `{"content":[]}`, registry.Result{Success: true}},
		{"no content", `{}`, registry.Result{Success: true}},
		{"structured alone", `{"structuredContent":{"a":1}}`,
			registry.Result{Success: true, Output: `{"a":1}`, Structured: registry.MustJSON(`{"a":1}`)}},
		{"error", `{"content":[{"type":"text","text":"no"}],"isError":true}`,
			registry.Result{Output: "no", Error: "no"}},
		{"silent error", `{"isError":true}`, registry.Result{Output: "The tool failed and did not say why.",
			Error: "The tool failed and did not say why."}},
		{"image and audio", `{"content":[{"type":"image","data":"AAEC","mimeType":"image/png"},
			{"type":"audio","data":"AAEC","mimeType":"audio/wav; rate=1"}]}`,
			registry.Result{Success: true, Parts: []registry.Part{
				{Type: "image", MIMEType: "image/png", Data: []byte{0, 1, 2}, Size: 3},
				{Type: "audio", MIMEType: "audio/wav", Data: []byte{0, 1, 2}, Size: 3}}}},
		{"image of no type", `{"content":[{"type":"image","data":"AAEC"}]}`,
			registry.Result{Success: true, Parts: []registry.Part{
				{Type: "file", MIMEType: "application/octet-stream", Data: []byte{0, 1, 2}, Size: 3}}}},
		{"link", `{"content":[{"type":"resource_link","uri":"file:///a","name":"A"}]}`,
			registry.Result{Success: true, Output: "A: file:///a"}},
		{"resources", `{"content":[{"type":"resource","resource":{"uri":"demo://x/a.bin","mimeType":"a/b","blob":"AAEC"}},
			{"type":"resource","resource":{"uri":"demo://b","mimeType":"text/markdown","text":"words"}}]}`,
			registry.Result{Success: true, Output: "words", Parts: []registry.Part{
				{Type: "file", MIMEType: "a/b", Name: "a.bin", URI: "demo://x/a.bin", Data: []byte{0, 1, 2}, Size: 3},
				{Type: "file", MIMEType: "text/markdown", Name: "b", URI: "demo://b", Data: []byte("words"),
					Size: 5}}}},
		{"an image that is repeated", `{"content":[{"type":"image","data":"` + photo + `","mimeType":"image/png"}],
			"structuredContent":{"photo":"` + photo + `"}}`,
			registry.Result{Success: true, Output: `{"photo":"[image/png, 69 bytes]"}`,
				Structured: registry.MustJSON(`{"photo":"` + photo + `"}`), Parts: []registry.Part{
					{Type: "image", MIMEType: "image/png", Data: photoBytes, Size: 69}}}},
		{"too large to keep", `{"content":[{"type":"image","data":"` + big + `","mimeType":"image/png"},
			{"type":"image","data":"AA==","mimeType":"image/png"}]}`,
			registry.Result{Success: true, Parts: []registry.Part{
				{Type: "image", MIMEType: "image/png", Data: make([]byte, registry.MaxInlinePart/3*3),
					Size: registry.MaxInlinePart / 3 * 3},
				{Type: "image", MIMEType: "image/png", Data: []byte{0}, Size: 1}}}},
		{"a part that is not kept", `{"content":[{"type":"image","data":"` + big + `AAAA","mimeType":"image/png"}]}`,
			registry.Result{Success: true, Parts: []registry.Part{
				{Type: "image", MIMEType: "image/png", Size: registry.MaxInlinePart/3*3 + 3}}}},
		{"of a later version", `{"content":[{"type":"video","x":1}]}`,
			registry.Result{Success: true, Output: `{"type":"video","x":1}`}},
		{"a question", `{"resultType":"input_required"}`, registry.Result{
			Output: "The tool requires input from its caller first (input_required), " +
				"which this gateway does not support.",
			Error: "The tool requires input from its caller first (input_required), " +
				"which this gateway does not support."}},
	} {
		done := g.call("s1", "t", `{}`)
		p.answer(p.asked("tools/call"), tt.result)
		o := await(t, done)
		have, err := json.Marshal(o.result)
		must(t, err)
		want, err := json.Marshal(tt.want)
		must(t, err)
		if o.err != nil || string(have) != string(want) {
			t.Errorf("%s: %v\nhave %.300s\nwant %.300s", tt.name, o.err, have, want)
		}
	}
	for _, bad := range []string{`"text"`, `{"content":7}`, `{"content":[7]}`, `{"content":[{"type":"text"}]}`,
		`{"content":[{"type":"image","data":"?","mimeType":"image/png"}]}`, `{"content":[],"content":[]}`,
		`{"content":[{"type":"resource"}]}`, `{"isError":"yes"}`} {
		done := g.call("s1", "t", `{}`)
		p.answer(p.asked("tools/call"), bad)
		if o := await(t, done); registry.AsError(o.err).Code != registry.CodeInvalidResult {
			t.Errorf("%s: %+v", bad, o)
		}
		if m := p.message(); m.Error == nil || m.Error.Code != -32700 && m.Error.Code != -32600 {
			t.Errorf("%s: the device was told %+v", bad, m)
		}
	}
}

// What a device reports of a call is kept, and the end of a call's caller reaches the device.
func TestMCPProgressAndCancel(t *testing.T) {
	g := newGateway(t)
	p := g.connectMCP("session_id=s1", "t")
	g.offersMCP("s1", "t")
	ctx, cancel := context.WithCancel(t.Context())
	id := registry.NewCallID()
	done := g.callContext(ctx, "s1", registry.Call{ID: id, Args: registry.MustJSON(`{}`)}, "t")
	call := p.asked("tools/call")
	p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(call.ID) +
		`,"progress":1,"total":4,"message":"a quarter"}}`)
	p.aliveMCP()
	cancel()
	said := p.asked("notifications/cancelled")
	var params struct {
		RequestID string `json:"requestId"`
	}
	must(t, json.Unmarshal(said.Params, &params))
	if params.RequestID != id {
		t.Errorf("cancelled: %s", said.Params)
	}
	if o := await(t, done); registry.AsError(o.err).Code != registry.CodeCancelled {
		t.Errorf("%+v", o)
	}
	p.answer(call, `{"content":[]}`) // too late
	p.aliveMCP()

	short := registry.Call{ID: registry.NewCallID(), Timeout: 50 * time.Millisecond}
	var err error
	short.Route, err = g.pod.Router.Resolve(t.Context(), registry.DefaultTenant, "t",
		registry.Target{SessionID: "s1"}, registry.SelectNone)
	must(t, err)
	if _, err := g.pod.Router.Call(t.Context(), short); registry.AsError(err).Code != registry.CodeTimeout {
		t.Errorf("%v", err)
	}
	p.asked("tools/call")
	if said := p.asked("notifications/cancelled"); !strings.Contains(string(said.Params), short.ID) {
		t.Errorf("cancelled: %s", said.Params)
	}
	eventually(t, "the report is counted", func() bool { return g.server.Stats().Received["tool_progress"] == 1 })
}

// The client of an MCP server that has ended says so: its calls are lost, and not failures of their tools.
func TestMCPServerThatEnded(t *testing.T) {
	g := newGateway(t)
	p := g.connectMCP("session_id=s1&resume=true", "t")
	g.offersMCP("s1", "t")
	done := g.call("s1", "t", `{}`)
	p.say(`{"jsonrpc":"2.0","id":` + string(p.asked("tools/call").ID) +
		`,"error":{"code":-32000,"message":"The MCP server ended.","data":{"code":"lost"}}}`)
	if e := registry.AsError(await(t, done).err); e.Code != registry.CodeLost ||
		e.Dispatched != registry.DispatchedYes {
		t.Errorf("%+v", e)
	}
	p.aliveMCP()
}

// A list of tools comes in pages, and again when it has changed. Tools that are on it no longer go.
func TestMCPListsOfTools(t *testing.T) {
	g := newGateway(t)
	p := g.dialMCP("session_id=s1")
	ask := p.initialize()
	p.answer(ask, `{"tools":[{"name":"a","inputSchema":{"type":"object"}}],"nextCursor":"two"}`)
	ask = p.asked("tools/list")
	if !strings.Contains(string(ask.Params), `"two"`) {
		t.Errorf("the second page: %s", ask.Params)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) // while it is read
	p.answer(ask, mcpTools("b"))
	ask = p.asked("tools/list")
	g.offersMCP("s1", "a", "b")
	p.answer(ask, mcpTools("b", "c"))
	g.offersMCP("s1", "b", "c")
	p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.refuse(p.asked("tools/list"), -32603, "not now")
	p.aliveMCP()
	g.offersMCP("s1", "b", "c")
	p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.answer(p.asked("tools/list"), `{"tools":[{"name":"b","inputSchema":{"type":1}},{"name":"c","inputSchema":7}]}`)
	g.offersMCP("s1") // neither is what it was, and none is admitted
}

// Names that tools cannot have here are changed by one rule, and calls carry the names the device knows.
func TestMCPNamesOfTools(t *testing.T) {
	g := newGateway(t)
	long := strings.Repeat("x", 100)
	p := g.connectMCP("session_id=s1", "plain-1.2", "files/read", "files:read", "-dash", long, "forbidden_t", "größe")
	tools := g.offersMCP("s1", "_-dash", "files_read", "größe", "plain-1.2", strings.Repeat("x", 55)+"_09ecb6eb")
	for i, want := range []string{"-dash", "files/read", "größe", "plain-1.2", long} {
		done := g.call("s1", tools[i].Name, `{}`)
		call := p.asked("tools/call")
		if !strings.Contains(string(call.Params), `"name":"`+want+`"`) {
			t.Errorf("%s is called as %.200s", tools[i].Name, call.Params)
		}
		p.answer(call, `{}`)
		await(t, done)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	p.answer(p.asked("tools/list"), mcpTools("files_read"))
	g.offersMCP("s1", "files_read")
	eventually(t, "the name is the device's own now", func() bool {
		done := g.call("s1", "files_read", `{}`)
		call := p.asked("tools/call")
		p.answer(call, `{}`)
		await(t, done)
		return strings.Contains(string(call.Params), `"name":"files_read"`)
	})
}

// The version without initialize is found out by asking, and told with each request.
func TestMCPStatelessDevice(t *testing.T) {
	g := newGateway(t)
	p := g.dialMCP("session_id=s1")
	p.refuse(p.asked("initialize"), -32601, "there is no such method")
	p.answer(p.asked("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],
		"capabilities":{"tools":{"listChanged":true}}}`)
	listen := p.asked("subscriptions/listen")
	ask := p.asked("tools/list")
	p.answer(ask, `{"resultType":"complete","tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
	g.offersMCP("s1", "t")
	done := g.call("s1", "t", `{}`)
	call := p.asked("tools/call")
	for _, m := range []rpc{listen, ask, call} {
		if !strings.Contains(string(m.Params), `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`) {
			t.Errorf("%s does not say its version: %s", m.Method, m.Params)
		}
	}
	p.answer(call, `{"resultType":"complete","content":[{"type":"text","text":"ok"}]}`)
	if o := await(t, done); o.err != nil || o.result.Output != "ok" {
		t.Errorf("%+v", o)
	}
}

// A device that cannot be spoken to is sent away, and may come back.
func TestMCPDevicesThatDoNotSpeakIt(t *testing.T) {
	g := newGateway(t)
	for name, answers := range map[string]func(p *mcpPeer){
		"an unknown version": func(p *mcpPeer) { p.answer(p.asked("initialize"), `{"protocolVersion":"1999-01-01"}`) },
		"no version":         func(p *mcpPeer) { p.answer(p.asked("initialize"), `{}`) },
		"no object":          func(p *mcpPeer) { p.answer(p.asked("initialize"), `7`) },
		"neither": func(p *mcpPeer) {
			p.refuse(p.asked("initialize"), -32601, "no")
			p.refuse(p.asked("server/discover"), -32601, "no")
		},
		"another stateless version": func(p *mcpPeer) {
			p.refuse(p.asked("initialize"), -32601, "no")
			p.answer(p.asked("server/discover"), `{"supportedVersions":["2030-01-01"]}`)
		},
		"a list that is none": func(p *mcpPeer) { p.answer(p.initialize(), `{"tools":{}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			p := g.dialMCP("session_id=s1")
			p.t = t
			answers(p)
			p.expectClose(ws.CloseMCP)
		})
	}
}

// What a device asks of the gateway is refused, mistakes are named, and the socket stays open.
func TestMCPMistakes(t *testing.T) {
	g := newGateway(t)
	p := g.connectMCP("session_id=s1", "t")
	g.offersMCP("s1", "t")
	for _, tt := range []struct {
		frame string
		code  int
		names string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}`, -32601, "sampling/createMessage"},
		{`{"jsonrpc":"2.0","id":"x","method":"roots/list"}`, -32601, "roots/list"},
		{`{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{}}`, -32601, "elicitation"},
		{`nonsense`, -32700, "JSON"},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, -32700, "id"},
		{`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, -32600, "separately"},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600, "jsonrpc"},
		{`{"jsonrpc":"2.0"}`, -32600, "method"},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600, "id"},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 300) + `","method":"ping"}`, -32600, "256"},
		{`{"jsonrpc":"2.0","id":1,"error":7}`, -32600, "error"},
		{`{"type":"connect","v":1}`, -32600, "/ws/chat"},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":7}`, -32600, "params"},
		{strings.Repeat(`{"a":`, 1000), -32700, "64"},
	} {
		p.send(tt.frame)
		m := p.message()
		if m.Error == nil || m.Error.Code != tt.code || !strings.Contains(m.Error.Message, tt.names) {
			t.Errorf("%.100s: %+v %+v", tt.frame, m, m.Error)
		}
	}
	for _, ignored := range []string{ // strays
		`{"jsonrpc":"2.0","id":"` + registry.NewCallID() + `","result":{"content":[]}}`,
		`{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`,
	} {
		p.send(ignored)
	}
	p.aliveMCP()
	must(t, p.conn.WriteMessage(websocket.BinaryMessage, []byte("x")))
	if m := p.message(); m.Error == nil || m.Error.Code != -32700 {
		t.Errorf("a binary message: %+v", m)
	}
	must(t, p.conn.WriteMessage(websocket.TextMessage, []byte("{\"jsonrpc\":\"\xff\"}")))
	p.expectClose(ws.CloseInvalidUTF8)
}

// A malicious device is held by the bounds of any device.
func TestMCPDevicesAreBounded(t *testing.T) {
	g := newGateway(t, func(c *ws.Config) {
		c.MaxFrame, c.MaxOutput = 64<<10, 128<<10
		c.Admission = newReserving(t, "time")
	})
	t.Run("endless list", func(t *testing.T) {
		p := g.dialMCP("session_id=endless")
		p.t = t
		ask, pages := p.initialize(), 0
		for ; ask.Method == "tools/list"; pages++ {
			p.answer(ask, fmt.Sprintf(`{"tools":[{"name":"t%d"}],"nextCursor":"%d"}`, pages, pages))
			if pages == 63 {
				break
			}
			ask = p.message()
		}
		p.aliveMCP() // it is asked for no more
	})
	t.Run("many definitions", func(t *testing.T) {
		p := g.dialMCP("session_id=many")
		p.t = t
		names := make([]string, 700)
		for i := range names {
			names[i] = fmt.Sprintf("t%d", i)
		}
		p.answer(p.initialize(), strings.TrimSuffix(mcpTools(names...), "}")+`,"nextCursor":"2"}`)
		p.answer(p.asked("tools/list"), strings.TrimSuffix(mcpTools(names...), "}")+`,"nextCursor":"3"}`)
		p.aliveMCP()
		if tools := g.pod.Hub.Get(registry.Key{Tenant: "default", Session: "many"}).Tools(); len(tools) != 128 {
			t.Errorf("%d tools", len(tools))
		}
	})
	t.Run("names and words", func(t *testing.T) {
		p := g.dialMCP("session_id=words")
		p.t = t
		p.answer(p.initialize(), `{"tools":[{"name":"time"},{"name":"t\u0456me"},`+
			`{"name":"t","description":"a\u202eb\u0000c"},{"name":"`+
			strings.Repeat("n", 300)+`"}]}`)
		if tool := g.offersMCP("words", "t", "t_me")[0]; tool.Description != "abc" {
			t.Errorf("%q", tool.Description)
		}
	})
	t.Run("changing schemas", func(t *testing.T) {
		g := newGateway(t, func(c *ws.Config) { c.MaxFrame = 1 << 20 })
		p := g.dialMCP("session_id=changing")
		p.t = t
		padding := strings.Repeat("x", 50_000)
		offersSome := func() bool { // as a tool does each second and a half
			l := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: "changing"})
			return l == nil || len(l.Tools()) > 0
		}
		// Six megabytes, where two are allowed at once.
		for ask, i := p.initialize(), 0; i < 30 || offersSome() && i < 1000; i++ {
			var tools []string
			for n := range 4 {
				tools = append(tools, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","title":"%d%s"}}`, n, i,
					padding))
			}
			p.answer(ask, `{"tools":[`+strings.Join(tools, ",")+`]}`)
			p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			ask = p.asked("tools/list")
		}
		g.offersMCP("changing") // what it is now is not known
	})
	t.Run("too big", func(t *testing.T) {
		p := g.connectMCP("session_id=big", "t")
		p.t = t
		g.offersMCP("big", "t")
		done := g.call("big", "t", `{}`)
		p.answer(p.asked("tools/call"), `{"content":[{"type":"text","text":"`+strings.Repeat("x", 100<<10)+`"}]}`)
		if o := await(t, done); o.err != nil || len(o.result.Output) != 100<<10 { // answers may be longer
			t.Errorf("%v", o.err)
		}
		done = g.call("big", "t", `{}`)
		p.answer(p.asked("tools/call"), `{"content":[{"type":"text","text":"`+strings.Repeat("x", 300<<10)+`"}]}`)
		if o := await(t, done); registry.AsError(o.err).Code != registry.CodeInvalidResult {
			t.Errorf("%v", o.err)
		}
		p.expectClose(ws.CloseTooBig)
	})
	t.Run("flood", func(t *testing.T) {
		g := newGateway(t, func(c *ws.Config) { c.MaxFramesPerSecond, c.FrameBurst = 1, 100 })
		p := g.connectMCP("session_id=flood", "t")
		go func() { // until the gateway has enough
			for p.conn.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)) == nil {
			}
		}()
		p.expectClose(ws.CloseRate)
	})
	t.Run("ids", func(t *testing.T) { // an answer counts once, and for its own call only
		p := g.connectMCP("session_id=ids", "t")
		p.t = t
		g.offersMCP("ids", "t")
		other := g.connectMCP("session_id=thief", "t")
		g.offersMCP("thief", "t")
		done := g.call("ids", "t", `{}`)
		call := p.asked("tools/call")
		other.answer(call, `{"content":[{"type":"text","text":"stolen"}]}`)
		other.aliveMCP()
		p.answer(call, `{"content":[{"type":"text","text":"mine"}]}`)
		p.answer(call, `{"content":[{"type":"text","text":"again"}]}`)
		p.aliveMCP()
		if o := await(t, done); o.err != nil || o.result.Output != "mine" {
			t.Errorf("%+v", o)
		}
	})
}

// What answers may outlive its connection: an answer that comes over the next one still counts.
func TestMCPAnswersAfterAReconnect(t *testing.T) {
	g := newGateway(t)
	p := g.connectMCP("session_id=s1&device_id=d1&resume=true", "t")
	g.offersMCP("s1", "t")
	done := g.call("s1", "t", `{}`)
	call := p.asked("tools/call")
	must(t, p.conn.Close())
	g.waitReleased()
	again := g.connectMCP("session_id=s1&device_id=d1&resume=true", "t")
	again.answer(call, `{"content":[{"type":"text","text":"late"}]}`)
	if o := await(t, done); o.err != nil || o.result.Output != "late" {
		t.Errorf("%+v", o)
	}
}

// That the server ended is said over the next connection, too, also when that is another pod's.
func TestMCPServerThatEndedBeforeAMove(t *testing.T) {
	store := memory.New(memory.Options{})
	a, b := newGatewayOn(t, store), newGatewayOn(t, store)
	p := a.connectMCP("session_id=s1&device_id=d1&resume=true", "t")
	a.offersMCP("s1", "t")
	_, durable := b.callDurable("s1", "t")
	calls := map[string]<-chan outcome{
		"of its pod": a.call("s1", "t", `{}`), "of another pod": b.call("s1", "t", `{}`), "durable": durable,
	}
	var asked []rpc
	for range calls {
		asked = append(asked, p.asked("tools/call"))
	}
	must(t, p.conn.Close())
	a.waitReleased()
	again := b.connectMCP("session_id=s1&device_id=d1&resume=true", "t")
	for _, call := range asked {
		again.say(`{"jsonrpc":"2.0","id":` + string(call.ID) +
			`,"error":{"code":-32000,"message":"The MCP server ended.","data":{"code":"lost"}}}`)
	}
	for name, done := range calls {
		if e := registry.AsError(await(t, done).err); e.Code != registry.CodeLost ||
			e.Dispatched != registry.DispatchedYes || !strings.Contains(e.Message, "MCP server ended") {
			t.Errorf("%s: %s, %s", name, e, e.Dispatched)
		}
	}
}
