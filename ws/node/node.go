// Package node is the gateway's side of OpenClaw's gateway protocol, versions 4 and 3, for the role node. It has no
// goroutine and no clock, and does no I/O. Package ws drives it: it passes in what happens on the connection, and
// carries out the effects.
//
//	without an identity: Challenge ──▶ the frame connect ──▶ Handshake ──▶ Hello, or Refusal
//	the node may connect ──▶ New ──▶ Welcome ──▶ hello-ok
//	a frame ──▶ Decode ─┬─▶ Answer, Progress: of a call
//	                    └─▶ Request ──▶ Handle ──▶ effects
//	a call or its end ──▶ Call, Next, Cancel ──▶ a frame to the node
//
// connect.go reads the frame connect, handshake.go decides about it, Machine is the state of a connection, calls.go
// its calls, decode.go the frames that come in, and methods.go what else a node asks.
//
// The protocol is read from the JSON Schema that @openclaw/gateway-protocol publishes, and from what the programs of
// the npm package openclaw send.
package node

import (
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/ws/internal/fields"
	"github.com/farhand/farhand/ws/node/commands"
)

// Versions of the protocol. An older one is that of nodes that were not updated; operators need the newest.
const (
	ProtocolNewest = 4
	ProtocolOldest = 3
)

// MaxConnect is the largest frame connect, in bytes. It is OpenClaw's limit before authentication.
const MaxConnect = 64 << 10

// Type is under which the frames of nodes are counted, because all of them are requests.
const Type = "req"

// Methods that nodes call, and the events that they get. hello-ok lists them.
const (
	methodConnect        = "connect"
	methodResult         = "node.invoke.result"
	methodProgress       = "node.invoke.progress"
	methodEvent          = "node.event"
	methodPluginTools    = "node.pluginTools.update"
	methodSkills         = "node.skills.update"
	methodPendingPull    = "node.pending.pull"
	methodPendingAck     = "node.pending.ack"
	methodPendingDrain   = "node.pending.drain"
	methodRunners        = "node.runnerInventory.update"
	methodSkillBins      = "skills.bins"
	eventChallenge       = "connect.challenge"
	eventTick            = "tick"
	eventShutdown        = "shutdown"
	eventInvoke          = "node.invoke.request"
	eventCancel          = "node.invoke.cancel"
	codeInvalidRequest   = "INVALID_REQUEST"
	codeUnavailable      = "UNAVAILABLE"
	codeNotPaired        = "NOT_PAIRED"
	documentation        = "docs/openclaw.md"
	maxEcho              = 256 // bytes of a request's id that are repeated
	roleNode             = "node"
	identifierOfNoFrame  = "invalid" // what OpenClaw's gateway uses for the answer to a frame without an id
	closePolicyViolation = 1008
	closeProtocolError   = 1002
	closeTooBig          = 1009
	closeRestart         = 1012
)

// Effect is something to do for a Machine: one of the types below. Effects are carried out in order. After one that
// fails, the others are dropped.
type Effect any

// The effects.
type (
	// Send sends a frame to the node.
	Send struct{ Frame []byte }

	// Charge charges the node for a frame that nothing needed.
	Charge struct{}

	// Offer replaces the node's tools with those of Machine.Catalog. Then Answer returns the frame for the node, by
	// which of the tools are offered.
	Offer struct {
		Answer func(offers func(tool string) bool) []byte
	}

	// Seen records that the node was used.
	Seen struct{}

	// Log writes to the log.
	Log struct {
		Level slog.Level
		Text  string
		Args  []any
	}
)

// Config is what a Machine knows of its connection.
type Config struct {
	NodeID   string
	Protocol int

	// Catalog returns the tools of the node with the plug-in tools that it published. It must be pure.
	Catalog func(plugins []json.RawMessage) *commands.Catalog
}

// Machine is the state of one connection. An id that the node answers is known only on the connection over which the
// call was sent, so a node cannot answer calls of an earlier connection, or those of other nodes.
//
// Decode, Handle and Error belong to the connection's reader. All other methods are safe for concurrent use. No method
// waits: the mutex is held only to compute.
type Machine struct {
	cfg     Config
	request string // id of the request that was decoded last; only the reader uses it

	mu       sync.Mutex
	catalog  *commands.Catalog
	calls    []*call // those that run, and those whose answers are not acknowledged yet; few at a time
	buffered int     // bytes of progress that came early
}

// New returns the machine of a new connection.
func New(cfg Config) *Machine {
	return &Machine{cfg: cfg, catalog: cfg.Catalog(nil), request: identifierOfNoFrame}
}

// Catalog returns the tools that the node offers now.
func (m *Machine) Catalog() *commands.Catalog {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.catalog
}

// Error returns the answer to the frame that was decoded last, for a mistake in it.
func (m *Machine) Error(bad *fields.Error) []byte {
	return failed(m.request, failure{Code: codeInvalidRequest, Message: bad.Message})
}

// Tick returns the event that shows the node that its connection lives. Its client closes a connection on which nothing
// came for twice the interval that hello-ok says.
func Tick(now time.Time) []byte {
	return event(eventTick, struct {
		TS int64 `json:"ts"`
	}{now.UnixMilli()})
}

// Shutdown returns the event before the pod closes the connection. The client should be back after the given time.
func Shutdown(back time.Duration) []byte {
	return event(eventShutdown, struct {
		Reason            string `json:"reason"`
		RestartExpectedMS int64  `json:"restartExpectedMs"`
	}{"service restart", back.Milliseconds()})
}
