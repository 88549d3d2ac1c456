// Package ws is the endpoint for devices. It upgrades GET /ws/chat and speaks the device protocol (docs/protocol.md)
// over one WebSocket per session. At GET /ws/mcp it speaks MCP, and at GET /ws/node OpenClaw's gateway protocol. Each
// connection is a routing.Conn for the hub of package routing. Package ws uses melody and gorilla/websocket, which its
// API does not expose.
//
// # Where to start
//
//   - Server and its life: server.go, config.go; stopping: teardown.go.
//   - A request becomes a connection: open.go, hijack.go, and gets its session: open.go, conn.go, identify.go.
//   - A frame comes in: dispatch.go counts it (devicebudget.go, intake.go), decode.go decodes it,
//     dispatch.go calls its handler: conn.go, register.go, calls.go, chat.go.
//   - A frame goes out: outbox.go, writer.go; pings: ping.go.
//   - A device that speaks MCP (/ws/mcp): package mcp is its conversation, as a state machine. mcplink.go drives it,
//     and turns its messages into frames of the device protocol.
//   - An OpenClaw node (/ws/node): nodehandshake.go reads who it is, with bounds of its own (nodesockets.go). Then
//     package node is its protocol, as a state machine, and nodelink.go drives it.
//   - A conversation: chat.go, turnworker.go.
//   - A connection ends: teardown.go, hijack.go; the close codes: closecodes.go.
//
// # To add a frame
//
// A frame that devices send has its type, struct and frameType in frames.go, a case in frameFields.frame (decode.go), a
// case in conn.dispatch (dispatch.go), its name in ReceivedTypes (stats.go), and the roles that may send it in
// frameRoles (identify.go).
//
// A frame to devices has its type and function in frames.go, chat.go or calls.go, and its name in SentTypes (stats.go).
// It must begin with {"type":" because stats.go counts it by that. The gateway sends a new frame only to devices that
// declared a capability for it, see registry/session.go.
//
// Then update docs/protocol.md, and run "make docs" for the table of metrics. Package ws/client is the device's side.
//
// # How one connection lives
//
// ServeHTTP checks origin, token and attributes, and rejects with an HTTP error before the upgrade. After the upgrade
// the connection claims the session. The first frame is session_start, and calls are delivered only after it. The
// connection's own goroutine reads one frame after another, and waits until each is handled. A message starts a turn of
// the agent in a separate goroutine, because the reader reads the answers to the turn's tool calls. All output but the
// first and the close frame goes through an outbox bounded in bytes, so no sender ever waits for a device. However a
// connection ends (by the peer, an error, the registry, a panic in a handler), one teardown releases the session
// exactly once.
package ws

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Server upgrades devices' requests and holds their connections. It is an http.Handler for GET /ws/chat and safe for
// concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	melody  *melody.Melody // the library's part of all connections but those of nodes
	nodes   *melody.Melody // of nodes, whose frames may be longer
	started time.Time      // zero of the connections' clocks

	writers     writerPool
	stacks      stackPool
	corkBuffers sync.Pool // of *bytes.Buffer that no connection uses

	catalogs   nodeCatalogs
	handshakes *handshakes                 // nodes that have not said yet who they are
	sockets    *share.Pool                 // connections
	opens      *share.Pool                 // sessions that are being opened
	attributes *share.Pool                 // bytes of sessions' attributes, except attributesFree of each
	openRates  *auth.Buckets[netip.Prefix] // sessions, by source
	openShares openShares
	lines      *auth.Lines[lineKind]
	budgets    *deviceBudgets
	limits     json.RawMessage // what Limits returns
	huge       *share.Pool     // slots for decoding huge frames
	intake     intake
	counters   counters
	decoding   *share.Pool // slots for decoding long frames
	turns      *share.Pool // turns to check tool definitions and to list tools
	unsent     *share.Pool // bytes of frames queued in outboxes, except unsentLeft of each
	holders    unsentHolders
	asks       *share.Pool // bytes of messages whose turns run or wait

	identity atomic.Pointer[auth.Identity] // of the connection that was admitted last

	pairings atomic.Int64 // grows when devices were paired

	mu       sync.Mutex
	conns    list.List                  // all *conn, in the order of their next pings
	pinger   *time.Timer                // nil until the first connection
	tasks    int                        // requests, connections and their closing goroutines
	draining bool                       // no more upgrades
	idle     chan struct{}              // closed when draining is set and there are no tasks
	changed  map[string]map[string]bool // changed credentials by tenant, while a goroutine handles those of the tenant
	paired   map[pairedID]int           // connections of each paired device
}

