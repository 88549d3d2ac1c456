package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
)

const maxMessageID = 256

// Results of Decode.
type (
	// Message is a message that concerns no call: a hello, a request, a notification, the answer to a request of the
	// gateway, or a message that is ignored.
	Message struct {
		hello     bool
		id        json.RawMessage // of a request, or of the answered request
		method    string          // of a request or a notification; empty: neither
		own       bool            // answers a request of the gateway
		result    json.RawMessage // of that answer
		failed    *failure        // of that answer; nil: it has a result
		unmatched bool            // answers no known request
	}

	// Result is the answer to a call.
	Result struct {
		Call   string
		Result registry.Result
	}

	// Failure is an answer to a call that says why its tool failed.
	Failure struct{ Call, Text string }

	// Progress is a report of a call. Its fields are as of tool_progress.
	Progress struct {
		Call            string
		Progress, Total json.RawMessage
		Message         *string
	}

	// Lost ends a call whose MCP server ended before it answered.
	Lost struct{ Call string }
)

// Type returns the type under which the message is counted.
func (m *Message) Type() string {
	if m.hello {
		return TypeHello
	}
	return TypeMCP
}

type failure struct {
	code    int64
	message string
	lost    bool // the MCP server ended before it answered, as its client reports
}

// Error implements error.
func (f *failure) Error() string {
	if f.code == 0 { // small devices omit the code
		return cmp.Or(f.message, "MCP error")
	}
	return "MCP error " + strconv.FormatInt(f.code, 10) + ": " + f.message
}

// Decode decodes one message and returns a pointer to one of the types above. The error is fields.ErrUTF8 or a
// *fields.Error.
func (m *Machine) Decode(data []byte) (any, error) {
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) > 0 && text[0] == '[' {
		return nil, fields.Invalid("send each message separately: arrays are not supported")
	}
	var buffer [fields.Few]strictjson.Member
	members, err := fields.Message(buffer[:0], data)
	if err != nil {
		return nil, err
	}
	var bad *fields.Error
	f := fields.New(members, &bad)
	if f.Value("jsonrpc") == nil && f.Value("type") != nil {
		return m.decodeTyped(&f)
	}
	return m.decodeMessage(&f)
}

// decodeTyped decodes a frame of a voice device.
func (m *Machine) decodeTyped(f *fields.Object) (any, error) {
	typ := f.Text("type")
	if bad := f.Bad(); bad != nil {
		return nil, bad
	}
	switch typ {
	case TypeHello:
		return &Message{hello: true}, nil
	case TypeMCP:
		payload, mistake := f.Inner("payload", "is required")
		if mistake != "" {
			return nil, fields.Invalid("payload: %s", mistake)
		}
		m.mu.Lock()
		m.envelope = true
		m.mu.Unlock()
		return m.decodeMessage(payload)
	}
	if m.HasEnvelope() {
		return &Message{}, nil // a voice conversation, which the gateway does not support
	}
	return nil, fields.NewError(fields.CodeUnknownType, "The message type "+fields.Quote(typ)+" is not known here. "+
		"This address is for MCP; the device protocol is at /ws/chat.")
}

func (m *Machine) decodeMessage(f *fields.Object) (any, error) {
	if v := f.Value("jsonrpc"); string(v) != `"2.0"` {
		f.Fail("jsonrpc", `must be "2.0"`)
	}
	id := messageID(f, "id")
	if f.Value("method") != nil {
		msg := &Message{id: id, method: f.Text("method")}
		if bad := f.Bad(); bad != nil {
			return nil, bad
		}
		if msg.method == "notifications/progress" && id == nil {
			return m.decodeProgress(f)
		}
		return msg, nil
	}
	failed := failureOf(f)
	result := f.Value("result")
	if result == nil && failed == nil {
		f.Fail("method", "is required, or result, or error")
	}
	if bad := f.Bad(); bad != nil {
		return nil, bad
	}
	return m.decodeAnswer(id, result, failed)
}

func (m *Machine) decodeAnswer(id, result json.RawMessage, failed *failure) (any, error) {
	own, call := m.requestOf(id)
	switch {
	case own:
		return &Message{id: id, own: true, result: result, failed: failed}, nil
	case call == "":
		return &Message{unmatched: true, failed: failed}, nil
	case failed != nil && failed.lost:
		m.forget(id)
		return &Lost{call}, nil
	case failed != nil:
		m.forget(id)
		return &Failure{call, failed.Error()}, nil
	}
	answer, err := callResult(call, result)
	if err == nil {
		m.forget(id) // on errors the id is still needed to end the call
	}
	return answer, err
}

func (m *Machine) decodeProgress(f *fields.Object) (any, error) {
	p, mistake := f.Inner("params", "is required")
	if mistake != "" {
		return nil, fields.Invalid("params: %s", mistake)
	}
	token := messageID(p, "progressToken")
	_, call := m.requestOf(token)
	progress := &Progress{call, p.OptionalNumber("progress"), p.OptionalNumber("total"), p.OptionalText("message")}
	if bad := p.Bad(); bad != nil {
		return nil, bad
	}
	if call == "" {
		return &Message{unmatched: true}, nil
	}
	return progress, nil
}

// AnsweredCall returns the id of the call that a message answers, even if the rest of the message is malformed. It is
// empty if the message answers no call.
func (m *Machine) AnsweredCall(data []byte) string {
	var bad *fields.Error
	members, ok := fields.Lenient(data)
	f := fields.New(members, &bad)
	if payload := f.Value("payload"); ok && payload != nil && m.HasEnvelope() {
		members, ok = fields.Lenient(payload)
		f = fields.New(members, &bad)
	}
	if !ok {
		return ""
	}
	id := messageID(&f, "id")
	if bad != nil || f.Value("method") != nil || f.Value("result") == nil && f.Value("error") == nil {
		return ""
	}
	own, call := m.requestOf(id)
	if own {
		return ""
	}
	return call
}

// messageID returns an id or a progress token, which is a string or a whole number. It returns nil if the member is
// absent or invalid.
func messageID(f *fields.Object, key string) json.RawMessage {
	v := f.Value(key)
	if v == nil {
		return nil
	}
	if len(v) > maxMessageID {
		f.Fail(key, "must have at most "+strconv.Itoa(maxMessageID)+" bytes")
		return nil
	}
	if v[0] == '"' {
		return strictjson.AppendString(nil, strictjson.Text(v)) // however it was escaped
	}
	if _, err := strconv.ParseInt(string(v), 10, 64); err != nil {
		f.Fail(key, "must be a string or a whole number")
		return nil
	}
	return v
}

// failureOf returns the error of a failed request, nil if it is absent. Small devices omit the code.
func failureOf(f *fields.Object) *failure {
	if f.Value("error") == nil {
		return nil
	}
	e, mistake := f.Inner("error", "must be an object")
	if mistake != "" {
		f.Fail("error", mistake)
		return nil
	}
	failed := &failure{message: e.TextOr("message", "")}
	if code := e.OptionalInt("code"); code != nil {
		failed.code = *code
	}
	failed.lost = string(fields.Member(e.Value("data"), "code")) == `"`+string(registry.CodeLost)+`"`
	return failed
}
