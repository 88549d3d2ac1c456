package ws

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

const (
	// flushWait is how long a closing connection may take to write what was queued before.
	flushWait = time.Second

	// closeFrameWait is how long the close frame may take. A writer that is stuck in another frame uses it up.
	closeFrameWait = 500 * time.Millisecond

	// closeGrace is how long the peer may take to answer the close frame before the socket is cut.
	closeGrace = 2 * time.Second

	// lingerWait is how long what a device still sends is read after it sent too much. Closing a socket with unread
	// input resets it, and the reset could overtake the close frame.
	lingerWait   = time.Second
	lingerBuffer = 32 << 10
)

// conn is one device's connection: one reader (melody's read loop, in a goroutine of its own), one writer at a time (see
// writers), while there is something to write, and one teardown (HandleDisconnect). It implements routing.Conn.
type conn struct {
	server      *Server
	session     *melody.Session
	wire        corkedConn
	out         outbox
	writeUntil  time.Time // the deadline of the frames that are written now; of the writer
	nextToWrite *conn     // the next one that waits for a writer; of writers

	// Guarded by the server's lock.
	prev, next *conn
	pingAt     time.Duration // on the server's clock

	// Of the reader only.
	entry        *hijackWriter // nil after onConnect
	scanner      frameScanner
	unhandled    int64          // bytes of which the intake knows
	unfinished   bool           // as the intake knows
	messageBytes int            // bytes of the message that is being handled
	hasOpenSlot  bool           // it has one of the slots for opening
	contest      *contest       // nil unless another connection has the session, and the device has not said who it is
	introduced   bool           // the first frame has come
	fresh        bool           // the session's id was made here, and connect may name another
	moved        *movedTo       // where connect had the connection moved; nil: nowhere
	compiled     map[string]int // bytes that the schemas of its tools take, by name; nil without tools

	// local is nil until the session is claimed, and if that failed. It is written by the reader under mu; others than
	// the reader, and what the reader starts, read it under mu.
	local *routing.LocalSession

	allowance *allowance
	intake    intakePlace

	unacknowledged atomic.Int64 // answers that are not acknowledged yet

	// gate is held while a call is put into the outbox or a turn begins, and while it is decided that nothing is under
	// way: so nothing slips into a connection that is ended because it is idle. It is taken before mu.
	startMu    sync.Mutex
	refusesNew bool // takes no more calls and turns

	plain bool // people read results of tools as plain text; never changes

	mu           sync.Mutex
	worker       *turnWorker   // nil while nobody talks
	closing      Close         // closeNone while the connection is in use
	gone         chan struct{} // closed by the teardown; nil unless somebody is closing the connection, and waits for it
	version1     bool          // the device sent connect without capabilities: it knows no extensions
	wantsCancel  bool          // the device declared the capability cancel
	wantsDrain   bool          // the device declared the capability drain
	announced    bool          // the device was told that this pod is stopping
	awaitingPong []func()      // who wait for a sign of life
	pingedAt     time.Duration // when the device was last pinged for them, on the server's clock
	pongAt       time.Duration // when the last one came, on the server's clock; zero: none yet
	stopped      bool          // nothing more is read
	woken        chan struct{} // closed when it is stopped; nil unless its reader pauses
}

var _ routing.Conn = (*conn)(nil)

func (s *Server) newConn(begin opening) *conn {
	c := &conn{server: s, plain: begin.plain, hasOpenSlot: true}
	c.out.writer, c.out.limit = c, s.cfg.MaxOutbound
	c.wire.owner = c
	c.allowance = s.allowances.acquire(device{begin.session.Key, begin.source})
	return c
}

// connOf returns the connection of a session. Melody's map of keys would be a third of a kilobyte for each of them.
func connOf(ms *melody.Session) *conn { return ms.WebsocketConnection().NetConn().(*corkedConn).owner }

func (s *Server) now() time.Duration { return time.Since(s.started) }

