package ws

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Versions of MCP. A server answers initialize with its version. The version without initialize is requested by
// server/discover.
const (
	mcpVersion          = "2025-11-25"
	mcpStatelessVersion = "2026-07-28"
)

// speaksMCP reports whether the gateway supports a version after initialize.
func speaksMCP(version string) bool {
	switch version {
	case "2024-11-05", "2025-03-26", "2025-06-18", mcpVersion:
		return true
	default:
		return false
	}
}

// Methods of MCP.
const (
	mcpInitialize  = "initialize"
	mcpDiscover    = "server/discover"
	mcpListTools   = "tools/list"
	mcpListen      = "subscriptions/listen"
	mcpCallTool    = "tools/call"
	mcpPing        = "ping"
	mcpInitialized = "notifications/initialized"
	mcpProgress    = "notifications/progress"
	mcpCancelled   = "notifications/cancelled"
	mcpListChanged = "notifications/tools/list_changed"
)

// Error codes of JSON-RPC.
const (
	rpcParseError     = -32700
	rpcInvalidRequest = -32600
	rpcNoMethod       = -32601
)

const (
	mcpClientInfo = `{"name":"farhand","version":"1"}`

	// mcpStatelessMeta describes the client in each request of the stateless version.
	mcpStatelessMeta = `"io.modelcontextprotocol/protocolVersion":"` + mcpStatelessVersion +
		`","io.modelcontextprotocol/clientInfo":` + mcpClientInfo +
		`,"io.modelcontextprotocol/clientCapabilities":{}`
)

// mcpRequest returns a request whose params are the given members.
func mcpRequest(id, method, params string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `}}`)
}

func mcpInitializeFrame(id string) []byte {
	return mcpRequest(id, mcpInitialize,
		`"protocolVersion":"`+mcpVersion+`","capabilities":{},"clientInfo":`+mcpClientInfo)
}

func mcpDiscoverFrame(id string) []byte {
	return mcpRequest(id, mcpDiscover, `"_meta":{`+mcpStatelessMeta+`}`)
}

// mcpListenFrame subscribes to changes of the tools at a server of the stateless version.
func mcpListenFrame(id string) []byte {
	return mcpRequest(id, mcpListen, `"notifications":{"toolsListChanged":true},"_meta":{`+mcpStatelessMeta+`}`)
}

// mcpListFrame requests a page of tools; without a cursor the first one.
func mcpListFrame(id, cursor, meta string) []byte {
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
	return mcpRequest(id, mcpListTools, string(params))
}

// mcpCallFrame copies the arguments byte for byte, like toolCallRequestFrame, unless they have line breaks: a server
// behind a pipe needs each message on one line.
func mcpCallFrame(id []byte, tool string, args json.RawMessage, meta string) []byte {
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
	b = append(b, `,"method":"`+mcpCallTool+`","params":{"name":`...)
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

func mcpCancelFrame(id []byte, reason string) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","method":"`+mcpCancelled+`","params":{"requestId":`), id...)
	b = append(b, `,"reason":`...)
	b = strictjson.AppendString(b, reason)
	return append(b, `}}`...)
}

func mcpNotificationFrame(method string) []byte {
	return []byte(`{"jsonrpc":"2.0","method":"` + method + `"}`)
}

