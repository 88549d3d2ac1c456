package node

import (
	"encoding/json"
	"slices"
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

// call is a call that the node runs, or has answered.
type call struct {
	id         string // of the call
	invocation string // of its invocation; empty: it is not running
	request    string // id of the request with its answer, which is to be acknowledged
	tool       string
	catalog    *commands.Catalog // the one that the call began with
	inv        commands.Invocation
	steps      int    // invocations so far
	suffix     string // of the invocations' ids

	next      int64            // number of the next chunk of progress
	early     map[int64]string // chunks that came before it; nil: none
	truncated bool             // a chunk was dropped, so no more are recorded
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
// call has begun again.
func (m *Machine) Next(s *Step, left time.Duration) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runningLocked(s.Call) != nil {
		return nil
	}
	return m.invokeLocked(s.call, *s.invoke, left)
}

// invokeLocked makes a call the one that its new invocation's id names. The id of the first is the call's own, unless a
// person decided the call.
func (m *Machine) invokeLocked(c *call, inv commands.Invocation, left time.Duration) []byte {
	c.steps++
	c.inv, c.next, c.early, c.truncated = inv, 0, nil, false
	c.invocation = c.id + c.suffix
	if c.steps > 1 {
		c.invocation += "." + strconv.Itoa(c.steps)
	}
	if !slices.Contains(m.calls, c) {
		m.calls = append(m.calls, c)
	}
	if inv.Timeout > 0 {
		left = min(left, inv.Timeout)
	}
	return invokeFrame(c.invocation, m.cfg.NodeID, inv, left)
}

// runningLocked returns the call with this id that the node runs, nil if there is none.
func (m *Machine) runningLocked(callID string) *call {
	for _, c := range m.calls {
		if c.id == callID && c.invocation != "" {
			return c
		}
	}
	return nil
}

// invokedLocked returns the call of an invocation, nil if the node runs none with this id.
func (m *Machine) invokedLocked(invocation string) *call {
	for _, c := range m.calls {
		if c.invocation == invocation && invocation != "" {
			return c
		}
	}
	return nil
}

// End reports that a call needs no answer any more.
func (m *Machine) End(callID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(m.runningLocked(callID))
}

// endLocked makes a call one that the node does not run. It is kept while its answer is to be acknowledged.
func (m *Machine) endLocked(c *call) (invocation string) {
	if c == nil {
		return ""
	}
	m.dropEarlyLocked(c)
	invocation, c.invocation = c.invocation, ""
	if c.request == "" {
		m.removeLocked(c)
	}
	return invocation
}

func (m *Machine) removeLocked(c *call) {
	i := slices.Index(m.calls, c)
	if i < 0 {
		return
	}
	if m.calls = slices.Delete(m.calls, i, i+1); len(m.calls) == 0 {
		m.calls = nil // an idle connection keeps no memory for calls
	}
}

// Cancel is End for a call that the node should stop. It returns the frame for the node, nil if it needs none.
func (m *Machine) Cancel(callID string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.endLocked(m.runningLocked(callID))
	if id == "" {
		return nil
	}
	return event(eventCancel, struct {
		InvokeID string `json:"invokeId"`
		NodeID   string `json:"nodeId"`
	}{id, m.cfg.NodeID})
}

// callOf returns the id of the call of an invocation, empty if the node runs none with this id.
func (m *Machine) callOf(invocation string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.invokedLocked(invocation); c != nil {
		return c.id
	}
	return ""
}

// take ends an invocation that the node has answered. It returns nil if there is none with this id.
func (m *Machine) take(invocation, request string) *call {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.invokedLocked(invocation)
	if c != nil {
		c.request = request
		m.endLocked(c)
	}
	return c
}

// Acknowledge returns the answer to the request with a call's result, nil if there is none. ignored means that no
// caller waited for the result any more.
func (m *Machine) Acknowledge(callID string, ignored bool) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.calls {
		if c.id != callID || c.request == "" {
			continue
		}
		frame := settled(c.request, ignored)
		if c.request = ""; c.invocation == "" {
			m.removeLocked(c)
		}
		return frame
	}
	return nil
}

// progress returns the chunks of a call that are complete with this one, in order. ignored means that it is not
// recorded: the call is unknown, the chunk came twice, or too much came early.
func (m *Machine) progress(id string, seq int64, chunk string) (callID string, chunks []string, ignored bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.invokedLocked(id)
	if c == nil || c.truncated || seq < c.next {
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
		c.truncated = true
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
