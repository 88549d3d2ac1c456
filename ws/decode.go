package ws

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// maxFrameDepth is how deep a frame may nest. Schemas have a tighter limit of their own.
const maxFrameDepth = 64

// frameError is a mistake in a frame. It is answered with an error frame, and the socket stays open.
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
	var buffer [fewFields]strictjson.Member
	members, err := frameMembers(buffer[:0], data)
	if err != nil {
		return nil, err
	}
	var bad *frameError
	f := fields{members: members, err: &bad}
	typ := f.text("type")
	if bad != nil {
		return nil, bad
	}
	frame := f.frame(typ)
	if frame == nil {
		return nil, &frameError{codeUnknownMessageType, "The message type " + quoteShort(typ) + " is not known."}
	}
	if bad != nil {
		return nil, bad
	}
	return frame, nil
}

// frameMembers appends the members of a frame. Errors are as of decodeFrame.
func frameMembers(into []strictjson.Member, data []byte) ([]strictjson.Member, error) {
	if !utf8.Valid(data) {
		return nil, CloseInvalidUTF8
	}
	if strictjson.Depth(data) > maxFrameDepth {
		return nil, &frameError{codeInvalidJSON, fmt.Sprintf("The frame nests deeper than %d levels.", maxFrameDepth)}
	}
	members, reason, ok := splitObject(into, data)
	switch {
	case reason != "":
		return nil, &frameError{codeInvalidJSON, "The frame: " + reason + "."}
	case !ok:
		return nil, &frameError{codeInvalidJSON, "The frame is not valid JSON."}
	}
	return members, nil
}

// answeredCall returns the id of the call that a frame answers, however malformed the rest of the answer is. It returns
// an empty id if the frame is not an answer.
func answeredCall(data []byte) string {
	members, err := strictjson.LenientMembers(data, maxFields)
	if err != nil || foldedTwice(members) != "" {
		return ""
	}
	var bad *frameError
	f := fields{members: members, err: &bad}
	typ, id := f.text("type"), f.text("id")
	if bad != nil || typ != typeToolResult && typ != typeToolError {
		return ""
	}
	return id
}

// frame builds the struct of a type. It returns nil if there is no such type.
func (f *fields) frame(typ string) any {
	switch typ {
	case typeConnect:
		return &connectFrame{
			Type: typ, V: f.optionalInt("v"), SessionID: f.optionalText("session_id"),
			DeviceName: f.optionalText("device_name"), Capabilities: f.optionalTexts("capabilities"),
			DeviceID: f.optionalText("device_id"), Platform: f.optionalText("platform"), Labels: f.labels("labels"),
			ResumeToken: f.resumeToken("resume_token"),
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
			Message: f.optionalText("message"), Chunk: f.json("chunk"),
		}
	case typeToolResult:
		return f.toolResult()
	case typeToolError:
		return &toolErrorFrame{Type: typ, ID: f.id(), Error: f.optionalText("error")}
	case typeMessage:
		return &messageFrame{Type: typ, Content: f.text("content"), Debug: f.optionalBool("debug")}
	case typeAbort:
		return &abortFrame{Type: typ}
	case typeApprovalResponse:
		return &approvalResponseFrame{Type: typ, ID: f.id(), Decision: f.text("decision")}
	case typeUploadRequest:
		return &uploadRequestFrame{
			Type: typ, ID: f.id(), MIMEType: f.text("mime_type"), Size: f.size("size"), Name: f.optionalText("name"),
		}
	case typeRegenerate:
		return &regenerateFrame{Type: typ, Debug: f.optionalBool("debug")}
	default:
		return nil
	}
}

func (f *fields) toolResult() *toolResultFrame {
	frame := &toolResultFrame{
		Type: typeToolResult, ID: f.id(), Output: f.json("output"), Success: f.optionalBool("success"),
		Error: f.optionalText("error"), Parts: f.parts("parts"),
	}
	message := ""
	if frame.Error != nil {
		message = *frame.Error
	}
	frame.result = registry.NewResult(frame.Success == nil || *frame.Success, frame.Output, message)
	frame.result.Parts = frame.Parts
	return frame
}

// decodeTool decodes one element of register_tools. It returns the name as far as it could be decoded also with an
// error, so that the rejection can carry it.
func decodeTool(data json.RawMessage) (toolDefinition, error) {
	members, reason, _ := splitObject(nil, data)
	if reason != "" {
		return toolDefinition{}, invalidMessage("tool: %s", reason)
	}
	var bad *frameError
	f := fields{members: members, err: &bad, asked: new([]string)}
	t := toolDefinition{Name: f.text("name")}
	if s := f.optionalText("description"); s != nil {
		t.Description = *s
	}
	t.Parameters, t.OutputSchema = f.value("parameters"), f.value(registry.FieldOutputSchema)
	if n := f.optionalInt("timeout_ms"); n != nil {
		t.TimeoutMS = *n
	}
	t.Annotations = f.annotations("annotations")
	if s := f.optionalText("security_level"); s != nil {
		t.SecurityLevel = *s
	}
	t.Ignored = f.unread()
	if bad != nil {
		return t, bad
	}
	return t, nil
}