// onConnect claims the session and sends session_start. Melody calls it before it reads and before it writes: the first
// frame waits in its buffer, the others in the outbox.
func (s *Server) onConnect(ms *melody.Session) {
	c := connOf(ms)
	defer c.recoverPanic()
	c.session = ms
	ms.Request = nil // melody has no more use for it, and it would live as long as the socket
	c.wire.framed = true
	s.counters.opened.Add(1)
	begin := c.entry.begin
	c.entry = nil
	defer c.releaseOpenSlot()
	if s.track(c) {
		c.end(CloseRestart)
		return
	}
	ms.WebsocketConnection().SetPingHandler(c.onPing)
	c.runOnOwnStack(func() { c.open(begin) })
}

// opened gives the slot for opening back. It runs in the reader.
func (c *conn) releaseOpenSlot() {
	if c.hasOpenSlot {
		c.hasOpenSlot = false
		c.server.openSlots.release()
	}
}

// open claims the session.
func (c *conn) open(begin opening) {
	s := c.server
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	token, proof := newResumeToken()
	begin.session.Proofs = []string{proof}
	local, resumed, err := s.cfg.Pod.Hub.Open(ctx, begin.session, c)
	held := (*registry.Held)(nil)
	switch {
	case errors.As(err, &held):
		c.greet(begin, token, true, false)
		c.startContest(begin.session, held)
		return
	case err != nil:
		c.failOpen(begin.session, err)
		return
	}
	c.setLocal(local)
	messages := c.greet(begin, token, resumed, true)
	c.log().Info("device connected", "resumed", resumed, "messages", messages)
}

// greet sends session_start. It returns how many messages the conversation has. What the conversation is called is not told to
// who may not get the session.
func (c *conn) greet(begin opening, token string, resumed, sure bool) (messages int) {
	var about registry.ConversationInfo
	if !begin.fresh {
		about = c.describe(begin.session.Key)
	}
	c.fresh = begin.fresh
	name := begin.session.Name
	if sure {
		name = nameFor(begin.session, about)
	}
	messages = about.Messages
	first := sessionStartFrame(begin.session.Key.Session, name, resumed || messages > 0, messages, token)
	if c.out.start(first) {
		_ = c.session.Write(first) // there is room for one, and the writer starts when onConnect returns
	}
	return messages
}

// runOnOwnStack runs f in a goroutine of its own and waits for it. The reader's stack would stay as large as the deepest call it ever
// made for as long as the device is connected; opening a session and registering tools go deepest, and happen once.
func (c *conn) runOnOwnStack(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer c.recoverPanic()
		f()
	}()
	<-done
}

// onDisconnect is the one teardown: whatever ended the connection, melody calls it once, after the reader has lost the
// socket.
func (s *Server) onDisconnect(ms *melody.Session) {
	c := connOf(ms)
	defer s.untrack(c)
	defer c.recoverPanic()
	c.mu.Lock()
	if c.closing == closeNone {
		c.closing = closeGone // from here on nobody can start to close it
	}
	why, worker, gone := c.closing, c.worker, c.gone
	c.mu.Unlock()
	s.counters.closed[why].Add(1)
	if gone != nil {
		close(gone)
	}
	c.out.discard()
	c.cancelTurn(why)
	c.endContest()
	if c.local == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	c.local.Close(ctx)
	if worker != nil && !worker.wait(turnStopWait) {
		c.log().Warn("a turn goes on after its connection has ended")
	}
	c.log().Info("device disconnected", "close", why.Code(), "reason", why.Reason())
}

// Close implements routing.Conn.
func (c *conn) Close(cause routing.CloseCause) { c.end(closeFor(cause)) }

// end starts to close the connection and returns at once. Only the first call counts. From here on nothing that is
// read has an effect and nothing more is queued; a turn that is under way is stopped.
func (c *conn) end(why Close) { c.endAfter(why, 0) }

