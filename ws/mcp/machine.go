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
// machine.go has the state and the effects, conversation.go the conversation, decode.go the messages that come in,
// tool.go tools and their results, and calls.go the messages that go out and the ids of calls.
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

// Effect is something to do for a Machine: one of the types below. Effects are carried out in order. After one that
// fails, the others are dropped.
type Effect any

// The effects.
type (
	// Send sends a message to the device.
	Send struct{ Message []byte }

	// StartTimer calls Late with Turn after AnswerWait. It replaces an earlier timer.
	StartTimer struct{ Turn int }

	// StopTimer stops the timer.
	StopTimer struct{}

	// Charge charges the device for a message: one that answers nothing, or one after which the tools may have to be
	// listed again.
	Charge struct{ Listing bool }

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

// stage is how far the conversation has come.
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
	todo     []Effect // of the current step
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

// step runs one step under the mutex, and returns its effects.
func (m *Machine) step(run func()) []Effect {
	m.mu.Lock()
	defer m.mu.Unlock()
	run()
	todo := m.todo
	m.todo = nil
	return todo
}

// do adds an effect to the current step.
func (m *Machine) do(e Effect) { m.todo = append(m.todo, e) }

// Begin starts the conversation with a device that has its session. A voice device starts it itself.
func (m *Machine) Begin() []Effect {
	if m.cfg.Voice {
		return m.step(m.arm)
	}
	return m.step(m.initialize)
}

// Late reports that the timer of a turn has fired. A connection whose tools are known continues with them, and lists
// them again if they have changed since.
func (m *Machine) Late(turn int) []Effect {
	return m.step(func() {
		if !m.waiting || turn != m.turn {
			return
		}
		m.pending, m.waiting = "", false
		m.do(Log{slog.LevelInfo, "a device did not answer the gateway's MCP request in time",
			[]any{"ready", m.listed}})
		switch {
		case !m.listed:
			m.do(Close{})
		case m.settling:
			m.overdue = true
		default:
			m.list = nil
			m.listChanged()
		}
	})
}

// HasEnvelope reports whether messages are in envelopes, as those of voice devices are.
func (m *Machine) HasEnvelope() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.envelope
}

// Error returns an error message for a mistake in a message.
func (m *Machine) Error(bad *fields.Error) []byte {
	code := codeInvalidRequest
	if bad.Code == fields.CodeInvalidJSON {
		code = codeParseError
	}
	return m.wrap(m.HasEnvelope(), errorFrame("null", code, bad.Message))
}

func (m *Machine) arm() {
	m.turn++
	m.waiting = true
	m.do(StartTimer{m.turn})
}

// disarm records that the gateway's own request has been answered, or that its answer is no longer needed.
func (m *Machine) disarm() {
	m.pending, m.waiting = "", false
	m.do(StopTimer{})
}

// request sends a request of the gateway, whose params are the given members. An answer to the previous request is then
// ignored.
func (m *Machine) request(method, params string) {
	if m.envelope {
		m.pending = strconv.FormatInt(m.numbers.next(), 10)
	} else {
		m.pending = `"` + uuid.NewString() + `"`
	}
	m.send(`{"jsonrpc":"2.0","id":` + m.pending + `,"method":"` + method + `","params":{` + params + `}}`)
}

// isPending reports whether an id belongs to the gateway's pending request.
func (m *Machine) isPending(id []byte) bool { return len(id) > 0 && string(id) == m.pending }

func (m *Machine) send(message string) { m.do(Send{m.wrap(m.envelope, []byte(message))}) }

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