// NewServer returns a server that accepts devices immediately. Call Close to stop it.
func NewServer(cfg Config) (*Server, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, started: time.Now(),
		idle: make(chan struct{}), changed: make(map[string]map[string]bool), paired: make(map[pairedID]int),
	}
	s.counters.init()
	s.asks = share.New(share.Bounds{Pod: cfg.MaxUnfinished})
	s.unsent = share.New(share.Bounds{Pod: cfg.MaxUnsent})
	turns := share.Turns(runtime.GOMAXPROCS(0))
	turns.Waiting = 4 * int64(cfg.MaxSockets) // each connection may wait for one; one tenant gets half
	s.turns = share.New(turns)
	s.decoding = share.New(share.Turns(max(1, runtime.GOMAXPROCS(0)/2)))
	s.huge = share.New(share.Turns(max(1, runtime.GOMAXPROCS(0)/2)))
	s.writers.server = s
	s.sockets, s.attributes = newSockets(cfg.MaxSockets), newAttributes(cfg.MaxSockets)
	s.opens = share.New(share.Bounds{Pod: maxOpening, Identity: maxOpening / 2, Waiting: maxOpensWaiting})
	s.openRates = auth.NewBuckets[netip.Prefix](auth.Limit{Rate: cfg.MaxOpensPerSecond, Burst: cfg.OpensBurst})
	s.openShares, s.lines = newOpenShares(&cfg), auth.NewLines[lineKind]()
	s.budgets = newDeviceBudgets(newLimits(&cfg))
	s.limits = encode(s.Limits())
	s.intake.limit, s.intake.timeout = cfg.MaxUnfinished, cfg.MessageTimeout
	// A message somewhat over the limit is still read, so that the answer can name the limit.
	s.melody = s.newLibrary(max(2*cfg.MaxFrame, cfg.maxAnswer()))
	s.nodes = s.newLibrary(cfg.MaxNodeFrame)
	s.handshakes = newHandshakes(s)
	s.catalogs.rules.MaxPlugins = pluginTimes * cfg.Admission.Limits().MaxToolBytes
	return s, nil
}

// newLibrary returns the library's part of connections whose messages have at most the given bytes.
func (s *Server) newLibrary(message int64) *melody.Melody {
	m, cfg := melody.New(), &s.cfg
	m.Upgrader = &websocket.Upgrader{
		ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, WriteBufferPool: &sync.Pool{},
		HandshakeTimeout: handshakeTimeout,
		CheckOrigin:      func(*http.Request) bool { return true }, // admit has checked it
		Error:            s.refuseHandshake,
		// EnableCompression stays off: a small frame could unpack to a thousand times the frame limit.
	}
	m.Config = &melody.Config{
		WriteWait: cfg.WriteTimeout, PongWait: cfg.PongTimeout, PingPeriod: cfg.PingInterval, MaxMessageSize: message,
		MessageBufferSize: 1, // for the first frame, the only one that melody writes
	}
	m.HandleConnect(s.onConnect)
	m.HandleDisconnect(s.onDisconnect)
	m.HandleMessage(s.onText)
	m.HandleMessageBinary(s.onBinary)
	m.HandleSentMessage(s.onSent)
	m.HandlePong(s.onPong)
	m.HandleError(s.onError)
	return m
}

// libraryOf returns the library's part of a connection.
func (s *Server) libraryOf(begin opening) *melody.Melody {
	if begin.node != nil {
		return s.nodes
	}
	return s.melody
}

func (s *Server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Drain rejects further upgrades. Connected devices are not affected.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.handshakes.drain()
	s.signalIdleLocked()
}

func (s *Server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, s.conns.Len())
	for e := s.conns.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*conn))
	}
	return all
}

// tryAddTask counts a request that may become a connection. It reports false once the server drains.
func (s *Server) tryAddTask() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	s.tasks++
	return true
}

// addTask counts a goroutine started by a counted task.
func (s *Server) addTask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks++
}

// goTask runs f in a goroutine that Close waits for. It returns false, and does nothing, once the server drains.
func (s *Server) goTask(f func()) bool {
	if !s.tryAddTask() {
		return false
	}
	go func() {
		defer s.taskDone()
		f()
	}()
	return true
}

// taskDone ends a task counted by tryAddTask or addTask.
func (s *Server) taskDone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks--
	s.signalIdleLocked()
}

func (s *Server) signalIdleLocked() {
	if s.draining && s.tasks == 0 {
		select {
		case <-s.idle:
		default:
			close(s.idle)
		}
	}
}

// track adds a connection to those that are pinged and that Close ends. It returns true if the server already drains.
// Then Close does not know the connection, and the caller must end it.
func (s *Server) track(c *conn) (draining bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.pingAt, c.tracked = s.now()+s.cfg.PingInterval, s.conns.PushBack(c)
	if c.isPaired() {
		s.paired[pairedID{c.who.Tenant, c.who.Credential}]++
	}
	if s.conns.Len() == 1 {
		s.armLocked()
	}
	return s.draining
}

