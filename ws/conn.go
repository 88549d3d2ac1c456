package ws

import (
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/olahol/melody"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/internal/fields"
)

// conn is one device's connection. It has one reader (melody's read loop, in a goroutine of its own), at most one
// writer (lent by writerPool while there is something to write), and one teardown (onDisconnect). It implements
// routing.Conn.
type conn struct {
	server     *Server
	session    *melody.Session
	who        *auth.Identity // identity of its credential; never changes
	socket     *share.Grant   // its place among the connections
	attributes attributes
	toolNames  *share.Grant // bytes of the names that its tools have at an MCP device; nil: few
	unwatch    func()       // stops watching who; nil: not watched
	wire       corkedConn
	out        outbox

	writeUntil  time.Duration // the write deadline that is set now, on the server's clock; used by the writer only
	nextToWrite *conn         // the next connection that waits for a writer; guarded by writerPool.mu

	tracked *list.Element // of Server.conns, guarded by Server.mu; nil: never tracked
	pingAt  time.Duration // on the server's clock; guarded by Server.mu

	// registering is held while the session's tools change. Take it before all other locks of the connection.
	registering sync.Mutex

	// Only the reader uses the fields up to unpairedAt. compiled is guarded by registering.
	hijack       *hijackWriter // nil after onConnect
	turn         *share.Grant  // to open the session; nil once it is open
	scanner      frameScanner
	unhandled    int64           // bytes that are counted in the intake
	messageBytes int             // bytes of the message that is being handled
	messageUnits float64         // what its values cost
	contest      *contest        // nil unless another connection holds the session and the first frame has not arrived
	summary      *sessionSummary // sent in connected, because session_start lacked it; nil: nothing
	unfinished   bool            // as counted in the intake
	introduced   bool            // the first frame has arrived
	fresh        bool            // the server made the session's id; connect may name another
	shownWaiting bool            // the approvals that wait for its person were shown
	compiled     []int32         // bytes of the compiled schema of each tool, in the order of local.Tools
	unpaired     string          // a device id that was not paired when Server.pairings was unpairedAt
	unpairedAt   int64

	// local is nil until the session is claimed, and stays nil if the claim fails. The reader writes it under mu. The
	// reader, and goroutines it waits for, may read it without mu. All other goroutines read it under mu.
	local *routing.LocalSession

	budget budget
	intake intakePlace

	unacknowledged atomic.Int64 // answers of the device that are not acknowledged yet

	// startMu is held while a call is queued in the outbox, while a turn begins, and while endIdle checks for work in
	// flight. Without it, a call could enter a connection that is closing because it is idle. Take it before mu.
	startMu    sync.Mutex
	refusesNew bool // new calls and turns are rejected

	plain bool // people read results of tools as plain text; never changes

	mcp  *mcpLink  // of a device that speaks MCP; never changes
	node *nodeLink // of an OpenClaw node; nil, like mcp: it speaks the device protocol; never changes

	mu           sync.Mutex
	worker       *turnWorker   // nil while no turn runs or waits
	gone         chan struct{} // closed by the teardown; nil until end is called
	closing      Close         // closeNone while the connection is in use
	version1     bool          // the device sent connect without capabilities, so it supports no extensions
	wantsCancel  bool          // the device declared the capability cancel
	wantsDrain   bool          // the device declared the capability drain
	wantsTrace   bool          // the device declared the capability traceparent
	announced    bool          // the device was sent server_draining
	stopped      bool          // nothing more is read
	left         bool          // the device closed the connection properly
	awaitingPong []func()      // called on the next pong
	pingedAt     time.Duration // when the device was last pinged for awaitingPong, on the server's clock
	pongAt       time.Duration // when the last pong came, on the server's clock; zero: none yet
	probedAt     time.Duration // when the oldest ping without a pong was written, on the same clock; zero: none
	roundTrip    time.Duration // from the last answered ping to its pong; zero: unknown
	wake         chan struct{} // closed when the connection is stopped; nil unless its reader pauses
}

var (
	_ routing.Conn    = (*conn)(nil)
	_ routing.Expirer = (*conn)(nil)
)

func (s *Server) newConn(begin opening) *conn {
	c := &conn{server: s, who: begin.who, plain: begin.plain, socket: begin.socket, turn: begin.turn}
	c.attributes = begin.attributes
	if begin.mcp != nil {
		c.mcp = s.newMCPLink(*begin.mcp, begin.session.Key.Session)
	}
	if begin.node != nil {
		c.node = s.newNodeLink(begin.node)
	}
	c.out.writer, c.out.limit = c, s.cfg.MaxOutbound
	c.wire.owner = c
	c.budget = s.budgets.acquire(begin.session.Key, begin.source, begin.who)
	return c
}

// connOf returns the connection of a melody session. It goes through the socket, because melody's map of keys would
// cost a third of a kilobyte per connection.
func connOf(ms *melody.Session) *conn { return ms.WebsocketConnection().NetConn().(*corkedConn).owner }

func (s *Server) now() time.Duration { return time.Since(s.started) }

func (c *conn) setLocal(l *routing.LocalSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local = l
}

// recoverPanic ends the connection after a panic in a callback. Melody alone would leave a socket without a reader.
func (c *conn) recoverPanic() {
	if p := recover(); p != nil {
		c.log().Error("panic in a connection", "panic", p, "stack", string(debug.Stack()))
		c.end(CloseInternal)
	}
}

