package ws

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Counter names of frames that have no type in the protocol.
const (
	countedOther = "other" // a frame that is not understood
	countedPing  = "ping"
	countedPong  = "pong"
)

// receivedTypes and sentTypes are the names by which frames are counted. Both are read only.
var (
	receivedTypes = []string{
		typeConnect, typeRegisterTools, typeUnregisterTools, typeGetRegisteredTools,
		typeToolCallAccepted, typeToolProgress, typeToolResult, typeToolError,
		typeMessage, typeAbort, typeRegenerate, typeApprovalResponse, typeUploadRequest, typeHello, typeMCP,
		countedPing, countedPong, countedOther,
	}
	sentTypes = []string{
		typeSessionStart, typeConnected, typeToolsRegistered, typeRegisteredTools,
		typeToolCallRequest, typeToolCallCancel, typeResultAcknowledged, typeServerDraining, typeAbortAck,
		typeApprovalRequest, typeApprovalDecided, typeUploadSlot, typeHello, typeMCP, typeError,
		string(chat.EventChunk), string(chat.EventThinking), string(chat.EventToolCall), string(chat.EventToolResult),
		string(chat.EventChunkReset), string(chat.EventDone), string(chat.EventAborted), string(chat.EventTitle),
		string(chat.EventDebugPrompt), countedPing, countedOther,
	}
)

// ReceivedTypes returns the names by which frames of devices are counted.
func ReceivedTypes() []string { return slices.Clone(receivedTypes) }

// SentTypes returns the names by which frames to devices are counted.
func SentTypes() []string { return slices.Clone(sentTypes) }

// CloseReasons returns the reasons by which closed connections are counted. The last one, gone, means that the device
// ended the connection.
func CloseReasons() []string {
	reasons := make([]string, 0, len(catalogue))
	for c := range catalogue {
		if Close(c) != closeNone {
			reasons = append(reasons, Close(c).counted())
		}
	}
	return reasons
}

// counted returns the name by which a connection that ended this way is counted.
func (c Close) counted() string {
	if c == closeGone {
		return "gone"
	}
	return c.Reason()
}

// counters count what happened since a server was made. They are safe for concurrent use.
type counters struct {
	opened   atomic.Int64
	closed   [len(catalogue)]atomic.Int64
	refused  map[registry.Code]*atomic.Int64 // never changes
	received map[string]*atomic.Int64        // never changes
	sent     map[string]*atomic.Int64        // never changes
	bytesIn  atomic.Int64
	bytesOut atomic.Int64

	acknowledgedAlone, acknowledgedTogether atomic.Int64 // whether another frame was written with it

	results, requests, acknowledgements *atomic.Int64 // of the most frequent frames, so that they are not looked up
}

