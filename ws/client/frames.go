package client

import (
	"bytes"
	"encoding/json"
	"slices"
)

// received holds the fields of every frame that the gateway sends. Type determines which ones are used.
type received struct {
	Type string `json:"type"`

	SessionID   string `json:"session_id"` // session_start
	Resumed     bool   `json:"resumed"`
	ResumeToken string `json:"resume_token"`

	Registered int         `json:"registered"` // tools_registered
	Rejected   []Rejection `json:"rejected"`

	ID         string          `json:"id"` // tool_call_request, tool_call_cancel, result_acknowledged
	Name       string          `json:"name"`
	Args       json.RawMessage `json:"args"`
	DeadlineMS *int64          `json:"deadline_ms"`
	Reason     string          `json:"reason"`
	Ignored    bool            `json:"ignored"`

	Tool      string   `json:"tool"` // approval_request, with ID, Args and Reason
	ArgsText  string   `json:"args_text"`
	Remarks   []string `json:"remarks"`
	ExpiresMS int64    `json:"expires_ms"`
	State     string   `json:"state"` // approval_decided, with ID

	RetryAfterMS int64 `json:"retry_after_ms"` // server_draining

	URL    string `json:"url"` // upload_slot, with ID; Refuse replaces it in a rejection
	Refuse string `json:"error"`

	Message string `json:"message"` // error
	Code    string `json:"code"`
}

// Rejection names a tool that the gateway did not register, and why.
type Rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

type wireTool struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	Parameters    json.RawMessage `json:"parameters,omitempty"`
	TimeoutMS     int64           `json:"timeout_ms,omitempty"`
	Annotations   *wireHints      `json:"annotations,omitempty"`
	SecurityLevel string          `json:"security_level,omitempty"`
	OutputSchema  json.RawMessage `json:"output_schema,omitempty"`
}

type wireHints struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

func (t Tool) wire() wireTool {
	w := wireTool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters,
		TimeoutMS: t.Timeout.Milliseconds(), SecurityLevel: t.SecurityLevel, OutputSchema: t.OutputSchema,
	}
	if t.Hints != (Hints{}) {
		h := wireHints(t.Hints)
		w.Annotations = &h
	}
	return w
}

// capabilities are the capabilities of every client. A client with an Approver has one more.
var capabilities = []string{"ack", "progress", "cancel", "drain", "resume", "resume_token"}

const capabilityApproval = "approval"

func (c *config) connectFrame(token string) ([]byte, error) {
	can := capabilities
	if c.approver != nil {
		can = append(slices.Clip(can), capabilityApproval)
	}
	return encode(struct {
		Type         string            `json:"type"`
		V            int               `json:"v"`
		DeviceName   string            `json:"device_name,omitempty"`
		DeviceID     string            `json:"device_id,omitempty"`
		Platform     string            `json:"platform,omitempty"`
		Labels       map[string]string `json:"labels,omitempty"`
		Capabilities []string          `json:"capabilities"`
		ResumeToken  string            `json:"resume_token,omitempty"`
	}{"connect", 1, c.deviceName, c.deviceID, c.platform, c.labels, can, token})
}

func registerFrame(tools []json.RawMessage) ([]byte, error) {
	return encode(struct {
		Type  string            `json:"type"`
		Tools []json.RawMessage `json:"tools"`
	}{"register_tools", tools})
}

func unregisterFrame(name string) ([]byte, error) {
	return encode(struct {
		Type  string   `json:"type"`
		Names []string `json:"names"`
	}{"unregister_tools", []string{name}})
}

// resultFrame contains the result of a handler: a string as text, nil as an empty text, everything else as JSON, and
// the parts.
func resultFrame(id string, output any, parts []Part) ([]byte, error) {
	if output == nil {
		output = ""
	}
	return encode(struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Output  any    `json:"output"`
		Success bool   `json:"success"`
		Parts   []Part `json:"parts,omitempty"`
	}{"tool_result", id, output, true, parts})
}

func acceptedFrame(id string) ([]byte, error) {
	return encode(struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}{"tool_call_accepted", id})
}

func progressFrame(id string, progress, total float64, message string) ([]byte, error) {
	known := &total
	if total <= 0 {
		known = nil
	}
	return encode(struct {
		Type     string   `json:"type"`
		ID       string   `json:"id"`
		Progress float64  `json:"progress"`
		Total    *float64 `json:"total,omitempty"`
		Message  string   `json:"message,omitempty"`
	}{"tool_progress", id, progress, known, message})
}

func chunkFrame(id, text string) ([]byte, error) {
	return encode(struct {
		Type  string `json:"type"`
		ID    string `json:"id"`
		Chunk string `json:"chunk"`
	}{"tool_progress", id, text})
}

func decisionFrame(id string, d Decision) ([]byte, error) {
	return encode(struct {
		Type     string   `json:"type"`
		ID       string   `json:"id"`
		Decision Decision `json:"decision"`
	}{"approval_response", id, d})
}

func errorFrame(id, text string) ([]byte, error) {
	return encode(struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Error   string `json:"error"`
		Success bool   `json:"success"`
	}{"tool_error", id, text, false})
}

func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), nil
}

// Result is a Handler's result with parts.
type Result struct {
	Output any // as a Handler returns it without parts
	Parts  []Part
}

// Part is an image, a sound or a file of a result. A result has at most 16 parts with 1 MiB of data in total. It has
// less if the gateway's limit for answers is lower.
type Part struct {
	Type     PartType `json:"type"`
	MIMEType string   `json:"mime_type"`      // such as image/png: lower case, no parameters
	Name     string   `json:"name,omitempty"` // name of the file
	Data     []byte   `json:"data,omitempty"` // must not be empty, unless Call.Upload made the part
	URL      string   `json:"url,omitempty"`  // set by Call.Upload
	Size     int64    `json:"size,omitempty"` // set by Call.Upload
}

// PartType determines how a Part is shown.
type PartType string

// The types.
const (
	PartImage PartType = "image" // with a MIME type image/…
	PartAudio PartType = "audio" // with a MIME type audio/…
	PartFile  PartType = "file"  // everything else, including videos
)
