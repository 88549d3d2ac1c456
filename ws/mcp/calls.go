package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Call returns the message that starts a call at the device. Its id is the call's own, or a number.
func (m *Machine) Call(call, tool string, args json.RawMessage) []byte {
	m.mu.Lock()
	envelope, meta, theirs := m.envelope, m.meta, m.theirs[tool]
	var id []byte
	if envelope {
		id = strconv.AppendInt(nil, m.numbers.add(call), 10)
	}
	m.mu.Unlock()
	if !envelope {
		id = strictjson.AppendString(nil, call)
	}
	if theirs != "" {
		tool = theirs
	}
	return m.wrap(envelope, callFrame(id, tool, args, meta))
}

// NotSent reports that the message of Call was not sent.
func (m *Machine) NotSent(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers.remove(m.numbers.of[call])
}

// End reports that a call needs no answer any more. It returns the call's id in messages, as JSON, or nil if the call
// was not sent over this connection.
func (m *Machine) End(call string) (id []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.envelope {
		return strictjson.AppendString(nil, call)
	}
	number, ok := m.numbers.end(call)
	if !ok {
		return nil
	}
	return strconv.AppendInt(nil, number, 10)
}

// Cancel is End for a call that the device should cancel. It returns the message for the device, nil if it needs none.
func (m *Machine) Cancel(call, reason string) []byte {
	id := m.End(call)
	if id == nil {
		return nil
	}
	b := append([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`), id...)
	b = strictjson.AppendString(append(b, `,"reason":`...), reason)
	return m.wrap(m.HasEnvelope(), append(b, `}}`...))
}

// requestOf returns the call for the id of a message, empty if there is none. own means that the id belongs to the
// gateway's pending request.
func (m *Machine) requestOf(id []byte) (own bool, call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.envelope {
		if n, err := strconv.ParseInt(string(id), 10, 64); err == nil {
			call = m.numbers.calls[n]
		}
	} else if len(id) > 0 && id[0] == '"' {
		call = strictjson.Text(id)
	}
	return m.isPending(id), call
}

func (m *Machine) forget(id []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil {
		m.numbers.remove(n)
	}
}

// maxEndedCalls bounds the calls that keep their numbers after they ended without an answer.
const maxEndedCalls = 1024

// numbers maps calls to numbers, for devices whose message ids are numbers. A call keeps its number while it is in
// flight; the session limits how many are. A call that ended without an answer (cancelled, timed out) keeps its number
// for a late answer. Only the last maxEndedCalls of those are kept. The zero value is ready. It is not safe for
// concurrent use.
type numbers struct {
	last  int64            // zero: none assigned yet
	calls map[int64]string // nil: none
	of    map[string]int64 // numbers of the calls in flight; nil: none
	ended []int64          // numbers of the ended calls, oldest first
}

// next returns an unused number. The first number is random, so that a late answer to an earlier connection does not
// match another call. Small devices store numbers in 32 bits, so the numbers restart at 1 after math.MaxInt32.
func (n *numbers) next() int64 {
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

func (n *numbers) add(call string) int64 {
	if n.calls == nil {
		n.calls, n.of = make(map[int64]string), make(map[string]int64)
	}
	number := n.next()
	n.calls[number], n.of[call] = call, number
	return number
}

// end records that a call ended without an answer. It returns the call's number, false if the call is not in flight.
func (n *numbers) end(call string) (number int64, ok bool) {
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

func (n *numbers) remove(number int64) {
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
		*n = numbers{last: n.last}
	}
}

// Types of the messages that are not JSON-RPC. Both sides send them.
const (
	TypeHello = "hello" // of voice devices
	TypeMCP   = "mcp"   // the envelope of a message
)

// Versions of MCP. A server answers initialize with its version. The version without initialize is requested by
// server/discover.
const (
	initializeVersion = "2025-11-25"
	statelessVersion  = "2026-07-28"
)

const (
	methodInitialize = "initialize"
	methodListTools  = "tools/list"
)

const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
)

const (
	clientInfo = `{"name":"farhand","version":"1"}`

	// statelessMeta describes the client in each request of the stateless version.
	statelessMeta = `"io.modelcontextprotocol/protocolVersion":"` + statelessVersion +
		`","io.modelcontextprotocol/clientInfo":` + clientInfo +
		`,"io.modelcontextprotocol/clientCapabilities":{}`
)

// callFrame copies the arguments byte for byte, unless they have line breaks: a server behind a pipe needs each message
// on one line.
func callFrame(id []byte, tool string, args json.RawMessage, meta string) []byte {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if bytes.ContainsAny(args, "\r\n") {
		var line bytes.Buffer
		if json.Compact(&line, args) == nil { // always nil: the arguments were checked
			args = line.Bytes()
		}
	}
	b := make([]byte, 0, 192+2*len(id)+len(tool)+len(args)+len(meta))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"method":"tools/call","params":{"name":`...)
	b = strictjson.AppendString(b, tool)
	b = append(b, `,"arguments":`...)
	b = append(b, args...)
	b = append(b, `,"_meta":{"progressToken":`...)
	b = append(b, id...)
	if meta != "" {
		b = append(b, ',')
		b = append(b, meta...)
	}
	return append(b, `}}}`...)
}

// errorFrame returns an error answer. id is JSON.
func errorFrame(id string, code int, message string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code,
		strictjson.AppendString(nil, message))
}

// PairingFrame converts the frame with a device's pairing code: into an MCP log message, or into a text that a voice
// device shows on its screen.
func PairingFrame(frame []byte, voice bool) []byte {
	if voice {
		return []byte(`{"type":"alert","status":"pairing","message":` + string(fields.Member(frame, "message")) +
			`,"emotion":"neutral"}`)
	}
	b := []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error",` +
		`"logger":"farhand","data":`)
	return append(append(b, frame...), `}}`...)
}
