package main

import (
	"encoding/json"
	"testing"
)

// TestGoldenMCPDevice: every message to a device that speaks MCP, raw and in the envelope of voice devices.
func TestGoldenMCPDevice(t *testing.T) {
	t.Parallel()
	p := startPod(t)
	r := newRecord(t, "mcpdevice.txt")
	r.name(p.id, "pod")
	for _, d := range []*goldenMCP{{}, {envelope: true}} {
		d.talk(r, p.url)
	}
	r.section("The version without initialize")
	s := &goldenMCP{goldenSocket: r.dialAt("stateless", p.url, "/ws/mcp?session_id=stateless")}
	s.answer(s.next(""), `"error":{"code":-32601,"message":"no such method"}`)
	s.answer(s.next(""), `"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`)
	s.next("")
	s.answer(s.next(""), `"result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}`)
	s.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
	s.next("")
	call := r.callOf(p.url, "/api/sessions/stateless/tools/work/call", `{}`)
	s.answer(s.next(""), `"result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}`)
	call.finish()
	s.leave()
}

// goldenMCP is a device that speaks MCP.
type goldenMCP struct {
	*goldenSocket
	envelope bool
}

// talk has one device do everything.
func (d *goldenMCP) talk(r *record, url string) {
	if d.envelope {
		r.section("A voice device")
		d.goldenSocket = r.dialAt("voice", url, "/ws/mcp", "Device-Id", "AA:BB", "Protocol-Version", "1")
		d.send(`{"type":"hello","version":1,"features":{"mcp":true},"transport":"websocket"}`)
		d.next("hello")
	} else {
		r.section("A server behind a pipe")
		d.goldenSocket = r.dialAt("server", url, "/ws/mcp?device_id=AA:BB&session_id=server&label=room=hall")
	}
	d.answer(d.next(""), `"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},`+
		`"serverInfo":{"name":"lamp","version":"1"}}`)
	d.next("")
	d.answer(d.next(""), `"result":{"tools":[{"name":"self.lamp/set","description":"Light","inputSchema":`+
		`{"type":"object"},"annotations":{"idempotentHint":true}}],"nextCursor":"2"}`)
	d.answer(d.next(""), `"result":{"tools":[]}`)
	d.say(`{"jsonrpc":"2.0","id":1,"method":"ping"}`) // the list has been read when it is answered
	d.next("")
	session := "server"
	if d.envelope {
		session = "AA:BB"
	}
	r.do(url, "GET", "/api/tools?session_id="+session, "")
	path := "/api/sessions/" + session + "/tools/self.lamp_set/call"
	for _, answer := range []string{
		`"result":{"content":[{"type":"text","text":"lit"}],"structuredContent":{"on":true}}`,
		`"result":{"content":[{"type":"text","text":"broken"}],"isError":true}`,
		`"result":{"content":[{"type":"image","data":"iVBORw==","mimeType":"image/png"}]}`,
		`"error":{"code":-32602,"message":"Unknown tool"}`,
	} {
		call := r.callOf(url, path, `{"args":{"on":true}}`)
		d.answer(d.next(""), answer)
		call.finish()
	}
	call := r.callOf(url, path, `{"timeout_ms":3000}`)
	d.next("")
	d.next("")
	call.finish()
	call = r.callOf(url, path, `{}`)
	d.answer(d.next(""), `"result":7`)
	d.next("")
	call.finish()
	d.say(`{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage","params":{}}`)
	d.next("")
	d.send(`{"jsonrpc":`)
	d.next("")
	d.leave()
}

// answer answers a message with what stands beside its id.
func (d *goldenMCP) answer(message, rest string) {
	d.r.t.Helper()
	var m struct {
		ID      json.RawMessage
		Payload struct{ ID json.RawMessage }
	}
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		d.r.t.Fatal(err)
	}
	if d.envelope {
		m.ID = m.Payload.ID
	}
	d.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,` + rest + `}`)
}

func (d *goldenMCP) say(message string) {
	if d.envelope {
		message = `{"session_id":"AA:BB","type":"mcp","payload":` + message + `}`
	}
	d.send("%s", message)
}
