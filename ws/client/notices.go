package client

import (
	"context"
	"time"
	"unicode/utf8"
)

const (
	// receiptAfter is how long a handler runs before the gateway is told that it does. The answer of a faster one says
	// the same.
	receiptAfter = 200 * time.Millisecond

	maxMessage = 1 << 10  // bytes the gateway keeps
	maxChunk   = 64 << 10 // bytes the gateway takes
)

// notices is how a running handler reports on its call.
type notices struct {
	client *Client
	ctx    context.Context // of the handler
}

// Progress tells whoever follows the call how far it is. A total of zero or less means that it is not known; the
// message may be empty. What is reported too often, or while there is no connection, is dropped.
func (c Call) Progress(progress, total float64, message string) {
	if c.notices == nil {
		return
	}
	frame, err := progressFrame(c.ID, progress, total, cut(message, maxMessage))
	if err != nil { // not a number, or not a finite one
		c.notices.client.cfg.log.Warn("progress not sent", "call", c.ID, "error", err)
		return
	}
	if c.notices.client.pace.try() {
		c.notices.client.notify(c.ID, frame)
	}
}

// Chunk gives whoever follows the call a part of the output in advance. The output itself must be complete all the
// same. Chunk waits if there are many; chunks sent while there is no connection are lost.
func (c Call) Chunk(text string) {
	if c.notices == nil {
		return
	}
	limit := min(maxChunk, c.notices.client.cfg.writeLimit/8) // JSON may need six bytes for one
	for text != "" {
		part := cut(text, limit)
		if part == "" { // a limit below one character
			return
		}
		text = text[len(part):]
		frame, err := chunkFrame(c.ID, part)
		if err != nil || c.notices.client.pace.wait(c.notices.ctx) != nil {
			return
		}
		c.notices.client.notify(c.ID, frame)
	}
}

// notify sends a frame about a call, unless it was answered: then there is nothing more to say.
func (c *Client) notify(id string, frame []byte) {
	c.calls.mu.Lock()
	_, running := c.calls.pending[id]
	c.calls.mu.Unlock()
	if running {
		c.send(frame)
	}
}

// receipt tells the gateway that a handler runs, if it takes a while. The returned function must be called once the
// handler has ended.
func (c *Client) receipt(id string) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(receiptAfter, func() {
		defer close(done)
		if frame, err := acceptedFrame(id); err == nil {
			c.notify(id, frame)
		}
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// cut returns at most n bytes of s, whole characters only.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
