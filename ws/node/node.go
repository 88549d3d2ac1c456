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
// connect.go reads the frame connect, handshake.go decides about it, machine.go has the state of a connection, calls.go
// its calls, decode.go the frames that come in, and methods.go what else a node asks.
//
// The protocol is read from the JSON Schema that @openclaw/gateway-protocol publishes, and from what the programs of
// the npm package openclaw send.
package node

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