// endAfter ends the connection as end does, but gives a turn that is under way so much time to end, and the device hears
// how it did. Nobody waits for that here.
func (c *conn) endAfter(why Close, grace time.Duration) {
	c.mu.Lock()
	if c.closing != closeNone {
		c.mu.Unlock()
		return
	}
	c.closing, c.gone = why, make(chan struct{})
	worker := c.worker
	c.server.addTask() // while the teardown, which needs the lock, has not let the server's count go
	c.mu.Unlock()
	if why == CloseRestart {
		c.announce(rand.N(comebackJitter)) // if nobody has yet
	}
	if worker == nil || grace <= 0 {
		c.out.seal()
	}
	c.cancelTurn(why)
	go func() {
		defer c.server.taskDone()
		if worker != nil && grace > 0 {
			worker.wait(grace)
		}
		c.finish(why, c.out.seal())
	}()
}

// finish writes what is left, then the close frame, and cuts the socket if the peer does not end it in time. The
// socket itself is closed by melody's read loop, which is still reading.
func (c *conn) finish(why Close, flushed <-chan struct{}) {
	if why != CloseSlow { // who does not read will not read the rest either
		flush := time.NewTimer(flushWait)
		defer flush.Stop()
		select {
		case <-flushed:
		case <-flush.C:
		case <-c.gone:
			return
		}
	}
	c.out.discard()
	err := c.session.WebsocketConnection().WriteControl(websocket.CloseMessage, why.payload(), time.Now().Add(closeFrameWait))
	if err != nil {
		c.cut()
		return
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-grace.C:
		c.cut()
	case <-c.gone:
	}
}

// cut closes the TCP connection under melody: its reader ends with an error, and the teardown follows.
func (c *conn) cut() { _ = c.session.WebsocketConnection().NetConn().Close() }

// ending returns how the connection is being closed, closeNone while it is in use.
func (c *conn) ending() Close {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// onError is told what ended the reading, and what kept the first frame from being written. Melody may call it while it
// holds its own lock, so it never calls back into melody.
func (s *Server) onError(ms *melody.Session, err error) {
	c := connOf(ms)
	defer c.recoverPanic()
	c.log().Debug("socket error", "error", err)
	switch {
	case errors.Is(err, websocket.ErrReadLimit): // the WebSocket library has sent the close frame
		c.linger(CloseTooBig)
	case c.isStopped():
		why := c.ending()
		c.cancelTurn(why)
		_ = ms.WebsocketConnection().WriteControl(websocket.CloseMessage, why.payload(), time.Now().Add(closeFrameWait))
		c.linger(why)
	}
}

// linger gives a peer that may still be sending the chance to read the close frame. It runs in the reader, which closes
// the socket as soon as it returns.
func (c *conn) linger(why Close) {
	c.mu.Lock()
	if c.closing == closeNone {
		c.closing = why
	}
	c.mu.Unlock()
	c.out.discard() // a failing write would cut the socket at once
	_ = c.wire.CloseWrite()
	_ = c.wire.Conn.SetReadDeadline(time.Now().Add(lingerWait))
	c.discardInput()
}

// discardInput reads what still comes, within what the device may cost: a flood is not worth a core.
func (c *conn) discardInput() {
	buffer := make([]byte, lingerBuffer)
	for end := time.Now().Add(lingerWait); ; {
		n, err := c.wire.Conn.Read(buffer)
		if err != nil {
			return
		}
		pause := c.allowance.spend(unitsPerRead + float64(n)/bytesPerUnit)
		if pause >= time.Until(end) {
			return
		}
		time.Sleep(pause)
	}
}

// recoverPanic turns a panic in a callback into the end of this connection. Melody alone would leave a socket that
// nobody reads.
func (c *conn) recoverPanic() {
	if p := recover(); p != nil {
		c.log().Error("panic in a connection", "panic", p, "stack", string(debug.Stack()))
		c.end(CloseInternal)
	}
}

// log returns the server's logger with the session's name.
func (c *conn) log() *slog.Logger {
	c.mu.Lock()
	local := c.local
	c.mu.Unlock()
	if local == nil {
		return c.server.log
	}
	key := local.Session().Key
	return c.server.log.With("session", key.Session, "tenant", key.Tenant)
}
