package ws

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

// decodeFrame decodes one frame of a device and returns a pointer to its struct of frames.go. Unknown fields are
// ignored; field names are case-sensitive. The error is fields.ErrUTF8 or a *fields.Error.
func decodeFrame(data []byte) (any, error) {
	var buffer [fields.Few]strictjson.Member
	members, err := fields.Message(buffer[:0], data)
	if err != nil {
		return nil, err
	}
	var bad *fields.Error
	f := frameFields{fields.New(members, &bad)}
	typ := f.Text("type")
	if bad != nil {
		return nil, bad
	}
	frame := f.frame(typ)
	if frame == nil {
		return nil, fields.NewError(fields.CodeUnknownType, "The message type "+fields.Quote(typ)+" is not known.")
	}
	if bad != nil {
		return nil, bad
	}
	return frame, nil
}

// answeredCall returns the id of the call that a frame answers, even if the rest of the answer is malformed. The id is
// empty if the frame is not an answer.
func answeredCall(data []byte) string {
	members, ok := fields.Lenient(data)
	if !ok {
		return ""
	}
	var bad *fields.Error
	f := fields.New(members, &bad)
	typ, id := f.Text("type"), f.Text("id")
	if bad != nil || typ != typeToolResult && typ != typeToolError {
		return ""
	}
	return id
}

// frame builds the struct of a type. It returns nil if there is no such type.
func (f *frameFields) frame(typ string) any {
	switch typ {
	case typeConnect:
		return &connectFrame{
			Type: typ, V: f.OptionalInt("v"), SessionID: f.OptionalText("session_id"),
			DeviceName: f.OptionalText("device_name"), Capabilities: f.OptionalTexts("capabilities"),
			DeviceID: f.OptionalText("device_id"), Platform: f.OptionalText("platform"), Labels: f.labels("labels"),
			ResumeToken: f.resumeToken("resume_token"),
		}
	case typeRegisterTools:
		return &registerToolsFrame{Type: typ, Tools: f.Array("tools")}
	case typeUnregisterTools:
		return &unregisterToolsFrame{Type: typ, Names: f.Texts("names")}
	case typeGetRegisteredTools:
		return &getRegisteredToolsFrame{Type: typ}
	case typeToolCallAccepted:
		return &toolCallAcceptedFrame{Type: typ, ID: f.id()}
	case typeToolProgress:
		return &toolProgressFrame{
			Type: typ, ID: f.id(), Progress: f.OptionalNumber("progress"), Total: f.OptionalNumber("total"),
			Message: f.OptionalText("message"), Chunk: f.JSON("chunk"),
		}
	case typeToolResult:
		return f.toolResult()
	case typeToolError:
		return &toolErrorFrame{Type: typ, ID: f.id(), Error: f.TextOr("error", "")}
	case typeMessage:
		return &messageFrame{Type: typ, Content: f.Text("content"), Debug: or(f.OptionalBool("debug"), false)}
	case typeAbort:
		return &abortFrame{Type: typ}
	case typeApprovalResponse:
		return &approvalResponseFrame{Type: typ, ID: f.id(), Decision: f.Text("decision")}
	case typeUploadRequest:
		return &uploadRequestFrame{
			Type: typ, ID: f.id(), MIMEType: f.Text("mime_type"), Size: f.size("size"),
			Name: f.TextOr("name", ""),
		}
	case typeRegisterWake:
		return &registerWakeFrame{Type: typ, Wake: f.Value("wake")}
	case typePresence:
		if f.Value("foreground") == nil {
			f.Fail("foreground", "is required")
		}
		return &presenceFrame{Type: typ, Foreground: or(f.OptionalBool("foreground"), false)}
	case typeSetDefault:
		return &setDefaultFrame{Type: typ}
	case typeRegenerate:
		return &regenerateFrame{Type: typ, Debug: or(f.OptionalBool("debug"), false)}
	default:
		return nil
	}
}

func (f *frameFields) toolResult() *toolResultFrame {
	frame := &toolResultFrame{
		Type: typeToolResult, ID: f.id(), Output: f.JSON("output"), Success: or(f.OptionalBool("success"), true),
		Error: f.TextOr("error", ""), Parts: f.parts("parts"),
	}
	frame.result = registry.NewResult(frame.Success, frame.Output, frame.Error)
	frame.result.Parts = frame.Parts
	return frame
}

// decodeTool decodes one element of register_tools. With an error it still returns the name, if that could be decoded,
// for the rejection.
func decodeTool(data json.RawMessage) (tool agent.Admitted, err error) {
	members, reason, _ := fields.Split(nil, data)
	if reason != "" {
		return tool, fields.Invalid("tool: %s", reason)
	}
	var bad *fields.Error
	f := frameFields{fields.Recording(members, &bad)}
	tool.Spec = registry.ToolSpec{
		Name: f.Text("name"), Description: f.TextOr("description", ""),
		Parameters: f.Value("parameters"), OutputSchema: f.Value(registry.FieldOutputSchema),
		TimeoutMS: or(f.OptionalInt("timeout_ms"), 0), Annotations: f.annotations("annotations"),
		SecurityLevel: registry.SecurityLevel(f.TextOr("security_level", "")),
		Effects:       f.effects("effects"), Tags: f.OptionalTexts("tags"),
	}
	tool.Ignored = f.Unread()
	if bad != nil {
		return tool, bad
	}
	return tool, nil
}

// frameFields reads the members of a frame, and of the objects in it.
type frameFields struct{ fields.Object }

// or returns an optional member, otherwise if it is absent.
func or[T any](member *T, otherwise T) T {
	if member != nil {
		return *member
	}
	return otherwise
}

