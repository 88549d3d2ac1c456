package client

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// maxOpenCalls bounds the calls whose ids are remembered: more than a gateway has in flight at one device.
const maxOpenCalls = 4096

// maxCallID bounds the id of a call that is remembered, in bytes: those of a gateway are shorter.
const maxCallID = 256

// mcpCalls are the calls that an MCP server was given and has not answered. It is safe for concurrent use.
type mcpCalls struct {
	mu    sync.Mutex
	open  map[string]bool // by id, as JSON
	ended bool            // the server has ended, and answers nothing more
}

// rpcMessage is what is read of a message of JSON-RPC.
type rpcMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

// begin notes a message of the gateway. It returns the answer to it if the server cannot give one, because it has
// ended.
func (m *mcpCalls) begin(message []byte) (lost []byte) {
	var r rpcMessage
	if json.Unmarshal(message, &r) != nil || r.Method != "tools/call" || len(r.ID) == 0 || len(r.ID) > maxCallID {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return lostAnswer(string(r.ID))
	}
	if m.open == nil {
		m.open = make(map[string]bool)
	}
	if len(m.open) < maxOpenCalls {
		m.open[string(r.ID)] = true
	}
	return nil
}

// answered notes a message of the server.
func (m *mcpCalls) answered(line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r rpcMessage
	if len(m.open) > 0 && json.Unmarshal(line, &r) == nil && r.Method == "" {
		delete(m.open, string(r.ID))
	}
}

// end notes that the server has ended. It returns the answers to the calls that are open.
func (m *mcpCalls) end() (lost [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(m.open)) {
		lost = append(lost, lostAnswer(id))
	}
	m.open, m.ended = nil, true
	return lost
}

// lostAnswer says that a call will not be answered. The code in its data is the gateway's own.
func lostAnswer(id string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32000,"message":"The MCP server ended before it ` +
		`answered.","data":{"code":"lost"}}}`)
}
