package ws

import (
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry/routing"
)

// mcpAnswerWait is how long a device that speaks MCP may take to answer initialize, or for its whole list of tools.
const mcpAnswerWait = 30 * time.Second

// mcpStage is how far the conversation with a device that speaks MCP is.
type mcpStage uint8

const (
	mcpGreeting     mcpStage = iota // a voice device says hello first
	mcpInitializing                 // initialize was sent
	mcpDiscovering                  // server/discover was sent, because initialize was refused
	mcpListingTools                 // the first tools/list was sent
	mcpReady
)

// mcpLink is what a connection knows that speaks MCP: the gateway is the client of MCP, the device is the server. Raw
// messages of a call carry the call's own id, so an answer finds its call whichever connection it comes over. Voice
// devices know only numbers, so their calls are numbered, anew for each connection.
type mcpLink struct {
	device string // that the request named; never changes
	voice  bool   // the device says hello first; never changes

	session string // the id, for envelopes; of the reader, whose predecessor is the goroutine that opens the connection

	// talk is held while the gateway's own requests go on: by the reader, and by what is late. It is taken before
	// conn.registering.
	talk    sync.Mutex
	stage   mcpStage
	greeted bool        // a voice device has said hello
	listing *mcpListing // the last one; nil: none was begun
	changed bool        // the list has changed since it was asked for

	mu       sync.Mutex
	opened   bool              // the first frame was sent
	ready    bool              // the tools have been listed
	envelope bool              // messages are in envelopes
	meta     string            // members of _meta in each request; empty before version 2026-07-28
	pending  string            // the id of the gateway's own request, as of idText; empty: none
	asked    int               // grows with each request that has a timer
	timer    *time.Timer       // of the own request; nil: none is under way
	stopped  bool              // the connection has ended, and nothing more is late
	numbers  callNumbers       // in envelopes
	theirs   map[string]string // tools whose names here are others than at the device → the latter; nil: none
}

// wrap puts a message of MCP into an envelope, if the device uses those.
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

// newRequest returns the id of a request of the gateway itself, as JSON. The answer to the one before counts no more.
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

// newCallID returns the id that a call has in messages to the device, as JSON.
func (m *mcpLink) newCallID(call string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.envelope {
		return strictjson.AppendString(nil, call)
	}
	return strconv.AppendInt(nil, m.numbers.add(call), 10)
}

// endCall notes that nobody waits for a call any more. It returns the call's id as newCallID, nil if the device was not
// sent the call over this connection.
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

// callOf returns the call that an id of a message belongs to, empty if it is none's.
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

// forget notes that a call has been answered.
func (m *mcpLink) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		m.numbers.remove(n)
	}
}

// notSent notes that the device was not sent a call.
func (m *mcpLink) notSent(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers.remove(m.numbers.of[call])
}

// isPending reports whether an id is that of the gateway's own request.
func (m *mcpLink) isPending(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return id != "" && id == m.pending
}

// arm has late called if the own request is not answered in time. disarm stops that, and stop does so for good.
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

// waits reports whether an answer to the own request may still come.
func (m *mcpLink) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.timer != nil
}

// disarm notes that the own request has been answered, or that nobody waits for the answer any longer.
func (m *mcpLink) disarm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending = ""
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
}

// stop is disarm at the end of the connection.
func (m *mcpLink) stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.disarm()
}

// callFrame returns the message that has the device run a call.
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

// cancelFrame notes that nobody waits for a call any more, and returns the message that says so to the device, nil if
// it needs none.
func (m *mcpLink) cancelFrame(call, reason string) []byte {
	id := m.endCall(call)
	if id == nil {
		return nil
	}
	return m.wrap(mcpCancelFrame(id, reason))
}
