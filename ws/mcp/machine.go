// Package mcp is the MCP client of a connection whose device is an MCP server, as a state machine. It has no goroutine
// and no clock, and does no I/O. Package ws drives it: it passes in what happens on the connection, and carries out the
// effects.
//
//	a message ──▶ Decode ─┬─▶ Result, Failure, Progress, Lost: of a call, handled like frames of the device protocol
//	                      └─▶ Message ──▶ Handle ──▶ effects
//	a call or its end ──▶ Call, Cancel ──▶ a message to the device
//	connected, too late, tools stored ──▶ Begin, Late, Registered, Listed, Failed ──▶ effects
//
// The conversation that finds out what the device offers:
//
//	greeting ──hello──▶ initializing ──result──▶ listing ──last page──▶ ready ──list_changed──▶ ready, lists again
//	(voice devices)          │ error                ▲
//	                         └──────▶ discovering ──┘ result
//
// # Where to start
//
//   - The state and the effects: machine.go. The conversation: conversation.go. Lists of tools are there, too.
//   - Messages that come in: decode.go; results of tools: tool.go. Messages that go out: calls.go.
//   - Calls and their ids: calls.go.
package mcp

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/ws/internal/fields"
)

// AnswerWait is how long a device may take to answer initialize, or to send its whole list of tools.
const AnswerWait = 30 * time.Second

// Effect is something to do for a Machine. Effects are carried out in order. After one that fails, the others are
// dropped.
type Effect interface{ effect() }

// The effects.
type (
	// Send sends a message to the device.
	Send struct{ Message []byte }

	// StartTimer calls Late with Turn after AnswerWait. It replaces an earlier timer.
	StartTimer struct{ Turn int }

	// StopTimer stops the timer.
	StopTimer struct{}

	// Charge charges the device for work that its message causes.
	Charge struct{ Work Work }

	// NameDevice stores the name of the device's program, if the device has no name.
	NameDevice struct{ Name string }

	// Offer registers a page of tools, each as Machine.Tool converts it. UseNames comes before they are stored, then
	// Registered, or Failed if they could not be stored.
	Offer struct {
		Tools []json.RawMessage
		First bool // of the connection's first list
	}

	// Retain removes the tools whose names are not in Listed. Then comes Machine.Listed, or Failed if that failed.
	Retain struct {
		Listed map[string]string // names here → at the device; read-only
		First  bool
	}

	// Close ends the connection with ws.CloseMCP.
	Close struct{ Why error } // what the device did wrong; nil: it did not answer in time

	// Log writes to the log.
	Log struct {
		Level slog.Level
		Text  string
		Args  []any
	}
)

func (Send) effect()       {}
func (StartTimer) effect() {}
func (StopTimer) effect()  {}
func (Charge) effect()     {}
func (NameDevice) effect() {}
func (Offer) effect()      {}
func (Retain) effect()     {}
func (Close) effect()      {}
func (Log) effect()        {}

// Work is what a Charge is for.
type Work uint8

// Kinds of work.
const (
	Stray   Work = iota // a message that answers nothing
	Listing             // the tools may have to be listed again
)

// stage is the stage of the conversation with a device.
type stage uint8

const (
	greeting     stage = iota // waiting for a voice device's hello
	initializing              // initialize was sent
	discovering               // server/discover was sent, because the device rejected initialize
	listing                   // the first tools/list was sent
	ready
)

// Config is what a Machine knows of its connection.
type Config struct {
	Session      string // session id, for envelopes
	Voice        bool   // a voice device, which sends hello first and uses envelopes
	MaxToolBytes int    // what the definitions of a session may have together
	MaxTools     int    // how many definitions are read of one list
}

// Machine is the state of one connection. Raw MCP messages use a call's own id, so an answer finds its call on any
// connection. Voice devices use only numbers, so each connection numbers its calls itself.
//
// Handle and the methods that report outcomes belong to the connection's reader. All others are safe for concurrent
// use. No method waits: the mutex is held only to compute.
type Machine struct {
	cfg Config

	mu       sync.Mutex
	stage    stage
	envelope bool   // messages are in envelopes
	greeted  bool   // initialize was sent after a voice device's hello
	meta     string // members of _meta in each request; empty before version 2026-07-28

	pending string // id of the gateway's own request, as JSON; empty: none
	waiting bool   // the timer runs
	turn    int    // grows with each start of the timer

	list     *list  // the current list; nil: none
	cursor   string // of its next page; empty: none
	changed  bool   // the list has changed since it was requested
	settling bool   // tools are being stored
	overdue  bool   // the time was over while they were being stored
	listed   bool   // the tools of one whole list are stored

	numbers numbers           // ids of calls in envelopes
	theirs  map[string]string // tools with another name at the device: name here → name there; nil: none
}

// New returns the machine of a new connection.
func New(cfg Config) *Machine { return &Machine{cfg: cfg, envelope: cfg.Voice} }

// Begin starts the conversation with a device that has its session. A voice device starts it itself.
func (m *Machine) Begin() []Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cfg.Voice {
		return []Effect{m.arm()}
	}
	return m.initialize()
}

// Late reports that the timer of a turn has fired. A connection whose tools are known continues with them, and lists
// them again if they have changed since.
func (m *Machine) Late(turn int) []Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.waiting || turn != m.turn {
		return nil
	}
	m.pending, m.waiting = "", false
	todo := []Effect{Log{slog.LevelInfo, "a device did not answer the gateway's own request of MCP in time",
		[]any{"ready", m.listed}}}
	switch {
	case !m.listed:
		return append(todo, Close{})
	case m.settling:
		m.overdue = true
		return todo
	default:
		m.list = nil
		return append(todo, m.listChanged()...)
	}
}

// HasEnvelope reports whether messages are in envelopes, as those of voice devices are.
func (m *Machine) HasEnvelope() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.envelope
}

// Error returns an error message for a mistake in a message.
func (m *Machine) Error(bad *fields.Error) []byte {
	return m.wrap(m.HasEnvelope(), errorFrame(nil, codeOf(bad), bad.Message))
}

// arm starts the timer.
func (m *Machine) arm() Effect {
	m.turn++
	m.waiting = true
	return StartTimer{m.turn}
}

// disarm records that the gateway's own request has been answered, or that its answer is no longer needed.
func (m *Machine) disarm() Effect {
	m.pending, m.waiting = "", false
	return StopTimer{}
}

// newRequest returns the id of a new request of the gateway, as JSON. An answer to the previous request is then
// ignored.
func (m *Machine) newRequest() string {
	if m.envelope {
		m.pending = strconv.FormatInt(m.numbers.next(), 10)
	} else {
		m.pending = `"` + uuid.NewString() + `"`
	}
	return m.pending
}

// isPending reports whether an id belongs to the gateway's pending request.
func (m *Machine) isPending(id []byte) bool { return len(id) > 0 && string(id) == m.pending }

// send returns the effect of sending an MCP message.
func (m *Machine) send(message []byte) Effect { return Send{m.wrap(m.envelope, message)} }

// wrap puts an MCP message into an envelope.
func (m *Machine) wrap(envelope bool, message []byte) []byte {
	if !envelope {
		return message
	}
	b := make([]byte, 0, len(message)+len(m.cfg.Session)+64)
	b = append(b, `{"type":"`+TypeMCP+`","session_id":`...)
	b = strictjson.AppendString(b, m.cfg.Session)
	b = append(b, `,"payload":`...)
	b = append(b, message...)
	return append(b, '}')
}
