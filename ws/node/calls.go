package node

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/node/commands"
)

// Bounds of progress. A chunk may have what the protocol allows. Chunks that come before earlier ones wait for those;
// what waits has a limit for all calls of a connection.
const (
	maxChunk    = 16 << 10  // bytes
	maxEarly    = 128       // chunks of a call
	maxBuffered = 256 << 10 // bytes
)

// approvedSuffix ends the ids of invocations for a call that a person decided.
const approvedSuffix = ".approved"

// call is a call that the node runs.
type call struct {
	id      string // of the call
	tool    string
	catalog commands.Catalog // the one that the call began with
	inv     commands.Invocation
	steps   int    // invocations so far
	suffix  string // of the invocations' ids

	next  int64            // number of the next chunk of progress
	early map[int64]string // chunks that came before it; nil: none
	torn  bool             // a chunk was dropped, so no more are recorded
}

// Call returns the frame that starts a call, whose tool the node must offer. It fails with an *registry.Error.
func (m *Machine) Call(id, tool string, c commands.Call) ([]byte, error) {
	catalog := m.Catalog()
	inv, err := catalog.Invoke(tool, c)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	started := &call{id: id, tool: tool, catalog: catalog}
	if c.Approved { // the node may remember the id of the attempt that it did not run
		started.suffix = approvedSuffix
	}
	return m.invokeLocked(started, inv, c.Left), nil
}

// Next returns the frame for what a call needs next. left is how long its caller still waits. It returns nil if the
// call has ended.
func (m *Machine) Next(s *Step, left time.Duration) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current[s.Call] != "" { // the call began again
		return nil
	}
	return m.invokeLocked(s.call, *s.invoke, left)
}

// invokeLocked makes a call the one that its new invocation's id names. The id of the first is the call's
// own, unless a person decided the call.
func (m *Machine) invokeLocked(c *call, inv commands.Invocation, left time.Duration) []byte {
	if m.calls == nil {
		m.calls, m.current = make(map[string]*call), make(map[string]string)
	}
	c.steps++
	c.inv, c.next, c.early, c.torn = inv, 0, nil, false
	id := c.id + c.suffix
	if c.steps > 1 {
		id += "." + strconv.Itoa(c.steps)
	}
	m.calls[id], m.current[c.id] = c, id
	if inv.Timeout > 0 {
		left = min(left, inv.Timeout)
	}
	return invokeFrame(id, m.cfg.NodeID, inv, left)
}

// End reports that a call needs no answer any more.
func (m *Machine) End(callID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(callID)
}

func (m *Machine) endLocked(callID string) (id string) {
	id = m.current[callID]
	if id == "" {
		return ""
	}
	m.dropEarlyLocked(m.calls[id])
	delete(m.calls, id)
	delete(m.current, callID)
	if len(m.calls) == 0 {
		m.calls, m.current = nil, nil // an idle connection keeps no maps
	}
	return id
}

// Cancel is End for a call that the node should stop. It returns the frame for the node, nil if it needs none.
func (m *Machine) Cancel(callID string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.endLocked(callID)
	if id == "" {
		return nil
	}
	return event(eventCancel, struct {
		InvokeID string `json:"invokeId"`
		NodeID   string `json:"nodeId"`
	}{id, m.cfg.NodeID})
}

// callOf returns the id of the call of an invocation, empty if the node runs none with this id.
func (m *Machine) callOf(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.calls[id]; c != nil {
		return c.id
	}
	return ""
}

// take ends an invocation that the node has answered. It returns nil if there is none with this id.
func (m *Machine) take(id, request string) *call {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.calls[id]
	if c == nil {
		return nil
	}
	m.endLocked(c.id)
	if m.answered == nil {
		m.answered = make(map[string]string)
	}
	m.answered[c.id] = request
	return c
}

// Acknowledge returns the answer to the request with a call's result, nil if there is none. ignored means that nobody
// waited for the result any more.
func (m *Machine) Acknowledge(callID string, ignored bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	request, ok := m.answered[callID]
	if !ok {
		return nil
	}
	if delete(m.answered, callID); len(m.answered) == 0 {
		m.answered = nil
	}
	return settled(request, ignored)
}

// progress returns the chunks of a call that are complete with this one, in order. ignored means that it is not
// recorded: the call is unknown, the chunk came twice, or too much came early.
func (m *Machine) progress(id string, seq int64, chunk string) (callID string, chunks []string, ignored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.calls[id]
	if c == nil || c.torn || seq < c.next {
		return "", nil, true
	}
	if seq > c.next {
		return c.id, nil, !m.keepLocked(c, seq, chunk)
	}
	chunks = []string{chunk}
	for c.next++; ; c.next++ {
		chunk, ok := c.early[c.next]
		if !ok {
			return c.id, chunks, false
		}
		delete(c.early, c.next)
		m.buffered -= len(chunk)
		chunks = append(chunks, chunk)
	}
}

// keepLocked keeps a chunk that came early, and reports whether it did. If there is no room, the call's progress ends:
// what follows would have a hole.
func (m *Machine) keepLocked(c *call, seq int64, chunk string) bool {
	if _, twice := c.early[seq]; twice {
		return false
	}
	if len(c.early) == maxEarly || m.buffered+len(chunk) > maxBuffered {
		c.torn = true
		m.dropEarlyLocked(c)
		return false
	}
	if c.early == nil {
		c.early = make(map[int64]string)
	}
	c.early[seq] = strings.Clone(chunk)
	m.buffered += len(chunk)
	return true
}

func (m *Machine) dropEarlyLocked(c *call) {
	for _, chunk := range c.early {
		m.buffered -= len(chunk)
	}
	c.early = nil
}

// invokeFrame returns the event that starts an invocation. The protocol puts the parameters into a string.
func invokeFrame(id, node string, inv commands.Invocation, left time.Duration) []byte {
	params := inv.Params
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	b := make([]byte, 0, 256+2*len(id)+len(node)+len(inv.Command)+len(params)+len(params)/8)
	b = append(b, `{"type":"event","event":"`+eventInvoke+`","payload":{"id":`...)
	b = strictjson.AppendString(b, id)
	b = append(b, `,"nodeId":`...)
	b = strictjson.AppendString(b, node)
	b = append(b, `,"command":`...)
	b = strictjson.AppendString(b, inv.Command)
	b = append(b, `,"paramsJSON":`...)
	b = strictjson.AppendString(b, string(params))
	b = append(b, `,"timeoutMs":`...)
	b = strconv.AppendInt(b, max(left.Milliseconds(), 1), 10) // 0 would mean no limit
	b = append(b, `,"idempotencyKey":`...)
	b = strictjson.AppendString(b, id)
	return append(b, `}}`...)
}

// Step is what a call needs next: the node is asked for more.
type Step struct {
	Call string

	call   *call
	invoke *commands.Invocation
}

// Answer ends a call.
type Answer struct {
	Call   string
	Result registry.Result
	Ask    string // if it is not empty, the node ran nothing and wants a person's decision for this reason
}
