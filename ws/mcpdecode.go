package ws

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// maxMessageID is how many bytes the id of an MCP message may have.
const maxMessageID = 256

type (
	// mcpHello is the greeting of a voice device.
	mcpHello struct{}

	// mcpFrame is an MCP message without an equivalent in the device protocol: a request, a notification, the answer to
	// a request of the gateway, or a message that is ignored.
	mcpFrame struct {
		id     json.RawMessage // of a request, or of the answered request
		method string          // of a request or a notification; empty: neither
		own    bool            // answers a request of the gateway
		result json.RawMessage // of that answer
		failed *mcpFailure     // of that answer; nil: it has a result
		stray  bool            // answers no known request
	}

	// mcpFailure is an error answer.
	mcpFailure struct {
		code    int64
		message string
		lost    bool // the MCP server ended before it answered, as its client reports
	}

	// mcpLost ends a call whose MCP server ended before it answered.
	mcpLost struct{ call string }
)

// Error implements error.
func (f *mcpFailure) Error() string {
	if f.code == 0 { // small devices omit the code
		return cmp.Or(f.message, "MCP error")
	}
	return "MCP error " + strconv.FormatInt(f.code, 10) + ": " + f.message
}

// decode decodes one message of an MCP device. Answers to calls, and progress reports, become the equivalent frames of
// the device protocol. Every other message becomes an *mcpFrame or an *mcpHello. Errors are as of decodeFrame.
func (m *mcpLink) decode(data []byte) (any, error) {
	if text := bytes.TrimLeft(data, " \t\r\n"); len(text) > 0 && text[0] == '[' {
		return nil, invalidMessage("send each message by itself: arrays of them are not understood")
	}
	var buffer [fewFields]strictjson.Member
	members, err := frameMembers(buffer[:0], data)
	if err != nil {
		return nil, err
	}
	var bad *frameError
	f := fields{members: members, err: &bad}
	if f.value("jsonrpc") == nil && f.value("type") != nil {
		return m.decodeTyped(&f)
	}
	return m.decodeMessage(&f)
}

// decodeTyped decodes a frame of a voice device.
func (m *mcpLink) decodeTyped(f *fields) (any, error) {
	typ := f.text("type")
	if *f.err != nil {
		return nil, *f.err
	}
	switch typ {
	case typeHello:
		return &mcpHello{}, nil
	case typeMCP:
		payload, reason, ok := splitObject(nil, f.value("payload"))
		if !ok {
			if reason == "" {
				reason = "is required"
			}
			return nil, invalidMessage("payload: %s", reason)
		}
		m.useEnvelope()
		return m.decodeMessage(&fields{members: payload, err: f.err})
	}
	if m.hasEnvelope() {
		return &mcpFrame{}, nil // a voice conversation, which the gateway does not support
	}
	return nil, &frameError{codeUnknownMessageType, "The message type " + quoteShort(typ) + " is not known here. " +
		"This address speaks MCP; the device protocol is spoken at /ws/chat."}
}

// decodeMessage decodes a JSON-RPC message.
func (m *mcpLink) decodeMessage(f *fields) (any, error) {
	if v := f.value("jsonrpc"); string(v) != `"2.0"` {
		f.fail("jsonrpc", `must be "2.0"`)
	}
	id := f.messageID("id")
	if f.value("method") != nil {
		frame := &mcpFrame{id: id, method: f.text("method")}
		if *f.err == nil && frame.method == mcpProgress && id == nil {
			return m.decodeProgress(f)
		}
		if *f.err != nil {
			return nil, *f.err
		}
		return frame, nil
	}
	failed := f.failure("error")
	result := f.value("result")
	if result == nil && failed == nil {
		f.fail("method", "is required, or result, or error")
	}
	if *f.err != nil {
		return nil, *f.err
	}
	call := m.callOf(string(id))
	switch {
	case m.isPending(string(id)):
		return &mcpFrame{id: id, own: true, result: result, failed: failed}, nil
	case call == "":
		return &mcpFrame{stray: true, failed: failed}, nil
	case failed != nil && failed.lost:
		m.forget(string(id))
		return &mcpLost{call}, nil
	case failed != nil:
		m.forget(string(id))
		text := failed.Error()
		return &toolErrorFrame{Type: typeToolError, ID: call, Error: &text}, nil
	}
	frame, err := f.callResult(call, result)
	if err == nil {
		m.forget(string(id)) // on errors the id is still needed to end the call
	}
	return frame, err
}

// decodeProgress decodes a progress report of a call.
func (m *mcpLink) decodeProgress(f *fields) (any, error) {
	members, reason, ok := splitObject(nil, f.value("params"))
	if !ok {
		if reason == "" {
			reason = "is required"
		}
		return nil, invalidMessage("params: %s", reason)
	}
	p := &fields{members: members, err: f.err}
	token := p.messageID("progressToken")
	frame := &toolProgressFrame{
		Type: typeToolProgress, ID: m.callOf(string(token)), Progress: p.optionalNumber("progress"),
		Total: p.optionalNumber("total"), Message: p.optionalText("message"),
	}
	if *p.err != nil {
		return nil, *p.err
	}
	if frame.ID == "" {
		return &mcpFrame{stray: true}, nil
	}
	return frame, nil
}