// claimed returns the session of the connection, nil while it has none.
func (c *conn) claimed() *routing.LocalSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local
}

func (c *conn) log() *slog.Logger {
	local := c.claimed()
	if local == nil {
		return c.server.log
	}
	key := local.Session().Key
	return c.server.log.With("session", key.Session, "tenant", key.Tenant)
}

// lineKind is a log line that devices of a tenant cause.
type lineKind struct{ tenant, message string }

// note logs a line that the device can cause again and again, for example by reconnecting. Lines beyond the quota of
// its tenant have level debug, and the next line has their number. The message is a constant.
func (c *conn) note(level slog.Level, message string, args ...any) {
	if level > slog.LevelDebug {
		omitted, ok := c.server.lines.May(lineKind{c.who.Tenant, message})
		if !ok {
			level = slog.LevelDebug
		}
		if omitted > 0 {
			args = append(args, "not_logged_before", omitted)
		}
	}
	c.log().Log(context.Background(), level, message, args...)
}

// connect stores the device's attributes. Attributes that the frame omits stay unchanged.
func (c *conn) connect(ctx context.Context, f *connectFrame) error {
	if id := or(f.SessionID, ""); id != "" && id != c.local.Session().Key.Session {
		_ = c.send(errorFrame(codeSessionOwnerMismatch, "session_id: this connection belongs to another session. "+
			"Use the session_id of the URL, or connect with this one there."))
		return CloseOwnerMismatch
	}
	if err := c.mayBe(or(f.DeviceID, "")); err != nil {
		c.refuseDevice(err)
		return nil
	}
	change := func(s *registry.Session) {
		s.DeviceName, s.Platform = or(f.DeviceName, s.DeviceName), or(f.Platform, s.Platform)
		if !s.Bound {
			s.DeviceID = or(f.DeviceID, s.DeviceID)
		}
		if f.Labels != nil {
			s.Labels = f.Labels
		}
		if f.Capabilities != nil {
			s.Capabilities = f.Capabilities
		}
		if !s.Can(registry.CapabilityPresence) {
			s.Foreground = nil
		}
	}
	if err := c.holdAttributes(change); err != nil {
		return err
	}
	if f.Labels != nil {
		if full := c.budget.takeLabels(f.Labels); full != noSpender {
			return fields.NewError(codeRateLimited, fmt.Sprintf("labels: %s changed too many in a short time; %d per "+
				"second are allowed. Nothing was changed.", full, full.times(labelRate)))
		}
	}
	if err := c.local.Update(ctx, change); err != nil {
		return err
	}
	if err := c.mayBe(or(f.DeviceID, "")); err != nil { // it was paired meanwhile
		c.refuseDevice(err)
		return nil
	}
	c.mu.Lock()
	c.version1 = f.Capabilities == nil
	if f.Capabilities != nil {
		c.wantsCancel = slices.Contains(f.Capabilities, registry.CapabilityCancel)
		c.wantsDrain = slices.Contains(f.Capabilities, registry.CapabilityDrain)
		c.wantsTrace = slices.Contains(f.Capabilities, registry.CapabilityTrace)
	}
	c.mu.Unlock()
	summary := c.summary
	c.summary = nil
	if err := c.send(connectedFrame(summary, c.server.limits, c.offersWake())); err != nil {
		return err
	}
	c.showWaiting()
	return nil
}

// introductionWait bounds the decision about which connection gets a session. It includes the wait for the device's
// first frame.
const introductionWait = 5 * time.Second

// contest is a connection's claim to a session that another connection holds.
type contest struct {
	introductions chan registry.Introduction // capacity 1: the device's introduction
	stop          context.CancelFunc
	done          chan struct{} // closed after the decision: the connection has its session, or is closing
}

// startContest decides in the background whether the connection gets a session that another connection holds. Meanwhile
// the reader reads the device's first frame, which may prove that it is the same device.
func (c *conn) startContest(s registry.Session, held *registry.Held) {
	ctx, stop := context.WithTimeout(context.Background(), introductionWait)
	claim := &contest{introductions: make(chan registry.Introduction, 1), stop: stop, done: make(chan struct{})}
	c.contest = claim
	c.server.addTask()
	go func() {
		defer c.server.taskDone()
		defer close(claim.done)
		defer stop()
		defer c.recoverPanic()
		local, err := c.server.cfg.Pod.Hub.Obtain(ctx, s, c, held, claim.introductions)
		if err != nil {
			c.failOpen(s, err)
			return
		}
		c.setLocal(local)
		c.note(slog.LevelInfo, "device connected", "resumed", true, "replaced", held.Holder.Pod)
	}()
}

// endContest ends the contest of a closed connection and waits for its goroutine.
func (c *conn) endContest() {
	if claim := c.contest; claim != nil {
		c.contest = nil
		claim.stop()
		<-claim.done
	}
}

// decideContest passes the device's introduction to the contest and waits for the decision. It reports whether the
// connection has its session.
func (c *conn) decideContest(intro registry.Introduction) bool {
	claim := c.contest
	c.contest = nil
	claim.introductions <- intro
	<-claim.done // takes at most introductionWait
	if c.local == nil || c.ending() != closeNone {
		return false
	}
	s := c.local.Session()
	summary := summarize(s, c.describe(s.Key), true)
	if summary.MessageCount > 0 || summary.Name != s.Name { // session_start lacked it
		c.summary = &summary
	}
	return true
}
