package ws

import (
	"errors"
	"time"
)

// errStopped ends the reading of a connection whose close frame was sent, or is about to be.
var errStopped = errors.New("ws: the connection is being closed")

// countInput counts what was just read, before the WebSocket library sees it. It runs in the reader, and pauses it when
// the device has cost too much.
func (c *conn) countInput(p []byte) error {
	c.server.counters.bytesIn.Add(int64(len(p)))
	frames, boundary := c.scanner.scan(p)
	if frames > 0 && !c.budget.takeFrames(frames) {
		c.stop(CloseRate)
	}
	if c.isStopped() {
		return errStopped
	}
	unfinished := c.scanner.busy()
	// A small message that came whole is handled before the next one is read, so the intake need not know it.
	if unfinished || c.unfinished || c.unhandled > 0 || len(p) > readBuffer {
		c.unhandled += int64(len(p))
		c.unfinished = unfinished
		c.server.intake.update(c, c.unhandled, unfinished, boundary)
	}
	units := float64(frames) + float64(len(p))/bytesPerUnit
	if len(p) < readBuffer { // the reads of a long message are not its device's choice
		units += unitsPerRead
	}
	pause := c.budget.spend(units)
	if pause > 0 {
		c.pause(min(pause, maxPause))
	}
	return nil
}

// pause holds up the reader until the time is over or the connection is stopped. A stopped reader must not wait: what
// it has read of its message is no longer counted, and must be freed.
func (c *conn) pause(d time.Duration) {
	wake := make(chan struct{})
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	c.wake = wake
	c.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = nil
}

// countHandled notes that everything that was read has been handled, except for the message that is not complete.
func (c *conn) countHandled() {
	if held := int64(c.scanner.held); c.unhandled > held {
		c.unhandled = held
		c.server.intake.update(c, held, c.unfinished, false)
	}
}

// stop ends the connection although its reader is in the middle of a message. The reader wakes and sends the close
// frame (see onError). The socket of a connection that is being closed already is closed at once.
func (c *conn) stop(why Close) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.stopped = true
	if c.wake != nil {
		close(c.wake)
	}
	if c.closing != closeNone {
		_ = c.wire.Conn.Close()
		return
	}
	c.closing = why
	_ = c.wire.Conn.SetReadDeadline(time.Now())
}

func (c *conn) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}
