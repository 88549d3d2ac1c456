package mcp

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Types of the messages that are not JSON-RPC. Both sides send them.
const (
	TypeHello = "hello" // of voice devices
	TypeMCP   = "mcp"   // the envelope of a message
)

// Versions of MCP. A server answers initialize with its version. The version without initialize is requested by
// server/discover.
const (
	initializeVersion = "2025-11-25"
	statelessVersion  = "2026-07-28"
)

// speaks reports whether the gateway supports a version after initialize.
func speaks(version string) bool {
	switch version {
	case "2024-11-05", "2025-03-26", "2025-06-18", initializeVersion:
		return true
	default:
		return false
	}
}

// Methods of MCP.
const (
	methodInitialize  = "initialize"
	methodDiscover    = "server/discover"
	methodListTools   = "tools/list"
	methodListen      = "subscriptions/listen"
	methodCallTool    = "tools/call"
	methodPing        = "ping"
	methodInitialized = "notifications/initialized"
	methodProgress    = "notifications/progress"
	methodCancelled   = "notifications/cancelled"
	methodListChanged = "notifications/tools/list_changed"
)

// Error codes of JSON-RPC.
const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
)

const (
	clientInfo = `{"name":"farhand","version":"1"}`

	// statelessMeta describes the client in each request of the stateless version.
	statelessMeta = `"io.modelcontextprotocol/protocolVersion":"` + statelessVersion +
		`","io.modelcontextprotocol/clientInfo":` + clientInfo +
		`,"io.modelcontextprotocol/clientCapabilities":{}`
)

// request returns a request whose params are the given members.
func request(id, method, params string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `}}`)
}

func initializeFrame(id string) []byte {
	return request(id, methodInitialize,
		`"protocolVersion":"`+initializeVersion+`","capabilities":{},"clientInfo":`+clientInfo)
}

func discoverFrame(id string) []byte {
	return request(id, methodDiscover, `"_meta":{`+statelessMeta+`}`)
}

// listenFrame subscribes to changes of the tools at a server of the stateless version.
func listenFrame(id string) []byte {
	return request(id, methodListen, `"notifications":{"toolsListChanged":true},"_meta":{`+statelessMeta+`}`)
}

// listFrame requests a page of tools; without a cursor the first one.
func listFrame(id, cursor, meta string) []byte {
	params := strictjson.AppendString([]byte(`"cursor":`), cursor)
	if cursor == "" {
		params = nil
	}
	if meta != "" {
		if len(params) > 0 {
			params = append(params, ',')
		}
		params = append(params, `"_meta":{`+meta+`}`...)
	}
	return request(id, methodListTools, string(params))
}

// callFrame copies the arguments byte for byte, unless they have line breaks: a server behind a pipe needs each message
// on one line.
func callFrame(id []byte, tool string, args json.RawMessage, meta string) []byte {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if bytes.ContainsAny(args, "\r\n") {
		var line bytes.Buffer
		if json.Compact(&line, args) == nil { // always nil: the arguments were checked
			args = line.Bytes()
		}
	}
	b := make([]byte, 0, 192+2*len(id)+len(tool)+len(args)+len(meta))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"method":"`+methodCallTool+`","params":{"name":`...)
	b = strictjson.AppendString(b, tool)
	b = append(b, `,"arguments":`...)
	b = append(b, args...)
	b = append(b, `,"_meta":{"progressToken":`...)
	b = append(b, id...)
	if meta != "" {
		b = append(b, ',')
		b = append(b, meta...)
	}
	return append(b, `}}}`...)
}

func cancelFrame(id []byte, reason string) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`+methodCancelled+`","params":{"requestId":`), id...)
	b = append(b, `,"reason":`...)
	b = strictjson.AppendString(b, reason)
	return append(b, `}}`...)
}

func notificationFrame(method string) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"` + method + `"}`)
}

func resultFrame(id json.RawMessage, result string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

// errorFrame returns an error answer. id is nil if the message had none, or if its id could not be read.
func errorFrame(id json.RawMessage, code int, message string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(b, `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(code), 10)
	b = append(b, `,"message":`...)
	b = strictjson.AppendString(b, message)
	return append(b, `}}`...)
}

// codeOf returns the JSON-RPC code for a mistake in a message.
func codeOf(bad *fields.Error) int {
	if bad.Code == fields.CodeInvalidJSON {
		return codeParseError
	}
	return codeInvalidRequest
}

// helloFrame answers the hello of a voice device.
func helloFrame(session string) []byte {
	b := append([]byte(`{"type":"`+TypeHello+`","transport":"websocket","session_id":`),
		strictjson.AppendString(nil, session)...)
	return append(b, '}')
}

// PairingFrame converts the frame with a device's pairing code: into an MCP log message, or into a text that a voice
// device shows on its screen.
func PairingFrame(frame []byte, voice bool) []byte {
	if voice {
		return []byte(`{"type":"alert","status":"pairing","message":` + string(fields.Member(frame, "message")) +
			`,"emotion":"neutral"}`)
	}
	b := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error",` +
		`"logger":"farhand","data":`)
	return append(append(b, frame...), `}}`...)
}