func (c *counters) init() {
	c.received, c.sent, c.refused = countersOf(receivedTypes), countersOf(sentTypes), countersOf(registry.Codes())
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

// frameReceived counts a decoded frame; nil is one that was not understood.
func (c *counters) frameReceived(frame any) {
	typ := frameType(frame)
	switch typ {
	case typeToolResult:
		c.results.Add(1)
		return
	case "":
		typ = countedOther
	}
	c.received[typ].Add(1)
}

// frameType returns the type of a decoded frame, empty for one that was not understood.
func frameType(frame any) string {
	switch frame.(type) {
	case *toolResultFrame:
		return typeToolResult
	case *connectFrame:
		return typeConnect
	case *registerToolsFrame:
		return typeRegisterTools
	case *unregisterToolsFrame:
		return typeUnregisterTools
	case *getRegisteredToolsFrame:
		return typeGetRegisteredTools
	case *toolCallAcceptedFrame:
		return typeToolCallAccepted
	case *toolProgressFrame:
		return typeToolProgress
	case *toolErrorFrame, *mcpLost:
		return typeToolError
	case *messageFrame:
		return typeMessage
	case *abortFrame:
		return typeAbort
	case *approvalResponseFrame:
		return typeApprovalResponse
	case *regenerateFrame:
		return typeRegenerate
	case *uploadRequestFrame:
		return typeUploadRequest
	case *mcpHello:
		return typeHello
	case *mcpFrame:
		return typeMCP
	default:
		return ""
	}
}

// Frames of the gateway begin with their type.
var (
	typePrefix      = []byte(`{"type":"`)
	rpcPrefix       = []byte(`{"jsonrpc":"2.0"`)
	requestPrefix   = []byte(`{"type":"` + typeToolCallRequest + `"`)
	acknowledgement = []byte(`{"type":"` + typeResultAcknowledged + `"`)
)

// frameSent counts a frame that is written; nil is a ping. joined says that another is written with it.
func (c *counters) frameSent(frame []byte, joined bool) {
	switch {
	case bytes.HasPrefix(frame, requestPrefix):
		c.requests.Add(1)
		return
	case bytes.HasPrefix(frame, acknowledgement):
		c.acknowledgements.Add(1)
		if joined {
			c.acknowledgedTogether.Add(1)
		} else {
			c.acknowledgedAlone.Add(1)
		}
		return
	case frame == nil:
		c.sent[countedPing].Add(1)
		return
	case bytes.HasPrefix(frame, rpcPrefix):
		c.sent[typeMCP].Add(1)
		return
	}
	if rest, ok := bytes.CutPrefix(frame, typePrefix); ok {
		typ, _, _ := bytes.Cut(rest, []byte{'"'})
		if n := c.sent[string(typ)]; n != nil {
			n.Add(1)
			return
		}
	}
	c.sent[countedOther].Add(1)
}

// connectionRefused counts a request that did not become a connection.
func (c *counters) connectionRefused(code registry.Code) {
	n := c.refused[code]
	if n == nil {
		n = c.refused[registry.CodeInternal]
	}
	n.Add(1)
}

// Stats is what a server holds now, and what happened since it was made.
type Stats struct {
	Open    int64 // connections
	Opening int64 // sessions that are being opened
	Queued  int64 // requests that wait to open a session

	OutboxFrames, OutboxBytes int64 // wait to be written, to all devices together
	FullestOutbox             int64 // bytes that wait for one device, at most
	UnhandledBytes            int64 // received, of messages that are not complete or not handled yet

	AcknowledgedAlone, AcknowledgedTogether int64 // acknowledgements, by whether another frame was written with them

	Opened            int64
	Closed            map[string]int64        // by reason
	Refused           map[registry.Code]int64 // before the upgrade
	Received, Sent    map[string]int64        // frames, by type
	BytesIn, BytesOut int64                   // on sockets after the upgrade, before TLS
}

// Stats looks at every connection. It is meant to be called every few seconds.
func (s *Server) Stats() Stats {
	n := &s.counters
	opens := s.opens.Stats()
	st := Stats{
		AcknowledgedAlone: n.acknowledgedAlone.Load(), AcknowledgedTogether: n.acknowledgedTogether.Load(),
		Opening: opens.Held, Queued: opens.Waiting, Opened: n.opened.Load(),
		Closed: make(map[string]int64), Refused: loaded(n.refused), Received: loaded(n.received), Sent: loaded(n.sent),
		BytesIn: n.bytesIn.Load(), BytesOut: n.bytesOut.Load(), UnhandledBytes: s.intake.held(),
	}
	for c := range catalogue {
		if Close(c) != closeNone {
			st.Closed[Close(c).counted()] = n.closed[c].Load()
		}
	}
	for _, c := range s.snapshot() {
		st.Open++
		frames, size := c.out.waiting()
		st.OutboxFrames, st.OutboxBytes = st.OutboxFrames+int64(frames), st.OutboxBytes+int64(size)
		st.FullestOutbox = max(st.FullestOutbox, int64(size))
	}
	return st
}

// Pools returns how full the pools of the server are, by name.
func (s *Server) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"sockets": s.sockets.Stats(), "opening": s.opens.Stats(), "decoding": s.decoding.Stats(),
		"decoding_large": s.huge.Stats(), "message_bytes": s.asks.Stats(),
		"registering": s.turns.Stats(), "unsent_bytes": s.unsent.Stats(),
	}
}

func loaded[K comparable](counts map[K]*atomic.Int64) map[K]int64 {
	m := make(map[K]int64, len(counts))
	for k, n := range counts {
		m[k] = n.Load()
	}
	return m
}
