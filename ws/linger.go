package ws

import (
	"errors"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"
)

// Closing a socket with unread input resets it, and the reset could overtake the close frame. So after a device sent
// too much, its input is read a little longer.
const (
	lingerWait   = time.Second
	lingerBuffer = 32 << 10
)

// onError learns what ended the reading, or what kept the first frame from being written. Melody may call it while it
// holds its own lock, so it never calls back into melody.
func (s *Server) onError(ms *melody.Session, err error) {
	c := connOf(ms)
	defer c.recoverPanic()
	c.log().Debug("socket error", "error", err)
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway,
		websocket.CloseNoStatusReceived) {
		c.mu.Lock()
		c.left = true
		c.mu.Unlock()
	}
	switch {
	case errors.Is(err, websocket.ErrReadLimit): // the WebSocket library has sent the close frame
		c.linger(CloseTooBig)
	case c.isStopped():
		why := c.ending()
		c.cancelTurn(why)
		_ = c.writeClose(why)
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
	c.out.discard() // a failing write would close the socket at once
	_ = c.wire.CloseWrite()
	_ = c.wire.Conn.SetReadDeadline(time.Now().Add(lingerWait))
	c.discardInput()
}

// discardInput reads what still comes, but no faster than the device's budget permits: a flood is not worth a core.
func (c *conn) discardInput() {
	buffer := make([]byte, lingerBuffer)
	for end := time.Now().Add(lingerWait); ; {
		n, err := c.wire.Conn.Read(buffer)
		if err != nil {
			return
		}
		pause := c.budget.spend(unitsPerRead + float64(n)/bytesPerUnit)
		if pause >= time.Until(end) {
			return
		}
		time.Sleep(pause)
	}
}
