package node

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
	"github.com/farhand/farhand/ws/node/commands"
)

// Results of Decode, besides Answer and Step.
type (
	// Request is a request that concerns no call, or is ignored.
	Request struct {
		id, method string
		params     json.RawMessage // of methods that have some; a part of the frame
		ignored    bool            // it is about an unknown call
	}

	// Progress is output of a running call. It may have no chunk yet.
	Progress struct {
		Call    string
		Chunks  []string
		request string
	}
)

// Frame returns the answer to the request.
func (p *Progress) Frame() []byte { return settled(p.request, false) }

// Decode decodes one frame and returns a pointer to an Answer, Step, Progress or Request. values is how many JSON
// values it had to read besides those of the frame itself. The error is fields.ErrUTF8 or a *fields.Error.
func (m *Machine) Decode(data []byte) (frame any, values int, err error) {
	m.request = identifierOfNoFrame
	var buffer [fields.Few]strictjson.Member
	members, err := fields.Message(buffer[:0], data)
	if err != nil {
		return nil, 0, err
	}
	var bad *fields.Error
	f := fields.New(members, &bad)
	typ, id, method := f.Text("type"), f.Text("id"), f.Text("method")
	if bad == nil && (typ != Type || id == "" || len(id) > maxEcho || method == "") {
		bad = fields.Invalid("invalid request frame: only requests are expected from a node")
	}
	if bad != nil {
		return nil, 0, bad
	}
	m.request = strings.Clone(id)
	switch method {
	case methodResult:
		return m.decodeResult(&f)
	case methodProgress:
		frame, err = m.decodeProgress(&f)
		return frame, 0, err
	}
	return &Request{id: m.request, method: method, params: f.Value("params")}, 0, nil
}

// decodeResult decodes the answer to an invocation, and decides what follows.
func (m *Machine) decodeResult(f *fields.Object) (frame any, values int, err error) {
	var buffer [fields.Few]strictjson.Member
	members, mistake, _ := fields.Split(buffer[:0], f.Value("params"))
	if mistake != "" || members == nil {
		return nil, 0, fields.Invalid("invalid node.invoke.result params: %s", mistake)
	}
	var bad *fields.Error
	object := fields.New(members, &bad)
	p := &object
	id, ok := p.Text("id"), p.OptionalBool("ok")
	if ok == nil {
		p.Fail("ok", "is required")
	}
	if bad := m.checkNode(p); bad != nil {
		return nil, 0, bad
	}
	if m.callOf(id) == "" { // before its payload is read
		return &Request{id: m.request, method: methodResult, ignored: true}, 0, nil
	}
	a := commands.Answer{Failure: failureOf(p, *ok)}
	if a.Failure == nil {
		if a.Payload, values, err = payloadOf(p); err != nil {
			return nil, values, err
		}
	}
	if bad := p.Bad(); bad != nil {
		return nil, values, bad
	}
	c := m.take(id, m.request)
	if c == nil { // it ended meanwhile
		return &Request{id: m.request, method: methodResult, ignored: true}, values, nil
	}
	step := commands.After(c.catalog, c.tool, c.inv, a)
	if step.Invoke != nil {
		return &Step{Call: c.id, call: c, invoke: step.Invoke}, values, nil
	}
	return &Answer{Call: c.id, Result: step.Result, Ask: step.Ask}, values, nil
}

// checkNode checks that a frame names the node of this connection.
func (m *Machine) checkNode(p *fields.Object) *fields.Error {
	node := p.Text("nodeId")
	if bad := p.Bad(); bad != nil {
		return bad
	}
	if node != m.cfg.NodeID {
		return fields.Invalid("nodeId mismatch")
	}
	return nil
}

// payloadOf returns what a command returned. payloadJSON has it as text inside the JSON, so it is JSON twice. Some
// nodes send null there, or a value that is no string.
func payloadOf(p *fields.Object) (payload registry.JSON, values int, err error) {
	text := p.Value("payloadJSON")
	switch {
	case text == nil:
		return p.JSON("payload"), 0, nil
	case text[0] != '"':
		return p.JSON("payloadJSON"), 0, nil
	}
	inner := []byte(strictjson.Text(text))
	values = strictjson.Values(inner)
	if len(inner) == 0 {
		return registry.JSON{}, values, nil
	}
	if fault := strictjson.Check(inner, fields.MaxDepth); fault.Fault != 0 {
		return registry.JSON{}, values, fields.Invalid("payloadJSON: must be valid JSON")
	}
	if payload, err = registry.ParseJSON(inner); err != nil {
		return registry.JSON{}, values, fields.Invalid("payloadJSON: must be valid JSON")
	}
	return payload, values, nil
}

// failureOf returns the error of a command, nil if it ran.
func failureOf(p *fields.Object, ok bool) *commands.Failure {
	if ok {
		return nil
	}
	failure := &commands.Failure{Message: "The node did not say why."}
	if p.Value("error") == nil {
		return failure
	}
	e, mistake := p.Inner("error", "must be an object")
	if mistake != "" {
		p.Fail("error", mistake)
		return failure
	}
	failure.Code = e.TextOr("code", "")
	failure.Message = e.TextOr("message", failure.Message)
	return failure
}

func (m *Machine) decodeProgress(f *fields.Object) (any, error) {
	p, mistake := f.Inner("params", "is required")
	if mistake != "" {
		return nil, fields.Invalid("invalid node.invoke.progress params: %s", mistake)
	}
	id, seq, chunk := p.Text("invokeId"), whole(p, "seq"), p.Text("chunk")
	if len(chunk) > maxChunk {
		p.Fail("chunk", fmt.Sprintf("must have at most %d bytes", maxChunk))
	}
	if seq < 0 {
		p.Fail("seq", "must not be negative")
	}
	if bad := m.checkNode(p); bad != nil {
		return nil, bad
	}
	callID, chunks, ignored := m.progress(id, seq, chunk)
	if ignored {
		return &Request{id: m.request, method: methodProgress, ignored: true}, nil
	}
	return &Progress{callID, chunks, m.request}, nil
}

// AnsweredCall returns the id of the call that a frame answers, even if the rest of the frame is malformed. It is empty
// if the frame answers no call of this connection.
func (m *Machine) AnsweredCall(data []byte) string {
	var bad *fields.Error
	members, ok := fields.Lenient(data)
	f := fields.New(members, &bad)
	if !ok || f.Text("type") != Type || f.Text("method") != methodResult {
		return ""
	}
	if id := f.Text("id"); id != "" && len(id) <= maxEcho {
		m.request = strings.Clone(id)
	}
	members, ok = fields.Lenient(f.Value("params"))
	p := fields.New(members, &bad)
	if !ok || p.TextOr("nodeId", "") != m.cfg.NodeID {
		return ""
	}
	return m.callOf(p.TextOr("id", ""))
}
