package ws_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/registry"
)

// mcpPeer is a hand-driven device that speaks MCP.
type mcpPeer struct {
	*device
	envelope bool
}

// rpc is a message of JSON-RPC as a peer reads it.
type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// dialMCP connects to /ws/mcp.
func (g *gateway) dialMCP(query string, header ...string) *mcpPeer {
	g.t.Helper()
	h := http.Header{"Authorization": {"Bearer " + testToken}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	conn, _, err := websocket.DefaultDialer.Dial(g.mcpURL(query), h)
	must(g.t, err)
	return &mcpPeer{device: g.newDevice(conn)}
}

func (g *gateway) mcpURL(query string) string {
	return strings.Replace(g.url(query), "/ws/chat?", "/ws/mcp?", 1)
}

// message reads one message of JSON-RPC.
func (p *mcpPeer) message() rpc {
	p.t.Helper()
	frame := p.next()
	if p.envelope {
		if frame["type"] != "mcp" || frame["session_id"] == "" {
			p.t.Fatalf("not in an envelope: %v", frame)
		}
		frame, _ = frame["payload"].(map[string]any)
	}
	if frame["jsonrpc"] != "2.0" {
		p.t.Fatalf("not JSON-RPC: %v", frame)
	}
	text, err := json.Marshal(frame)
	must(p.t, err)
	var m rpc
	must(p.t, json.Unmarshal(text, &m))
	return m
}

// asked reads one message and checks its method.
func (p *mcpPeer) asked(method string) rpc {
	p.t.Helper()
	m := p.message()
	if m.Method != method {
		p.t.Fatalf("got %+v, want %s", m, method)
	}
	return m
}

func (p *mcpPeer) say(message string) {
	p.t.Helper()
	if p.envelope {
		message = `{"session_id":"x","type":"mcp","payload":` + message + `}`
	}
	p.send(message)
}

func (p *mcpPeer) answer(to rpc, result string) {
	p.t.Helper()
	p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, to.ID, result))
}

func (p *mcpPeer) refuse(to rpc, code int, message string) {
	p.t.Helper()
	p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, to.ID, code, message))
}

const mcpServer = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},` +
	`"serverInfo":{"name":"lamp","version":"1"}}`

// initialize answers initialize and reads what follows. It returns the question for the tools.
func (p *mcpPeer) initialize() rpc {
	p.t.Helper()
	p.answer(p.asked("initialize"), mcpServer)
	p.asked("notifications/initialized")
	return p.asked("tools/list")
}

// mcpTools is the result of tools/list with tools of these names.
func mcpTools(names ...string) string {
	tools := make([]string, len(names))
	for i, name := range names {
		tools[i] = fmt.Sprintf(`{"name":%q,"description":"test","inputSchema":{"type":"object"}}`, name)
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]}`
}

// connectMCP dials as a session and lists tools.
func (g *gateway) connectMCP(query string, tools ...string) *mcpPeer {
	g.t.Helper()
	p := g.dialMCP(query)
	p.answer(p.initialize(), mcpTools(tools...))
	return p
}

// offersMCP waits until a session offers tools of exactly these names, which are sorted.
func (g *gateway) offersMCP(session string, names ...string) []registry.ToolSpec {
	g.t.Helper()
	var tools []registry.ToolSpec
	eventually(g.t, fmt.Sprintf("%s offers %q", session, names), func() bool {
		l := g.pod.Hub.Get(registry.Key{Tenant: registry.DefaultTenant, Session: session})
		if l == nil {
			return false
		}
		tools = l.Tools()
		have := make([]string, len(tools))
		for i, t := range tools {
			have[i] = t.Name
		}
		return strings.Join(have, " ") == strings.Join(names, " ")
	})
	return tools
}

// aliveMCP checks that the socket is still served.
func (p *mcpPeer) aliveMCP() {
	p.t.Helper()
	p.say(`{"jsonrpc":"2.0","id":"alive","method":"ping"}`)
	if m := p.message(); string(m.ID) != `"alive"` || string(m.Result) != "{}" {
		p.t.Fatalf("ping: %+v", m)
	}
}
