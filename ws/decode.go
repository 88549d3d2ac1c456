package ws

import (
	"encoding/json"

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
		return nil, fields.NewError(codeUnknownMessageType, "The message type "+fields.Quote(typ)+" is not known.")
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
		return &toolErrorFrame{Type: typ, ID: f.id(), Error: f.OptionalText("error")}
	case typeMessage:
		return &messageFrame{Type: typ, Content: f.Text("content"), Debug: f.OptionalBool("debug")}
	case typeAbort:
		return &abortFrame{Type: typ}
	case typeApprovalResponse:
		return &approvalResponseFrame{Type: typ, ID: f.id(), Decision: f.Text("decision")}
	case typeUploadRequest:
		return &uploadRequestFrame{
			Type: typ, ID: f.id(), MIMEType: f.Text("mime_type"), Size: f.size("size"), Name: f.OptionalText("name"),
		}
	case typeRegenerate:
		return &regenerateFrame{Type: typ, Debug: f.OptionalBool("debug")}
	default:
		return nil
	}
}

func (f *frameFields) toolResult() *toolResultFrame {
	frame := &toolResultFrame{
		Type: typeToolResult, ID: f.id(), Output: f.JSON("output"), Success: f.OptionalBool("success"),
		Error: f.OptionalText("error"), Parts: f.parts("parts"),
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
	members, reason, _ := fields.Split(nil, data)
	if reason != "" {
		return toolDefinition{}, fields.Invalid("tool: %s", reason)
	}
	var bad *fields.Error
	f := frameFields{fields.Recording(members, &bad)}
	t := toolDefinition{Name: f.Text("name")}
	if s := f.OptionalText("description"); s != nil {
		t.Description = *s
	}
	t.Parameters, t.OutputSchema = f.Value("parameters"), f.Value(registry.FieldOutputSchema)
	if n := f.OptionalInt("timeout_ms"); n != nil {
		t.TimeoutMS = *n
	}
	t.Annotations = f.annotations("annotations")
	if s := f.OptionalText("security_level"); s != nil {
		t.SecurityLevel = *s
	}
	t.Ignored = f.Unread()
	if bad != nil {
		return t, bad
	}
	return t, nil
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
