package ws

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/mcp"
	"github.com/farhand/farhand/ws/node"
)

const protocolVersion = 1 // v in both opening frames

// Types of the frames that devices send.
const (
	typeConnect            = "connect"
	typeRegisterTools      = "register_tools"
	typeUnregisterTools    = "unregister_tools"
	typeGetRegisteredTools = "get_registered_tools"
	typeToolCallAccepted   = "tool_call_accepted"
	typeToolProgress       = "tool_progress"
	typeToolResult         = "tool_result"
	typeToolError          = "tool_error"
	typeMessage            = "message"
	typeAbort              = "abort"
	typeRegenerate         = "regenerate"
	typeApprovalResponse   = "approval_response"
	typeUploadRequest      = "upload_request"
	typeRegisterWake       = "register_wake" // capability wake
	typePresence           = "presence"      // capability presence
	typeSetDefault         = "set_default"
	typeHello              = mcp.TypeHello // of voice devices, on /ws/mcp; the server replies with the same type
	typeMCP                = mcp.TypeMCP   // an MCP message that has no type above
	typeRequest            = node.Type     // of OpenClaw nodes
)

// Types of the frames that the server sends. The types of conversation frames are the values of chat.EventType.
const (
	typeSessionStart       = "session_start"
	typeConnected          = "connected"
	typeToolsRegistered    = "tools_registered"
	typeRegisteredTools    = "registered_tools"
	typeToolCallRequest    = "tool_call_request"
	typeToolCallCancel     = "tool_call_cancel"
	typeResultAcknowledged = "result_acknowledged"
	typeServerDraining     = "server_draining"
	typeUploadSlot         = "upload_slot"     // answers upload_request
	typeWakeRegistered     = "wake_registered" // answers register_wake
	typeDefaultSet         = "default_set"     // answers set_default
	typeAbortAck           = "abort_ack"
	typeApprovalRequest    = "approval_request" // capability approval, like the next one
	typeApprovalDecided    = "approval_decided"
	typeError              = "error"
	typeResponse           = "res" // to OpenClaw nodes, like the next one
	typeEvent              = "event"
)

// Codes of error frames, besides those of package fields.
const (
	codeMessageTooBig        = "MESSAGE_TOO_BIG" // the socket is then closed
	codeSessionOwnerMismatch = "SESSION_OWNER_MISMATCH"
	codePairingRequired      = "PAIRING_REQUIRED"
	codeRateLimited          = "RATE_LIMITED"     // the device may retry later
	codeProgressRefused      = "PROGRESS_REFUSED" // reports of a call are no longer stored; sent once per call
	codeForbidden            = "FORBIDDEN"        // the connection's roles do not permit the frame
	codeInternalError        = "INTERNAL_ERROR"
)