func (s *Server) untrack(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.tracked == nil {
		return
	}
	s.conns.Remove(c.tracked)
	if s.conns.Len() == 0 {
		s.pinger.Stop()
	}
	if !c.isPaired() {
		return
	}
	id := pairedID{c.who.Tenant, c.who.Credential}
	if s.paired[id]--; s.paired[id] == 0 {
		delete(s.paired, id)
	}
}

// Bounds of concurrent session openings, which keep calls running when many devices connect. A device beyond them is
// rejected before the upgrade, with Retry-After.
const (
	maxOpening      = 64              // sessions being opened; one tenant gets half
	maxOpensWaiting = 16384           // requests that wait for that; one tenant gets half
	openingWait     = 8 * time.Second // maximum wait of each request
	retrySpread     = 4 * time.Second // Retry-After is random within this
)

// newSockets returns the pool of connections. Most pods serve one tenant, whose devices often share one token, and a
// connection lasts for hours. So a tenant that is alone may hold three quarters of the pool, and an identity half.
func newSockets(most int) *share.Pool {
	pod := int64(most)
	return share.New(share.Bounds{Pod: pod, Identity: max(pod/2, 1), Times: 3})
}

// owner returns the owner of what a connection with this identity takes of a pool. Holders of the one token may be all
// devices of a fleet, so their limit is their tenant's, and not that of an identity.
func owner(who *auth.Identity, pool int64) share.Owner {
	owner := who.Owner()
	if who.Scope() == "" {
		owner.Most = pool
	}
	return owner
}

func (s *Server) waitToOpen(ctx context.Context, by share.Owner) (*share.Grant, error) {
	inTime, cancel := context.WithTimeout(ctx, openingWait)
	defer cancel()
	turn, err := s.opens.Acquire(inTime, by, 1)
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, comeBack(registry.CodeBusy, "This pod is opening too many sessions. Reconnect in a moment.")
	case err != nil:
		return nil, registry.Errorf(registry.CodeCancelled, "The device disconnected before it was served.")
	}
	return turn, nil
}

func tooManySockets(err error) error {
	full, ok := errors.AsType[*share.FullError](err)
	message := "This pod has reached its limit of connections. Reconnect in a moment."
	switch {
	case ok && full.Bound == share.Identity:
		message = "This identity has reached its limit of connections to this pod. Close some, or connect to another " +
			"pod."
	case ok && full.Bound == share.Tenant:
		message = "This tenant has used its share of this pod's connections. Close some, or reconnect in a moment."
	}
	return comeBack(registry.CodeBusy, message)
}

// comeBack returns the error for a device that may retry soon. The delay is random, so that devices rejected together
// do not return together.
func comeBack(code registry.Code, message string) *registry.Error {
	return &registry.Error{Code: code, Message: message, RetryAfter: rand.N(retrySpread)}
}

// openShares are the sessions that a tenant, and each identity of it, may open whatever others open from its address:
// behind a NAT or a load balancer all devices have one.
type openShares struct {
	tenants    *auth.Buckets[string]
	identities *auth.Buckets[share.Owner]
}

// The shares, as parts of what one source may open.
const (
	tenantOpens   = 1. / 4
	identityOpens = 1. / 16
)

func newOpenShares(cfg *Config) openShares {
	part := func(of float64) auth.Limit {
		return auth.Limit{Rate: of * cfg.MaxOpensPerSecond, Burst: of * cfg.OpensBurst}
	}
	return openShares{
		auth.NewBuckets[string](part(tenantOpens)), auth.NewBuckets[share.Owner](part(identityOpens)),
	}
}

// take takes one session of the shares of an owner, if both have one.
func (o *openShares) take(by share.Owner) bool {
	if !o.identities.Take(by, 1) {
		return false
	}
	if !o.tenants.Take(by.Tenant, 1) {
		o.identities.Refund(by, 1)
		return false
	}
	return true
}

// checkOpenRate rejects a device that has just sent too many frames. It also rejects one whose tenant and identity have
// used up their shares of new sessions, and whose source opens too many.
func (s *Server) checkOpenRate(
	r *http.Request, key registry.Key, who *auth.Identity, source netip.Prefix,
) error {
	message := "This address opens too many sessions. Reconnect in a moment."
	if full := s.budgets.spent(key, source, who); full != noSpender {
		message = fmt.Sprintf("Too many frames came from %s a moment ago. Reconnect in a moment.", full)
	} else if s.openShares.take(who.Owner()) || s.openRates.Take(source, 1) {
		return nil
	}
	e := comeBack(registry.CodeRateLimited, message)
	s.cfg.Refusals.Note(r, auth.RefusedRate, e)
	return e
}
