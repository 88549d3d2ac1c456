package ws

import (
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry/routing"
)

// mcpAnswerWait is how long an MCP device may take to answer initialize, or to send its whole list of tools.
const mcpAnswerWait = 30 * time.Second

// mcpStage is the stage of the conversation with an MCP device.
type mcpStage uint8

const (
	mcpGreeting     mcpStage = iota // waiting for a voice device's hello
	mcpInitializing                 // initialize was sent
	mcpDiscovering                  // server/discover was sent, because the device rejected initialize
	mcpListingTools                 // the first tools/list was sent
	mcpReady
)

// mcpLink is the MCP state of a connection. The gateway is the MCP client, the device is the MCP server. Raw MCP
// messages use the call's own id, so an answer finds its call on any connection. Voice devices use only numbers, so
// each connection numbers its calls itself.
type mcpLink struct {
	device string // device id in the upgrade request; never changes
	voice  bool   // a voice device, which sends hello first; never changes

	session string // session id for envelopes; set before the session is opened, then never changes

	// talk is held while the gateway's own requests are processed, by the reader and by the timeout. Take it before
	// conn.registering.
	talk    sync.Mutex
	stage   mcpStage
	greeted bool        // initialize was sent after a voice device's hello
	listing *mcpListing // the current list; nil: none
	changed bool        // the list has changed since it was requested

	mu       sync.Mutex
	opened   bool              // the first frame was sent
	ready    bool              // the tools have been listed
	envelope bool              // messages are in envelopes
	meta     string            // members of _meta in each request; empty before version 2026-07-28
	pending  string            // id of the gateway's own request, as JSON; empty: none
	asked    int               // grows with each request that has a timer
	timer    *time.Timer       // timer of the own request; nil: none is pending
	stopped  bool              // the connection has ended; no timer starts any more
	numbers  callNumbers       // ids of calls in envelopes
	theirs   map[string]string // tools with another name at the device: name here → name there; nil: none
}

// wrap puts an MCP message into an envelope if the device uses envelopes.
func (m *mcpLink) wrap(message []byte) []byte {
	if !m.hasEnvelope() {
		return message
	}
	b := make([]byte, 0, len(message)+len(m.session)+64)
	b = append(b, `{"type":"`+typeMCP+`","session_id":`...)
	b = strictjson.AppendString(b, m.session)
	b = append(b, `,"payload":`...)
	b = append(b, message...)
	return append(b, '}')
}

func (m *mcpLink) hasEnvelope() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.envelope
}

func (m *mcpLink) useEnvelope() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.envelope = true
}

// newRequest returns the id of a new request of the gateway, as JSON. An answer to the previous request is then
// ignored.
func (m *mcpLink) newRequest() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.envelope {
		m.pending = strconv.FormatInt(m.numbers.next(), 10)
		return m.pending
	}
	m.pending = `"` + uuid.NewString() + `"`
	return m.pending
}

// newCallID returns the id of a call in messages to the device, as JSON.
func (m *mcpLink) newCallID(call string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.envelope {
		return strictjson.AppendString(nil, call)
	}
	return strconv.AppendInt(nil, m.numbers.add(call), 10)
}

// endCall records that a call needs no answer any more. It returns the call's id like newCallID, nil if the call was
// not sent to the device over this connection.
func (m *mcpLink) endCall(call string) []byte {
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

// callOf returns the call for the id of a message, empty if there is none.
func (m *mcpLink) callOf(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.envelope {
		if id == "" || id[0] != '"' {
			return ""
		}
		return strictjson.Text([]byte(id))
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return ""
	}
	return m.numbers.calls[n]
}

// forget records that a call has been answered.
func (m *mcpLink) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		m.numbers.remove(n)
	}
}

// notSent records that a call was not sent to the device.
func (m *mcpLink) notSent(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers.remove(m.numbers.of[call])
}

// isPending reports whether an id belongs to the gateway's pending request.
func (m *mcpLink) isPending(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return id != "" && id == m.pending
}

// arm calls late if the own request is not answered within mcpAnswerWait. disarm stops the timer, and stop does so for
// good.
func (m *mcpLink) arm(late func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	m.asked++
	asked := m.asked
	if m.timer != nil {
		m.timer.Stop()
	}
	m.timer = time.AfterFunc(mcpAnswerWait, func() {
		m.mu.Lock()
		due := m.asked == asked && m.timer != nil
		if due {
			m.pending, m.timer = "", nil
		}
		m.mu.Unlock()
		if due {
			late()
		}
	})
}

// waits reports whether an answer to the own request is still awaited.
func (m *mcpLink) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.timer != nil
}

// disarm records that the own request has been answered, or that its answer is no longer needed.
func (m *mcpLink) disarm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = ""
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
}

// stop disarms the timer when the connection ends.
func (m *mcpLink) stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.disarm()
}

// callFrame returns the message that starts a call at the device.
func (m *mcpLink) callFrame(call routing.DeviceCall) []byte {
	id := m.newCallID(call.ID)
	m.mu.Lock()
	name, meta := call.Tool, m.meta
	if theirs := m.theirs[name]; theirs != "" {
		name = theirs
	}
	m.mu.Unlock()
	return m.wrap(mcpCallFrame(id, name, call.Args.Raw(), meta))
}

// cancelFrame records that a call needs no answer any more. It returns the cancellation for the device, nil if the
// device needs none.
func (m *mcpLink) cancelFrame(call, reason string) []byte {
	id := m.endCall(call)
	if id == nil {
		return nil
	}
	return m.wrap(mcpCancelFrame(id, reason))
}
