package ws

import (
	"bytes"
	"cmp"
	"sync/atomic"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/mcp"
	"github.com/farhand/farhand/ws/node"
)

// Counter names of frames that have no type in the protocol.
const (
	countedOther = "other" // a frame that could not be decoded
	countedPing  = "ping"
	countedPong  = "pong"
)

// ReceivedTypes returns the counter names of frames from devices.
func ReceivedTypes() []string {
	return []string{
		typeConnect, typeRegisterTools, typeUnregisterTools, typeGetRegisteredTools,
		typeToolCallAccepted, typeToolProgress, typeToolResult, typeToolError,
		typeMessage, typeAbort, typeRegenerate, typeApprovalResponse, typeUploadRequest, typeRegisterWake, typePresence,
		typeSetDefault, typeHello, typeMCP, typeRequest,
		countedPing, countedPong, countedOther,
	}
}

// SentTypes returns the counter names of frames to devices.
func SentTypes() []string {
	return []string{
		typeSessionStart, typeConnected, typeToolsRegistered, typeRegisteredTools,
		typeToolCallRequest, typeToolCallCancel, typeResultAcknowledged, typeServerDraining, typeAbortAck,
		typeApprovalRequest, typeApprovalDecided, typeUploadSlot, typeWakeRegistered, typeDefaultSet, typeHello,
		typeMCP, typeError, typeResponse, typeEvent,
		string(chat.EventChunk), string(chat.EventThinking), string(chat.EventToolCall), string(chat.EventToolResult),
		string(chat.EventChunkReset), string(chat.EventDone), string(chat.EventAborted), string(chat.EventTitle),
		string(chat.EventDebugPrompt), countedPing, countedOther,
	}
}

// CloseReasons returns the counter names of closed connections. The last one, gone, means that the device ended the
// connection.
func CloseReasons() []string {
	var reasons []string
	for c := closeNone + 1; c <= closeGone; c++ {
		reasons = append(reasons, c.counted())
	}
	return reasons
}

// counted returns the counter name of a connection that closed for this reason.
func (c Close) counted() string {
	if c == closeGone {
		return "gone"
	}
	return c.Reason()
}

// counters count events since the server was created. They are safe for concurrent use.
type counters struct {
	opened   atomic.Int64
	closed   [len(catalogue)]atomic.Int64
	refused  map[registry.Code]*atomic.Int64 // never changes
	received map[string]*atomic.Int64        // never changes
	sent     map[string]*atomic.Int64        // never changes
	bytesIn  atomic.Int64
	bytesOut atomic.Int64

	acknowledgedAlone, acknowledgedTogether atomic.Int64 // whether another frame was written with it

	results, requests, acknowledgements *atomic.Int64 // of the most frequent frames, to avoid lookups
}

func (c *counters) init() {
	c.received, c.sent, c.refused = countersOf(ReceivedTypes()), countersOf(SentTypes()), countersOf(registry.Codes())
	c.results, c.requests = c.received[typeToolResult], c.sent[typeToolCallRequest]
	c.acknowledgements = c.sent[typeResultAcknowledged]
}

func countersOf[K comparable](keys []K) map[K]*atomic.Int64 {
	m := make(map[K]*atomic.Int64, len(keys))
	for _, k := range keys {
		m[k] = new(atomic.Int64)
	}
	return m
}

// frameReceived counts a decoded frame. nil is a frame that could not be decoded.
func (c *counters) frameReceived(frame any) {
	if _, frequent := frame.(*toolResultFrame); frequent {
		c.results.Add(1)
		return
	}
	c.received[cmp.Or(frameType(frame), countedOther)].Add(1)
}

// frameType returns the type of a decoded frame, empty for nil.
func frameType(frame any) string {
	switch f := frame.(type) {
	case interface{ frameType() string }:
		return f.frameType()
	case *mcp.Message:
		return f.Type()
	case *mcp.Lost:
		return typeToolError
	case *node.Request, *node.Answer, *node.Step, *node.Progress:
		return typeRequest
	default:
		return ""
	}
}