func mcpResultFrame(id json.RawMessage, result string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

// mcpErrorFrame returns an error answer. id is nil if the message had none, or if its id could not be read.
func mcpErrorFrame(id json.RawMessage, code int, message string) []byte {
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

// mcpCodeOf returns the JSON-RPC code for a mistake in a message.
func mcpCodeOf(bad *frameError) int {
	if bad.code == codeInvalidJSON {
		return rpcParseError
	}
	return rpcInvalidRequest
}

// helloFrame answers the hello of a voice device.
func helloFrame(session string) []byte {
	b := append([]byte(`{"type":"`+typeHello+`","transport":"websocket","session_id":`),
		strictjson.AppendString(nil, session)...)
	return append(b, '}')
}

// mcpPairingFrame converts a pairingFrame for an MCP device: into an MCP log message, or into a text that a voice
// device shows on its screen.
func mcpPairingFrame(frame []byte, voice bool) []byte {
	if voice {
		return encode(struct {
			Type    string          `json:"type"`
			Status  string          `json:"status"`
			Message json.RawMessage `json:"message"`
			Emotion string          `json:"emotion"`
		}{"alert", "pairing", memberOf(frame, "message"), "neutral"})
	}
	b := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error",` +
		`"logger":"farhand","data":`)
	return append(append(b, frame...), `}}`...)
}

// callResult converts the result of tools/call into a result of the device protocol. agent/mcpcontent has the rules.
func (f *fields) callResult(call string, result json.RawMessage) (any, error) {
	members, reason, ok := splitObject(nil, result)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return nil, invalidMessage("result: %s", reason)
	}
	r := &fields{members: members, err: f.err}
	if kind := r.optionalText("resultType"); kind != nil && *kind != "complete" {
		text := "The tool asks its caller for something first (" + short(*kind) + "), which this gateway cannot give."
		return &toolErrorFrame{Type: typeToolError, ID: call, Error: &text}, nil
	}
	content := mcpcontent.Reader{Room: registry.MaxInlinePart}
	if r.value("content") != nil {
		for i, item := range r.array("content") {
			block, bad := mcpBlock(item, content.Room)
			if bad != nil {
				return nil, invalidMessage("content[%d]: %s", i, bad.message)
			}
			content.Add(block)
		}
	}
	failed := r.optionalBool("isError")
	structured := r.json("structuredContent")
	if *r.err != nil {
		return nil, *r.err
	}
	return &toolResultFrame{
		Type: typeToolResult, ID: call, result: content.Result(!isTrue(failed), structured),
	}, nil
}

// mcpBlock decodes one content block. It decodes the block's data only if that has at most room bytes.
func mcpBlock(item json.RawMessage, room int) (mcpcontent.Block, *frameError) {
	members, reason, ok := splitObject(nil, item)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		return mcpcontent.Block{}, invalidMessage("%s", reason)
	}
	var bad *frameError
	f := &fields{members: members, err: &bad}
	b := mcpcontent.Block{Type: f.text("type")}
	switch b.Type {
	case mcpcontent.Text:
		b.Text = f.text("text")
	case mcpcontent.Image, mcpcontent.Audio:
		f.blockData(&b, "data", room)
	case mcpcontent.ResourceLink:
		b.URI, b.Name = f.text("uri"), f.textOr("name", "")
	case mcpcontent.Resource:
		inner, reason, ok := splitObject(nil, f.value("resource"))
		if !ok {
			return b, invalidMessage("resource: must be an object%s", reason)
		}
		r := &fields{members: inner, err: &bad}
		b.URI = r.textOr("uri", "")
		if r.value("text") != nil {
			b.Text, b.MIMEType = r.text("text"), r.textOr("mimeType", "")
		} else {
			r.blockData(&b, "blob", room)
		}
	default: // from a later MCP version; readers of the result may know it
		b.Text = string(item)
	}
	return b, bad
}

// blockData decodes a base64 member and its MIME type.
func (f *fields) blockData(b *mcpcontent.Block, key string, room int) {
	b.MIMEType = f.textOr("mimeType", "")
	v := f.required(key)
	if v == nil {
		return
	}
	if b.Size = decodedSize(v); v[0] != '"' || b.Size <= room {
		b.Data = f.data(key, room)
	}
}

// decodedSize returns the number of bytes that a base64 JSON string decodes to.
func decodedSize(quoted []byte) int {
	text := bytes.Trim(quoted, `"`)
	return base64.StdEncoding.DecodedLen(len(text)) - bytes.Count(text[max(len(text)-2, 0):], []byte{'='})
}
