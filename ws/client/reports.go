package client

import (
	"context"
	"time"
	"unicode/utf8"
)

const (
	// acceptAfter is how long a handler runs before tool_call_accepted is sent. The answer of a faster handler
	// makes that needless.
	acceptAfter = 200 * time.Millisecond

	maxMessage = 1 << 10  // bytes the gateway keeps
	maxChunk   = 64 << 10 // bytes the gateway takes
)

// reporter sends what a running handler reports about its call.
type reporter struct {
	client *Client
	ctx    context.Context // of the handler
}

// Progress reports how far the call is, to anybody that follows it. A total of zero or less means that it is not known.
// The message may be empty. A report is dropped if reports come too fast, or while there is no connection.
func (c Call) Progress(progress, total float64, message string) {
	if c.reporter == nil {
		return
	}
	frame, err := progressFrame(c.ID, progress, total, truncate(message, maxMessage))
	if err != nil { // not a number, or not a finite one
		c.reporter.client.cfg.log.Warn("progress not sent", "call", c.ID, "error", err)
		return
	}
	if c.reporter.client.pace.try() {
		c.reporter.client.notify(c.ID, frame)
	}
}

// Chunk reports a part of the output in advance, to anybody that follows the call. The output itself must be complete
// all the same. Chunk waits if chunks come too fast; chunks sent while there is no connection are lost.
func (c Call) Chunk(text string) {
	if c.reporter == nil {
		return
	}
	limit := min(maxChunk, c.reporter.client.cfg.writeLimit/8) // JSON may need six bytes for one
	for text != "" {
		part := truncate(text, limit)
		if part == "" { // a limit below one character
			return
		}
		text = text[len(part):]
		frame, err := chunkFrame(c.ID, part)
		if err != nil || c.reporter.client.pace.wait(c.reporter.ctx) != nil {
			return
		}
		c.reporter.client.notify(c.ID, frame)
	}
}

// notify sends a frame about a call, unless the call was answered.
func (c *Client) notify(id string, frame []byte) {
	c.calls.mu.Lock()
	_, running := c.calls.pending[id]
	c.calls.mu.Unlock()
	if running {
		c.send(frame)
	}
}

// acceptLater sends tool_call_accepted if a handler takes a while. The returned function must be called once the
// handler has ended.
func (c *Client) acceptLater(id string) (stop func()) {
	done := make(chan struct{})
	timer := time.AfterFunc(acceptAfter, func() {
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

// truncate returns at most n bytes of s, whole characters only.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