// frameSent counts a frame that is written. nil is a ping. joined means that another frame is written with it.
func (c *counters) frameSent(frame []byte, joined bool) {
	switch {
	case bytes.HasPrefix(frame, requestPrefix):
		c.requests.Add(1)
	case bytes.HasPrefix(frame, acknowledgement):
		c.acknowledgements.Add(1)
		if joined {
			c.acknowledgedTogether.Add(1)
		} else {
			c.acknowledgedAlone.Add(1)
		}
	case frame == nil:
		c.sent[countedPing].Add(1)
	case bytes.HasPrefix(frame, rpcPrefix):
		c.sent[typeMCP].Add(1)
	default: // other frames begin with their type
		typ, _, _ := bytes.Cut(bytes.TrimPrefix(frame, typePrefix), []byte{'"'})
		cmp.Or(c.sent[string(typ)], c.sent[countedOther]).Add(1)
	}
}

// The beginnings of frames.
var (
	typePrefix      = []byte(`{"type":"`)
	rpcPrefix       = []byte(`{"jsonrpc":"2.0"`)
	requestPrefix   = []byte(`{"type":"` + typeToolCallRequest + `"`)
	acknowledgement = []byte(`{"type":"` + typeResultAcknowledged + `"`)
)

// Stats is the current state of a server, with totals since it was created.
type Stats struct {
	Open    int64 // connections
	Opening int64 // sessions that are being opened
	Queued  int64 // requests that wait to open a session

	OutboxFrames, OutboxBytes int64 // queued, for all devices together
	FullestOutbox             int64 // maximum of bytes queued for one device
	UnhandledBytes            int64 // received bytes of messages that are incomplete or not handled yet

	AcknowledgedAlone, AcknowledgedTogether int64 // acknowledgements, by whether another frame was written with them

	Opened            int64
	Closed            map[string]int64        // by reason
	Refused           map[registry.Code]int64 // before the upgrade
	Received, Sent    map[string]int64        // frames, by type
	BytesIn, BytesOut int64                   // on sockets after the upgrade, before TLS
}

// Stats reads the state of every connection. Call it every few seconds at most.
func (s *Server) Stats() Stats {
	n := &s.counters
	opens := s.opens.Stats()
	st := Stats{
		AcknowledgedAlone: n.acknowledgedAlone.Load(), AcknowledgedTogether: n.acknowledgedTogether.Load(),
		Opening: opens.Held, Queued: opens.Waiting, Opened: n.opened.Load(),
		Closed: make(map[string]int64), Refused: loaded(n.refused), Received: loaded(n.received), Sent: loaded(n.sent),
		BytesIn: n.bytesIn.Load(), BytesOut: n.bytesOut.Load(), UnhandledBytes: s.intake.held(),
	}
	for c := closeNone + 1; c <= closeGone; c++ {
		st.Closed[c.counted()] = n.closed[c].Load()
	}
	for _, c := range s.snapshot() {
		st.Open++
		frames, size := c.out.waiting()
		st.OutboxFrames, st.OutboxBytes = st.OutboxFrames+int64(frames), st.OutboxBytes+int64(size)
		st.FullestOutbox = max(st.FullestOutbox, int64(size))
	}
	return st
}

// Pools returns the usage of the server's pools, by name.
func (s *Server) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"sockets": s.sockets.Stats(), "opening": s.opens.Stats(), "decoding": s.decoding.Stats(),
		"decoding_large": s.huge.Stats(), "message_bytes": s.asks.Stats(),
		"registering": s.turns.Stats(), "unsent_bytes": s.unsent.Stats(),
		"attribute_bytes": s.attributes.Stats(), "node_handshakes": s.handshakes.places.Stats(),
	}
}

// Tenants returns how many connections each tenant has.
func (s *Server) Tenants() map[string]int64 { return s.sockets.ByTenant() }

func loaded[K comparable](counts map[K]*atomic.Int64) map[K]int64 {
	m := make(map[K]int64, len(counts))
	for k, n := range counts {
		m[k] = n.Load()
	}
	return m
}
