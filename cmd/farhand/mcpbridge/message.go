package mcpbridge

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// Names of the protocol, of its revision 2026-07-28 and of the older ones.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"

	methodInitialize   = "initialize"
	methodInitialized  = "notifications/initialized"
	methodCancelled    = "notifications/cancelled"
	methodListen       = "subscriptions/listen"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

// message is what the bridge reads of a message.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"` // none: a notification
	Method string          `json:"method"`       // none: an answer, to a request that this gateway never makes
	Params struct {
		Meta      map[string]json.RawMessage `json:"_meta"`
		Name      string                     `json:"name"`
		URI       string                     `json:"uri"`
		TaskID    string                     `json:"taskId"`
		RequestID json.RawMessage            `json:"requestId"`
	} `json:"params"`
}

// version returns the revision that a message names itself: since 2026-07-28 all do. Older ones name none.
func (m message) version() string {
	var version string
	_ = json.Unmarshal(m.Params.Meta[metaVersion], &version)
	return version
}

// headerSession carries the name that initialize gave a client of a revision before 2026-07-28.
const headerSession = "Mcp-Session-Id"

// header adds the headers of a message. What initialize agreed on is empty if there was none.
func (m message) header(h http.Header, negotiated, session string) {
	version := m.version()
	if version == "" {
		if negotiated != "" && m.Method != methodInitialize {
			h.Set("MCP-Protocol-Version", negotiated)
		}
		if session != "" && m.Method != methodInitialize {
			h.Set(headerSession, session)
		}
		return
	}
	h.Set("MCP-Protocol-Version", version)
	h.Set("Mcp-Method", headerValue(m.Method))
	switch {
	case m.Params.Name != "":
		h.Set("Mcp-Name", headerValue(m.Params.Name))
	case m.Params.URI != "":
		h.Set("Mcp-Name", headerValue(m.Params.URI))
	case strings.HasPrefix(m.Method, "tasks/") && m.Params.TaskID != "":
		h.Set("Mcp-Name", headerValue(m.Params.TaskID))
	}
}

// headerValue writes a text as the value of a header, as the transport of MCP has it: what would not arrive as it is,
// and what looks as if it was encoded, is encoded.
func headerValue(text string) string {
	const prefix, suffix = "=?base64?", "?="
	plain := text == strings.Trim(text, " \t") && !(strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix))
	for _, c := range text {
		plain = plain && c >= ' ' && c <= '~'
	}
	if plain {
		return text
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(text)) + suffix
}