// Device to server. A nil field is absent, and null counts as absent. Raw JSON stays as it was sent, so numbers are
// never rounded.
type (
	connectFrame struct {
		Type         string            `json:"type"`
		V            *int64            `json:"v,omitempty"`
		SessionID    *string           `json:"session_id,omitempty"`
		DeviceName   *string           `json:"device_name,omitempty"`
		Capabilities []string          `json:"capabilities,omitempty"`
		DeviceID     *string           `json:"device_id,omitempty"`
		Platform     *string           `json:"platform,omitempty"`
		Labels       map[string]string `json:"labels,omitempty"`
		ResumeToken  *string           `json:"resume_token,omitempty"`
	}
	registerToolsFrame struct {
		Type  string            `json:"type"`
		Tools []json.RawMessage `json:"tools"` // decoded and checked one by one
	}
	unregisterToolsFrame struct {
		Type  string   `json:"type"`
		Names []string `json:"names"`
	}
	getRegisteredToolsFrame struct {
		Type string `json:"type"`
	}
	toolCallAcceptedFrame struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	toolProgressFrame struct {
		Type     string          `json:"type"`
		ID       string          `json:"id"`
		Progress json.RawMessage `json:"progress,omitempty"` // a number that fits a float64
		Total    json.RawMessage `json:"total,omitempty"`    // as progress
		Message  *string         `json:"message,omitempty"`
		Chunk    registry.JSON   `json:"chunk,omitzero"`
	}
	toolResultFrame struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Output  registry.JSON   `json:"output,omitzero"`
		Success bool            `json:"success"` // absent means true
		Error   string          `json:"error,omitempty"`
		Parts   []registry.Part `json:"parts,omitempty"` // each with data, or the URL of a slot

		result registry.Result // built from the fields above
	}
	toolErrorFrame struct {
		Type  string `json:"type"`
		ID    string `json:"id"`
		Error string `json:"error,omitempty"`
	}
	messageFrame struct {
		Type    string `json:"type"`
		Content string `json:"content"`
		Debug   bool   `json:"debug,omitempty"`
	}
	abortFrame struct {
		Type string `json:"type"`
	}
	approvalResponseFrame struct {
		Type     string `json:"type"`
		ID       string `json:"id"`
		Decision string `json:"decision"`
	}
	uploadRequestFrame struct {
		Type     string `json:"type"`
		ID       string `json:"id"` // id of the call
		MIMEType string `json:"mime_type"`
		Size     int64  `json:"size"`
		Name     string `json:"name,omitempty"`
	}
	registerWakeFrame struct {
		Type string          `json:"type"`
		Wake json.RawMessage `json:"wake,omitempty"` // a registry.Wake; absent: the device is no longer woken
	}
	presenceFrame struct {
		Type       string `json:"type"`
		Foreground bool   `json:"foreground"`
	}
	setDefaultFrame struct {
		Type string `json:"type"`
	}
	regenerateFrame struct {
		Type  string `json:"type"`
		Debug bool   `json:"debug,omitempty"`
	}
)

func (*connectFrame) frameType() string            { return typeConnect }
func (*registerToolsFrame) frameType() string      { return typeRegisterTools }
func (*unregisterToolsFrame) frameType() string    { return typeUnregisterTools }
func (*getRegisteredToolsFrame) frameType() string { return typeGetRegisteredTools }
func (*toolCallAcceptedFrame) frameType() string   { return typeToolCallAccepted }
func (*toolProgressFrame) frameType() string       { return typeToolProgress }
func (*toolResultFrame) frameType() string         { return typeToolResult }
func (*toolErrorFrame) frameType() string          { return typeToolError }
func (*messageFrame) frameType() string            { return typeMessage }
func (*abortFrame) frameType() string              { return typeAbort }
func (*approvalResponseFrame) frameType() string   { return typeApprovalResponse }
func (*uploadRequestFrame) frameType() string      { return typeUploadRequest }
func (*registerWakeFrame) frameType() string       { return typeRegisterWake }
func (*presenceFrame) frameType() string           { return typePresence }
func (*setDefaultFrame) frameType() string         { return typeSetDefault }
func (*regenerateFrame) frameType() string         { return typeRegenerate }

type rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// ignoredFields names the fields of a registered tool that registration does not know, such as "annotations.title".
type ignoredFields struct {
	Name   string   `json:"name"`
	Fields []string `json:"fields"`
}

type listedTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	Parameters   json.RawMessage `json:"parameters"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

// Server to device, one function per frame.

type sessionSummary struct {
	SessionID    string `json:"session_id"`
	Resumed      bool   `json:"resumed"`       // the session or its conversation existed before
	MessageCount int    `json:"message_count"` // in its conversation
	Name         string `json:"name,omitempty"`
}

// sessionStartFrame is the first frame. resumeToken lets the device prove later that it had the session. limits is a
// registry.DeviceLimits as JSON, also in connectedFrame.
func sessionStartFrame(resumeToken string, s sessionSummary, limits json.RawMessage) []byte {
	return encode(struct {
		Type string `json:"type"`
		V    int    `json:"v"`
		sessionSummary
		ResumeToken string          `json:"resume_token"`
		Limits      json.RawMessage `json:"limits"`
	}{typeSessionStart, protocolVersion, s, resumeToken, limits})
}

// connectedFrame answers connect. The summary is nil if session_start had all of it. wake is a wake.Offer as JSON, only
// for devices that can be woken.
func connectedFrame(s *sessionSummary, limits, wake json.RawMessage) []byte {
	return encode(struct {
		Type    string `json:"type"`
		V       int    `json:"v"`
		Message string `json:"message"`
		*sessionSummary
		Limits json.RawMessage `json:"limits"`
		Wake   json.RawMessage `json:"wake,omitempty"`
	}{typeConnected, protocolVersion, "Connection established", s, limits, wake})
}

// toolsRegisteredFrame answers a registration. count is how many tools or names the device sent. registered is how many
// tools the session offers now.
func toolsRegisteredFrame(count, registered int, rejected []rejection, ignored []ignoredFields) []byte {
	return encode(struct {
		Type       string          `json:"type"`
		Count      int             `json:"count"`
		Registered int             `json:"registered"`
		Rejected   []rejection     `json:"rejected,omitempty"`
		Ignored    []ignoredFields `json:"ignored,omitempty"`
	}{typeToolsRegistered, count, registered, rejected, ignored})
}

func registeredToolsFrame(tools []registry.ToolSpec) []byte {
	listed := make([]listedTool, len(tools))
	for i, t := range tools {
		listed[i] = listedTool{t.Name, t.Description, t.Parameters, t.OutputSchema}
	}
	return encode(struct {
		Type  string       `json:"type"`
		Tools []listedTool `json:"tools"`
	}{typeRegisteredTools, listed})
}

// toolCallRequestFrame copies the arguments byte for byte. They were checked when they arrived, and encoding them again
// could only change them.
func toolCallRequestFrame(c routing.DeviceCall) []byte {
	args := c.Args.Raw()
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	b := make([]byte, 0, 128+len(c.ID)+len(c.Tool)+len(args))
	b = append(b, `{"type":"`+typeToolCallRequest+`","id":`...)
	b = strictjson.AppendString(b, c.ID)
	b = append(b, `,"name":`...)
	b = strictjson.AppendString(b, c.Tool)
	b = append(b, `,"args":`...)
	b = append(b, args...)
	b = append(b, `,"deadline_ms":`...)
	b = strconv.AppendInt(b, max(c.Timeout.Milliseconds(), 0), 10)
	if c.Trace != "" {
		b = strictjson.AppendString(append(b, `,"traceparent":`...), c.Trace)
	}
	return append(b, '}')
}

func toolCallCancelFrame(id, reason string) []byte {
	return encode(struct {
		Type   string `json:"type"`
		ID     string `json:"id"`
		Reason string `json:"reason"`
	}{typeToolCallCancel, id, reason})
}

func resultAcknowledgedFrame(id string, ignored bool) []byte {
	b := make([]byte, 0, 64+len(id))
	b = append(b, `{"type":"`+typeResultAcknowledged+`","id":`...)
	b = strictjson.AppendString(b, id)
	if ignored {
		b = append(b, `,"ignored":true`...)
	}
	return append(b, '}')
}

func serverDrainingFrame(retryAfter time.Duration) []byte {
	return encode(struct {
		Type         string `json:"type"`
		RetryAfterMS int64  `json:"retry_after_ms"`
	}{typeServerDraining, retryAfter.Milliseconds()})
}

func errorFrame(code, message string) []byte {
	return encode(struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Code    string `json:"code"`
	}{typeError, message, code})
}

// encode returns the JSON of a frame without HTML escaping. It panics if encoding fails: all frames can be encoded, so
// a failure is a bug. The panic ends only the connection on which it happens.
func encode(frame any) []byte {
	text, err := strictjson.Encode(frame)
	if err != nil {
		panic(fmt.Errorf("ws: encode %T: %w", frame, err))
	}
	return text
}