// answeredCall returns the id of the call that a message answers, like conn.answeredCall.
func (m *mcpLink) answeredCall(data []byte) string {
	members, err := strictjson.LenientMembers(data, maxFields)
	if err != nil || foldedTwice(members) != "" {
		return ""
	}
	var bad *frameError
	f := &fields{members: members, err: &bad}
	if payload := f.value("payload"); payload != nil && m.hasEnvelope() {
		if f.members, err = strictjson.LenientMembers(payload, maxFields); err != nil || foldedTwice(f.members) != "" {
			return ""
		}
	}
	id := f.messageID("id")
	if bad != nil || f.value("method") != nil || f.value("result") == nil && f.value("error") == nil ||
		m.isPending(string(id)) {
		return ""
	}
	return m.callOf(string(id))
}

// messageID returns an id or a progress token, which is a string or a whole number. It returns nil if the member is
// absent or invalid.
func (f *fields) messageID(key string) json.RawMessage {
	v := f.value(key)
	if v == nil {
		return nil
	}
	if len(v) > maxMessageID {
		f.fail(key, "must have at most "+strconv.Itoa(maxMessageID)+" bytes")
		return nil
	}
	if v[0] == '"' {
		return strictjson.AppendString(nil, strictjson.Text(v)) // however it was escaped
	}
	if _, err := strconv.ParseInt(string(v), 10, 64); err != nil {
		f.fail(key, "must be a string or a whole number")
		return nil
	}
	return v
}

// failure returns the error of a failed request, nil if it is absent. Small devices omit the code.
func (f *fields) failure(key string) *mcpFailure {
	v := f.value(key)
	if v == nil {
		return nil
	}
	members, reason, ok := splitObject(nil, v)
	if !ok {
		if reason == "" {
			reason = "must be an object"
		}
		f.fail(key, reason)
		return nil
	}
	e := fields{members: members, err: f.err}
	failed := &mcpFailure{}
	if code := e.optionalInt("code"); code != nil {
		failed.code = *code
	}
	if message := e.optionalText("message"); message != nil {
		failed.message = *message
	}
	failed.lost = string(memberOf(e.value("data"), "code")) == `"`+string(registry.CodeLost)+`"`
	return failed
}

// maxEndedCalls bounds the calls that keep their numbers after they ended without an answer.
const maxEndedCalls = 1024

// callNumbers maps calls to numbers, for devices whose message ids are numbers. A call keeps its number while it is in
// flight; the session limits how many are. A call that ended without an answer (cancelled, timed out) keeps its number
// for a late answer. Only the last maxEndedCalls of those are kept. The zero value is ready. It is not safe for
// concurrent use.
type callNumbers struct {
	last  int64            // zero: none assigned yet
	calls map[int64]string // nil: none
	of    map[string]int64 // numbers of the calls in flight; nil: none
	ended []int64          // numbers of the ended calls, oldest first
}

// next returns an unused number. The first number is random, so that a late answer to an earlier connection does not
// match another call. Small devices store numbers in 32 bits, so the numbers restart at 1 after math.MaxInt32.
func (n *callNumbers) next() int64 {
	if n.last == 0 {
		n.last = rand.Int64N(1 << 30)
	}
	for {
		if n.last++; n.last > math.MaxInt32 {
			n.last = 1
		}
		if _, taken := n.calls[n.last]; !taken {
			return n.last
		}
	}
}

// add assigns a number to a call that is about to be sent.
func (n *callNumbers) add(call string) int64 {
	if n.calls == nil {
		n.calls, n.of = make(map[int64]string), make(map[string]int64)
	}
	number := n.next()
	n.calls[number], n.of[call] = call, number
	return number
}

// end records that a call ended without an answer. It returns the call's number, false if the call is not in flight.
func (n *callNumbers) end(call string) (number int64, ok bool) {
	number, ok = n.of[call]
	if !ok {
		return 0, false
	}
	delete(n.of, call)
	n.ended = append(n.ended, number)
	if len(n.ended) > maxEndedCalls {
		n.remove(n.ended[0])
	}
	return number, true
}

// remove releases a number because its call was answered or never sent.
func (n *callNumbers) remove(number int64) {
	call, ok := n.calls[number]
	if !ok {
		return
	}
	delete(n.calls, number)
	if n.of[call] == number {
		delete(n.of, call)
	} else if i := slices.Index(n.ended, number); i >= 0 {
		n.ended = slices.Delete(n.ended, i, i+1)
	}
	if len(n.calls) == 0 {
		*n = callNumbers{last: n.last}
	}
}