// id returns the member id, which must not be empty.
func (f *frameFields) id() string {
	id := f.Text("id")
	if id == "" {
		f.Fail("id", "must not be empty")
	}
	return id
}

// resumeToken returns a token of valid length. The error does not contain the token, because it is a secret.
func (f *frameFields) resumeToken(key string) *string {
	token := f.OptionalText(key)
	if token != nil && (len(*token) < minResumeToken || len(*token) > maxResumeToken) {
		f.Fail(key, fmt.Sprintf("must have %d to %d bytes, like the one in session_start",
			minResumeToken, maxResumeToken))
	}
	return token
}

// labels returns an object of strings. Keys that differ only in case are different labels.
func (f *frameFields) labels(key string) map[string]string {
	v := f.Value(key)
	if v == nil {
		return nil
	}
	members, reason, ok := fields.SplitMap(nil, v)
	if !ok {
		f.Fail(key, reason)
		return nil
	}
	labels := make(map[string]string, len(members))
	for _, m := range members {
		if m.Value[0] != '"' {
			f.Fail(key+"."+fields.Short(string(m.Name)), "must be a string")
			return nil
		}
		labels[string(m.Name)] = strictjson.Text(m.Value)
	}
	return labels
}

// annotations returns MCP's hints. It records unknown hints as ignored.
func (f *frameFields) annotations(key string) *registry.Annotations {
	v := f.Value(key)
	if v == nil {
		return nil
	}
	members, reason, _ := fields.Split(nil, v)
	if reason != "" {
		f.Fail(key, reason)
		return nil
	}
	var bad *fields.Error
	hints := fields.Recording(members, &bad)
	a := &registry.Annotations{
		ReadOnlyHint:    hints.OptionalBool("readOnlyHint"),
		DestructiveHint: hints.OptionalBool("destructiveHint"),
		IdempotentHint:  hints.OptionalBool("idempotentHint"),
		OpenWorldHint:   hints.OptionalBool("openWorldHint"),
	}
	if bad != nil {
		f.Fail(key, bad.Message)
	}
	for _, name := range hints.Unread() {
		f.Ignore(key + "." + name)
	}
	if *a == (registry.Annotations{}) {
		return nil
	}
	return a
}

// effects returns what a tool declares about its calls. It records unknown members as ignored.
func (f *frameFields) effects(key string) *registry.Effects {
	v := f.Value(key)
	if v == nil {
		return nil
	}
	members, reason, _ := fields.Split(nil, v)
	if reason != "" {
		f.Fail(key, reason)
		return nil
	}
	var bad *fields.Error
	o := fields.Recording(members, &bad)
	e := &registry.Effects{
		Class:           registry.EffectClass(o.TextOr("class", "")),
		NeedsForeground: or(o.OptionalBool("needs_foreground"), false),
		Permission:      o.TextOr("permission", ""), Cost: registry.Cost(o.TextOr("cost", "")),
		TypicalMS: or(o.OptionalInt("typical_ms"), 0),
	}
	if bad != nil {
		f.Fail(key, bad.Message)
	}
	for _, name := range o.Unread() {
		f.Ignore(key + "." + name)
	}
	return e
}

// parts returns the images, sounds and files of a result. It checks their total size before it decodes each.
func (f *frameFields) parts(key string) []registry.Part {
	if f.Value(key) == nil {
		return nil
	}
	items := f.Array(key)
	if len(items) > registry.MaxParts {
		f.Fail(key, fmt.Sprintf("must have at most %d elements", registry.MaxParts))
		return nil
	}
	var parts []registry.Part
	room := registry.MaxInlinePart
	for i, item := range items {
		part, bad := decodePart(item, room)
		if bad != nil {
			f.Fail(fmt.Sprintf("%s[%d]", key, i), bad.Message)
			return nil
		}
		room -= len(part.Data)
		parts = append(parts, part)
	}
	return parts
}

// decodePart decodes one element of parts. Its data may have at most room bytes.
func decodePart(data []byte, room int) (registry.Part, *fields.Error) {
	var bad *fields.Error
	o, mistake := fields.Open(data, "must be valid JSON", &bad)
	if mistake != "" {
		return registry.Part{}, fields.Invalid("%s", mistake)
	}
	f := frameFields{*o}
	part := registry.Part{
		Type: registry.PartType(f.Text("type")), MIMEType: f.Text("mime_type"), Name: f.TextOr("name", ""),
	}
	if f.Value("data") == nil && f.Value("url") != nil {
		part.URL, part.Size = f.slot("url"), f.size("size")
	} else {
		part.Data = f.Data("data", room)
		part.Size = int64(len(part.Data))
		if or(f.OptionalInt("size"), part.Size) != part.Size {
			f.Fail("size", fmt.Sprintf("must be %d, the number of bytes in data", part.Size))
		}
	}
	if bad != nil {
		return part, bad
	}
	if field, must := part.Check(); field != "" {
		f.Fail(field, must)
	}
	return part, bad
}

// slot returns a member that is the URL of an upload_slot, exactly as the gateway sent it. Other URLs from a device are
// rejected, because readers of the result would fetch them.
func (f *frameFields) slot(key string) string {
	url := f.Text(key)
	if secret, ok := strings.CutPrefix(url, registry.PathUpload); !ok || !registry.ValidBlobSecret(secret) {
		f.Fail(key, "must be the url of an upload_slot; otherwise send data")
	}
	return url
}

// size returns a member that is a number of bytes, at least 1.
func (f *frameFields) size(key string) int64 {
	f.Required(key)
	n := or(f.OptionalInt(key), 0)
	if n < 1 { // the first mistake counts: a size that is absent or no number has failed above
		f.Fail(key, "must be a number of bytes, at least 1")
	}
	return n
}
