package ws

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farhand/farhand/registry"
)

// maxFrameDepth is how deep a frame may nest. Schemas have a tighter limit of their own.
const maxFrameDepth = 64

// frameError is a mistake in a frame: it is answered with an error frame and the socket stays open.
type frameError struct {
	code    string
	message string
}

// Error implements error.
func (e *frameError) Error() string { return e.code + ": " + e.message }

func invalidMessage(format string, args ...any) *frameError {
	return &frameError{code: codeInvalidMessage, message: fmt.Sprintf(format, args...)}
}

// decodeFrame reads one frame of a device and returns a pointer to its struct of frames.go. Unknown fields are
// ignored; field names are case-sensitive. The error is CloseInvalidUTF8 or a *frameError.
func decodeFrame(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, CloseInvalidUTF8
	}
	if registry.Depth(data) > maxFrameDepth {
		return nil, &frameError{codeInvalidJSON, fmt.Sprintf("The frame nests deeper than %d levels.", maxFrameDepth)}
	}
	if !json.Valid(data) {
		return nil, &frameError{codeInvalidJSON, "The frame is not valid JSON."}
	}
	members, reason, ok := splitObject(data, true)
	if !ok {
		return nil, &frameError{codeInvalidJSON, "The frame: " + reason + "."}
	}
	f := &fields{members: members}
	typ := f.text("type")
	if f.err != nil {
		return nil, f.err
	}
	frame := f.frame(typ)
	if frame == nil {
		return nil, &frameError{codeUnknownMessageType, "The message type " + quoteShort(typ) + " is not known."}
	}
	if f.err != nil {
		return nil, f.err
	}
	return frame, nil
}

// frame builds the struct of the type, nil if there is no such type.
func (f *fields) frame(typ string) any {
	switch typ {
	case typeConnect:
		return &connectFrame{
			Type: typ, V: f.optionalInt("v"), SessionID: f.optionalText("session_id"),
			DeviceName: f.optionalText("device_name"), Capabilities: f.optionalTexts("capabilities"),
			DeviceID: f.optionalText("device_id"), Platform: f.optionalText("platform"), Labels: f.labels("labels"),
		}
	case typeRegisterTools:
		return &registerToolsFrame{Type: typ, Tools: f.array("tools")}
	case typeUnregisterTools:
		return &unregisterToolsFrame{Type: typ, Names: f.texts("names")}
	case typeGetRegisteredTools:
		return &getRegisteredToolsFrame{Type: typ}
	case typeToolCallAccepted:
		return &toolCallAcceptedFrame{Type: typ, ID: f.id()}
	case typeToolProgress:
		return &toolProgressFrame{
			Type: typ, ID: f.id(), Progress: f.optionalNumber("progress"), Total: f.optionalNumber("total"),
			Message: f.optionalText("message"), Chunk: f.value("chunk"),
		}
	case typeToolResult:
		return &toolResultFrame{
			Type: typ, ID: f.id(), Output: f.value("output"), Success: f.optionalBool("success"),
			Error: f.optionalText("error"),
		}
	case typeToolError:
		return &toolErrorFrame{Type: typ, ID: f.id(), Error: f.optionalText("error")}
	case typeMessage:
		return &messageFrame{Type: typ, Content: f.text("content"), Debug: f.optionalBool("debug")}
	case typeAbort:
		return &abortFrame{Type: typ}
	case typeRegenerate:
		return &regenerateFrame{Type: typ}
	default:
		return nil
	}
}

// decodeTool reads one element of register_tools. The name is returned as far as it could be read, also with an
// error, so that the rejection can carry it.
func decodeTool(data json.RawMessage) (toolDefinition, error) {
	members, reason, ok := splitObject(data, true)
	if !ok {
		return toolDefinition{}, invalidMessage("tool: %s", reason)
	}
	f := &fields{members: members}
	t := toolDefinition{Name: f.text("name")}
	if s := f.optionalText("description"); s != nil {
		t.Description = *s
	}
	t.Parameters = f.value("parameters")
	if n := f.optionalInt("timeout_ms"); n != nil {
		t.TimeoutMS = *n
	}
	t.Annotations = f.annotations("annotations")
	if s := f.optionalText("security_level"); s != nil {
		t.SecurityLevel = *s
	}
	if f.err != nil {
		return t, f.err
	}
	return t, nil
}

