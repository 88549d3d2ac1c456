package bench

import "strings"

// mcpRevision is that of the requests: each stands alone.
const mcpRevision = "2026-07-28"

// newMCPCaller returns a caller of the echo tool of one session, with a payload of the given size, over MCP and with
// all tools of the token in scope. There, a tool's name ends in its session.
func newMCPCaller(base, token, session string, payload int) *httpCaller {
	name := EchoTool + "__" + session
	c := &httpCaller{addr: strings.TrimPrefix(base, "http://"), session: func() string { return "" }}
	headers := "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: " + mcpRevision +
		"\r\nMcp-Method: tools/call\r\nMcp-Name: " + name + "\r\n"
	before := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"` + mcpRevision + `",` +
		`"io.modelcontextprotocol/clientCapabilities":{}},"name":"` + name + `","arguments":{"text":"`
	c.forms = []requestForm{newRequestForm("POST /mcp", "", c.addr, token, headers, before, `"}}}`, payload)}
	return c
}
