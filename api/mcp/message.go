package mcp

import (
	"bytes"
	"encoding/json"
	"math"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
)

const (
	// maxDepth lets arguments of the allowed depth stand inside a message and its params.
	maxDepth = agent.MaxArgsDepth + 2

	// maxID bounds the id of a request, in bytes: it is repeated in every message about the request.
	maxID = 256
)

// message is one JSON-RPC message of a client. Its fields are parts of the body.
type message struct {
	id     json.RawMessage // a string or a number, as it was sent; nil: a notification, or an answer
	method string          // empty: an answer
	params fields
	meta   fields // params._meta
}

// isRequest reports whether the client waits for an answer.
func (m *message) isRequest() bool { return m.id != nil && m.method != "" }

// fields are the members of an object. They are few, so get searches them one by one.
type fields []strictjson.Member

// get returns a member, none if it is missing.
func (f fields) get(name string) strictjson.Value {
	for i := range f {
		if string(f[i].Name) == name {
			return f[i].Checked()
		}
	}
	return strictjson.Value{}
}

// text returns a member that is a string.
func (f fields) text(name string) (s string, ok bool) {
	v := f.get(name)
	if !v.IsString() {
		return "", false
	}
	return strictjson.Text(v.Raw()), true
}

// parseMessage reads a body. On an error the id is set if it could be read, because the answer repeats it.
func parseMessage(body []byte) (message, error) {
	var m message
	trimmed := bytes.TrimSpace(body)
	switch {
	case len(trimmed) == 0:
		return m, invalidRequest("The body is empty. Send one JSON-RPC message.")
	case trimmed[0] == '[':
		return m, invalidRequest("Batches are not taken. Send one JSON-RPC message in each POST.")
	case strictjson.Depth(body) > maxDepth:
		return m, invalidRequest("The body nests deeper than %d levels.", maxDepth)
	}
	members, err := strictjson.Members(make(fields, 0, 4), body, math.MaxInt)
	if err != nil {
		return m, badJSON(body, err)
	}
	if err := m.read(members); err != nil {
		return m, err
	}
	return m, nil
}

// badJSON says why a body cannot be read.
func badJSON(body []byte, err error) error {
	switch p := strictjson.Explain(err); p.Fault {
	case strictjson.NotUTF8:
		return invalidRequest("The body is not valid UTF-8.")
	case strictjson.NameTwice:
		return invalidRequest("The field %.120q appears twice.", p.Path)
	default:
		if json.Valid(body) {
			return invalidRequest("The body must be a JSON object.")
		}
		return &rpcError{code: codeParse, message: "The body is not one valid JSON value."}
	}
}

func (m *message) read(members fields) error {
	if id := members.get("id"); !id.IsZero() {
		if !isID(id.Raw()) {
			return invalidRequest("The id must be a string or a whole number, of at most %d bytes.", maxID)
		}
		m.id = id.Raw()
	}
	if version, _ := members.text("jsonrpc"); version != "2.0" {
		return invalidRequest("The field \"jsonrpc\" must be \"2.0\".")
	}
	method := members.get("method")
	if method.IsZero() {
		if members.get("result").IsZero() && members.get("error").IsZero() {
			return invalidRequest("The field \"method\" is missing.")
		}
		m.id = nil // an answer: nothing was asked
		return nil
	}
	if !method.IsString() || method.Len() <= len(`""`) {
		return invalidRequest("The field \"method\" must be a string.")
	}
	m.method = strictjson.Text(method.Raw())
	return m.readParams(members.get("params"))
}

func (m *message) readParams(params strictjson.Value) (err error) {
	if params.IsZero() {
		return nil
	}
	if m.params, err = membersOf(params); err != nil {
		return invalidParams("The field \"params\" must be a JSON object.")
	}
	if meta := m.params.get("_meta"); !meta.IsZero() {
		if m.meta, err = membersOf(meta); err != nil {
			return invalidParams("The field \"_meta\" must be a JSON object.")
		}
	}
	return nil
}

// membersOf takes apart an object that has been checked.
func membersOf(v strictjson.Value) (fields, error) {
	return strictjson.Members(nil, v.Raw(), math.MaxInt)
}

// isID reports whether a value can be the id of a request: null cannot.
func isID(v json.RawMessage) bool {
	if len(v) > maxID {
		return false
	}
	if v[0] == '"' {
		return true
	}
	return (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && !bytes.ContainsAny(v, ".eE")
}
