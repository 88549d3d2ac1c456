package ws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// maxFrameDepth is how deep a frame may nest. Schemas have a lower limit.
const maxFrameDepth = 64

// frameError is a mistake in a frame. The gateway answers it with an error frame and keeps the socket open.
type frameError struct {
	code    string
	message string
}

// Error implements error.
func (e *frameError) Error() string { return e.code + ": " + e.message }

func invalidMessage(format string, args ...any) *frameError {
	return &frameError{code: codeInvalidMessage, message: fmt.Sprintf(format, args...)}
}

// decodeFrame decodes one frame of a device and returns a pointer to its struct of frames.go. Unknown fields are
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

// answeredCall returns the id of the call that a frame answers, even if the rest of the answer is malformed. The id is
// empty if the frame is not an answer.
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

// decodeTool decodes one element of register_tools. With an error it still returns the name, if that could be decoded,
// for the rejection.
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

// maxFields bounds the members of one JSON object, so that looking for duplicates stays cheap.
const maxFields = 64

// fewFields is more members than most objects have.
const fewFields = 8

// splitObject appends the members of a JSON object in order. If ok is false, reason says why; it is empty for invalid
// JSON. Names that differ only in case are rejected, because two readers could interpret such an object differently.
func splitObject(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	members, reason, ok = appendMembers(into, data)
	if reason == "" {
		reason = foldedTwice(members)
	}
	return members, reason, ok && reason == ""
}

// appendMembers is splitObject for objects whose names may differ only in case.
func appendMembers(into []strictjson.Member, data []byte) (members []strictjson.Member, reason string, ok bool) {
	if into == nil {
		into = make([]strictjson.Member, 0, fewFields)
	}
	members, err := strictjson.Members(into, data, maxFields)
	if err != nil && mayHaveHalves(data) { // many apps truncate text in the middle of a character
		if whole, ok := strictjson.ReplaceHalves(data); ok {
			members, err = strictjson.Members(into, whole, maxFields)
		}
	}
	switch {
	case err == nil:
		return members, "", true
	case errors.Is(err, strictjson.ErrTooMany):
		return nil, "more than 64 fields", false
	case errors.Is(err, strictjson.ErrNotObject):
		return nil, err.Error(), false
	}
	if p := strictjson.Explain(err); p.Fault == strictjson.NameTwice {
		return nil, twice(p.Path), false
	}
	return nil, "", false
}

// maxFieldName exceeds the length in bytes of every field name that is read here. Longer names are not compared.
const maxFieldName = 64

// foldedTwice returns the reason to reject names that differ only in case, empty if there are none.
func foldedTwice(members []strictjson.Member) (reason string) {
	if len(members) > fewFields {
		return foldedTwiceInMany(members)
	}
	for i, m := range members {
		if len(m.Name) > maxFieldName {
			continue
		}
		for _, earlier := range members[:i] {
			if bytes.EqualFold(earlier.Name, m.Name) {
				return twice(string(m.Name))
			}
		}
	}
	return ""
}

// foldedTwiceInMany is foldedTwice in time linear in the bytes of the names. With pairwise comparison, a frame of
// objects whose names begin alike would take a hundred times as long as other frames of its length.
func foldedTwiceInMany(members []strictjson.Member) (reason string) {
	seen := make(map[string]struct{}, len(members))
	var folded []byte
	for _, m := range members {
		if len(m.Name) > maxFieldName {
			continue
		}
		folded = appendFolded(folded[:0], m.Name)
		if _, there := seen[string(folded)]; there {
			return twice(string(m.Name))
		}
		seen[string(folded)] = struct{}{}
	}
	return ""
}

// appendFolded appends the common spelling of a name and of all names that bytes.EqualFold considers equal to it.
func appendFolded(b, name []byte) []byte {
	for len(name) > 0 {
		r, size := utf8.DecodeRune(name)
		name = name[size:]
		first := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			first = min(first, other)
		}
		b = utf8.AppendRune(b, first)
	}
	return b
}

func twice(name string) string { return "the field " + quoteShort(name) + " is there twice" }

// mayHaveHalves reports whether a text may contain half of a surrogate pair. Only an escape can produce one.
func mayHaveHalves(data []byte) bool {
	return bytes.Contains(data, []byte(`\ud`)) || bytes.Contains(data, []byte(`\uD`))
}

// frameScanner tracks the frames in the bytes that a device sends (RFC 6455, section 5.2). The WebSocket library
// reports only whole messages, and a message may have any number of empty fragments. The scanner ignores protocol
// violations; the library ends the connection for them.
type frameScanner struct {
	first   byte   // of the header
	header  uint8  // bytes of the header so far; zero between frames
	size    uint8  // bytes of the whole header, once the second byte is known
	lengths uint8  // bytes of the header up to the end of the length
	open    bool   // a message is incomplete
	length  uint64 // of the payload, as far as the header has been read
	rest    uint64 // bytes of the payload still to come
	held    int    // payload bytes of the incomplete message
}

const (
	finalBit   = 0x80 // of the first byte
	opcodeBits = 0x0f // of the first byte; zero: a further fragment of a message
	maskBit    = 0x80 // of the second byte
)

// busy reports whether a frame or a message is incomplete.
func (s *frameScanner) busy() bool { return s.header > 0 || s.rest > 0 || s.open }

// scan processes p and returns how many frames began in it. Large fragments of a message do not count: their bytes
// count already, and some libraries split every message into fragments of 4 KiB. The number is negative if the header
// of such a fragment began before p. boundary reports whether p has a point where no frame and no message is
// incomplete.
func (s *frameScanner) scan(p []byte) (frames int, boundary bool) {
	for len(p) > 0 {
		if s.rest > 0 {
			n := min(s.rest, uint64(len(p)))
			p = p[n:]
			s.rest -= n
			if s.first&controlBit == 0 {
				s.held += int(n)
			}
		} else {
			if s.header == 0 {
				frames++
			}
			if s.readHeader(p[0]) && s.isLargePiece() {
				frames--
			}
			p = p[1:]
		}
		if s.header == 0 && s.rest == 0 {
			boundary = s.endFrame() || boundary
		}
	}
	return frames, boundary
}

// largePiece is the size in bytes from which a fragment of a message does not count as a frame.
const largePiece = 1 << 10

// isLargePiece reports whether the frame whose header was just read is a large fragment.
func (s *frameScanner) isLargePiece() bool { return s.first&opcodeBits == 0 && s.length >= largePiece }

// readHeader processes one more byte of a header, and reports whether it was the last.
func (s *frameScanner) readHeader(b byte) (complete bool) {
	switch {
	case s.header == 0:
		s.first, s.length = b, 0
	case s.header == 1:
		s.lengths = 2
		switch n := b & lengthBits; n {
		case 126:
			s.lengths = 4
		case 127:
			s.lengths = 10
		default:
			s.length = uint64(n)
		}
		s.size = s.lengths
		if b&maskBit != 0 {
			s.size += 4
		}
	case s.header < s.lengths:
		s.length = s.length<<8 | uint64(b)
	}
	s.header++
	if s.header > 1 && s.header == s.size {
		s.header, s.rest = 0, s.length
		return true
	}
	return false
}

// endFrame records that a frame is complete, and reports whether no message is incomplete.
func (s *frameScanner) endFrame() bool {
	if s.first&controlBit == 0 {
		s.open = s.first&finalBit == 0
		if !s.open {
			s.held = 0
		}
	}
	return !s.open
}
