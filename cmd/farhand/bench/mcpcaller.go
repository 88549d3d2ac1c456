package bench

import "strings"

// mcpRevision is the protocol revision of the requests. With it each request is independent.
const mcpRevision = "2026-07-28"

// newMCPCaller returns a caller of the echo tool of one session over MCP, with a payload of the given size. All tools
// of the token are in scope. A tool's name then ends in its session.
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