// fields reads the members of one object and remembers the first that is missing or of the wrong type.
type fields struct {
	members []field
	err     *frameError
}

func (f *fields) fail(key, must string) {
	if f.err == nil {
		f.err = invalidMessage("%s: %s", key, must)
	}
}

// value returns a member as it was sent, nil if it is absent or null.
func (f *fields) value(key string) json.RawMessage {
	for _, m := range f.members {
		if m.key == key {
			if string(m.value) == "null" {
				return nil
			}
			return m.value
		}
	}
	return nil
}

// required is value for a member that must be there.
func (f *fields) required(key string) json.RawMessage {
	v := f.value(key)
	if v == nil {
		f.fail(key, "is required")
	}
	return v
}

func (f *fields) text(key string) string {
	v := f.required(key)
	if v == nil {
		return ""
	}
	if v[0] != '"' {
		f.fail(key, "must be a string")
		return ""
	}
	return unquote(v)
}

// id returns the member id, which must not be empty.
func (f *fields) id() string {
	id := f.text("id")
	if id == "" {
		f.fail("id", "must not be empty")
	}
	return id
}

func (f *fields) optionalText(key string) *string {
	if f.value(key) == nil {
		return nil
	}
	s := f.text(key)
	return &s
}

func (f *fields) optionalBool(key string) *bool {
	v := f.value(key)
	if v == nil {
		return nil
	}
	b := string(v) == "true"
	if !b && string(v) != "false" {
		f.fail(key, "must be true or false")
	}
	return &b
}

func (f *fields) optionalInt(key string) *int64 {
	v := f.value(key)
	if v == nil {
		return nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f.fail(key, "must be a whole number")
	}
	return &n
}

func (f *fields) optionalNumber(key string) json.RawMessage {
	v := f.value(key)
	if v != nil && v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		f.fail(key, "must be a number")
	}
	return v
}

func (f *fields) array(key string) []json.RawMessage {
	v := f.required(key)
	if v == nil {
		return nil
	}
	items := []json.RawMessage{}
	if v[0] != '[' || json.Unmarshal(v, &items) != nil {
		f.fail(key, "must be an array")
	}
	return items
}

func (f *fields) texts(key string) []string {
	items := f.array(key)
	texts := make([]string, len(items))
	for i, item := range items {
		if item[0] != '"' {
			f.fail(fmt.Sprintf("%s[%d]", key, i), "must be a string")
			return nil
		}
		texts[i] = unquote(item)
	}
	return texts
}

func (f *fields) optionalTexts(key string) []string {
	if f.value(key) == nil {
		return nil
	}
	return f.texts(key)
}

// labels returns an object of strings. Keys that differ only in case are different labels.
func (f *fields) labels(key string) map[string]string {
	v := f.value(key)
	if v == nil {
		return nil
	}
	members, reason, ok := splitObject(v, false)
	if !ok {
		f.fail(key, reason)
		return nil
	}
	labels := make(map[string]string, len(members))
	for _, m := range members {
		if m.value[0] != '"' {
			f.fail(key+"."+short(m.key), "must be a string")
			return nil
		}
		labels[m.key] = unquote(m.value)
	}
	return labels
}

// annotations returns MCP's hints; hints this server does not know are ignored.
func (f *fields) annotations(key string) *registry.Annotations {
	v := f.value(key)
	if v == nil {
		return nil
	}
	members, reason, ok := splitObject(v, true)
	if !ok {
		f.fail(key, reason)
		return nil
	}
	hints := &fields{members: members}
	a := &registry.Annotations{
		ReadOnlyHint:    hints.optionalBool("readOnlyHint"),
		DestructiveHint: hints.optionalBool("destructiveHint"),
		IdempotentHint:  hints.optionalBool("idempotentHint"),
	}
	if hints.err != nil {
		f.fail(key, hints.err.message)
	}
	if *a == (registry.Annotations{}) {
		return nil
	}
	return a
}

// maxEcho is how many bytes of a device's own text are repeated to it in errors.
const maxEcho = 128

// short cuts s to what an error may repeat.
func short(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	cut := maxEcho
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

func quoteShort(s string) string { return strconv.Quote(strings.ToValidUTF8(short(s), "")) }
