package ws

import (
	"encoding/json"
	"log/slog"
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
)

// Server upgrades devices' requests and holds their connections. It is an http.Handler for GET /ws/chat and safe for
// concurrent use.
type Server struct {
	cfg     Config
	log     *slog.Logger
	melody  *melody.Melody
	started time.Time // the zero of the connections' clocks

	writers     writerPool
	stacks      stackPool
	corkBuffers corkBuffers

	sockets   *share.Pool                 // connections
	opens     *share.Pool                 // sessions that are being opened
	openRates *auth.Buckets[netip.Prefix] // sessions, by source
	budgets   *deviceBudgets
	limits    json.RawMessage // what Limits returns
	huge      *share.Pool     // slots for decoding huge frames
	intake    intake
	counters  counters
	decoding  *share.Pool // slots for decoding long frames
	turns     *share.Pool // turns to check definitions of tools, and to list them
	unsent    *share.Pool // bytes of frames that wait in outboxes, but for a few of each
	asks      *share.Pool // bytes of messages whose turns run or wait

	identity atomic.Pointer[auth.Identity] // of the connection that was admitted last

	paired   pairedConns
	pairings atomic.Int64 // grows when devices were paired

	mu       sync.Mutex
	conns    pingQueue
	pinger   *time.Timer   // nil until the first connection
	tasks    int           // requests, connections and their closing goroutines
	draining bool          // no more upgrades
	idle     chan struct{} // closed when draining is set and there are no tasks
}

// NewServer returns a server that accepts devices at once. Close it to stop.
func NewServer(cfg Config) (*Server, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Log, started: time.Now(), idle: make(chan struct{})}
	s.counters.init()
	s.asks = share.New(share.Bounds{Pod: cfg.MaxUnfinished})
	s.unsent = share.New(share.Bounds{Pod: cfg.MaxUnsent})
	s.turns = newRegisteringTurns(cfg.MaxSockets)
	s.decoding = share.New(share.Turns(max(1, runtime.GOMAXPROCS(0)/2)))
	s.huge = share.New(share.Turns(max(1, runtime.GOMAXPROCS(0)/2)))
	s.writers.server = s
	s.sockets, s.opens = newSockets(cfg.MaxSockets), newOpens()
	s.openRates = auth.NewBuckets[netip.Prefix](auth.Limit{Rate: cfg.MaxOpensPerSecond, Burst: cfg.OpensBurst})
	s.budgets = newDeviceBudgets(newLimits(&cfg))
	s.limits = encode(s.Limits())
	s.intake.limit, s.intake.timeout = cfg.MaxUnfinished, cfg.MessageTimeout
	s.melody = melody.New()
	s.melody.Upgrader = &websocket.Upgrader{
		ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, WriteBufferPool: &sync.Pool{},
		HandshakeTimeout: handshakeTimeout,
		CheckOrigin:      func(*http.Request) bool { return true }, // admit has checked it
		Error:            s.refuseHandshake,
		// EnableCompression stays off: a small frame could unpack to a thousand times the frame limit.
	}
	s.melody.Config = &melody.Config{
		WriteWait: cfg.WriteTimeout, PongWait: cfg.PongTimeout, PingPeriod: cfg.PingInterval,
		// A message that is a little too big is read all the same, so that the answer can name the limit.
		MaxMessageSize:    max(2*cfg.MaxFrame, cfg.maxAnswer()),
		MessageBufferSize: 1, // for the first frame, the only one melody is given
	}
	s.melody.HandleConnect(s.onConnect)
	s.melody.HandleDisconnect(s.onDisconnect)
	s.melody.HandleMessage(s.onText)
	s.melody.HandleMessageBinary(s.onBinary)
	s.melody.HandleSentMessage(s.onSent)
	s.melody.HandlePong(s.onPong)
	s.melody.HandleError(s.onError)
	return s, nil
}

// Len returns how many devices are connected.
func (s *Server) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns.size
}

// Drain refuses upgrades from now on. Connected devices are not affected.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return
	}
	s.draining = true
	s.signalIdleLocked()
}

func (s *Server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, s.conns.size)
	for c := s.conns.first; c != nil; c = c.next {
		all = append(all, c)
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

// addTask counts a goroutine that a counted task starts.
func (s *Server) addTask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks++
}

// taskDone ends what tryAddTask or addTask counted.
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

// track adds a connection to those that are pinged and that Close ends. It reports whether the server drains already:
// then Close does not know the connection, and the caller must end it.
func (s *Server) track(c *conn) (draining bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.pingAt = s.now() + s.cfg.PingInterval
	s.conns.add(c)
	if s.conns.size == 1 {
		s.armLocked()
	}
	return s.draining
}

func (s *Server) untrack(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.pingAt == 0 {
		return // it was never tracked
	}
	s.conns.remove(c)
	if s.conns.size == 0 {
		s.pinger.Stop()
	}
}
