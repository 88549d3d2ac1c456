package ws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/olahol/melody"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/ws/internal/fields"
	"github.com/farhand/farhand/ws/mcp"
	"github.com/farhand/farhand/ws/node"
)

// onText handles one frame. Melody calls it in the connection's reader, for one frame after another.
func (s *Server) onText(ms *melody.Session, data []byte) {
	c := connOf(ms)
	s.stacks.run(func() { c.handleText(data) })
}

// onBinary handles a binary message. No version of the protocol has any.
func (s *Server) onBinary(ms *melody.Session, data []byte) {
	c := connOf(ms)
	s.stacks.run(func() { c.refuseBinary(data) })
}

// handleText decodes and handles one frame. The reader waits until it returns.
func (c *conn) handleText(data []byte) {
	defer c.recoverPanic()
	if c.ending() != closeNone {
		return
	}
	s := c.server
	c.messageBytes = len(data)
	frame, answered, err := c.decode(data)
	if errors.Is(err, CloseCrowded) { // not decoded, so it identifies no device
		c.fail(err)
		return
	}
	s.counters.frameReceived(frame)
	if !c.introduce(frame) {
		return
	}
	if errors.Is(err, CloseTooBig) {
		c.tooBig(answered)
		return
	}
	if bad, ok := errors.AsType[*fields.Error](err); ok {
		c.failAnswer(answered, bad)
	}
	if call, size := answerSize(frame); size > max(s.cfg.MaxOutput, s.cfg.MaxFrame) {
		c.tooBig(call)
		return
	}
	if frame != nil {
		err = c.handle(frame)
	}
	if err != nil {
		c.fail(err)
	}
}

// answerSize returns the call that a frame answers, and the bytes of the largest text of the answer: the structured
// output may have more than the text for models. Files have a limit of their own.
func answerSize(frame any) (call string, size int64) {
	switch f := frame.(type) {
	case *toolResultFrame:
		return f.ID, int64(max(len(f.result.Output), len(f.result.Structured.Raw()), len(f.result.Error)))
	case *toolErrorFrame:
		return f.ID, int64(len(f.Error))
	default:
		return "", 0
	}
}

// longFrame is the length in bytes from which a frame needs a slot to be decoded. Without slots, devices with long
// frames could take all cores and block the other devices. Frames from hugeFrame have separate slots, because decoding
// one may take a large part of a second. Tenants that wait for slots take turns, and so do the identities of each.
const (
	longFrame = 16 << 10
	hugeFrame = 256 << 10
)

// acquireDecodeSlot waits for a slot to decode a frame of n bytes of an owner's device. It fails if no slot is free
// within MessageTimeout. Decoding only computes, so such a wait means that the process is heavily overloaded.
func (s *Server) acquireDecodeSlot(by share.Owner, n int) (*share.Grant, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.MessageTimeout)
	defer cancel()
	slots := s.decoding
	if n >= hugeFrame {
		slots = s.huge
	}
	return slots.Acquire(ctx, by, 1)
}

// decode decodes a frame. The error is CloseCrowded if no slot became free, CloseTooBig if the frame is too big, or an
// error of decodeFrame. With the last two it also returns the call that the frame answers, if it is an answer.
func (c *conn) decode(data []byte) (frame any, answered string, err error) {
	s := c.server
	if len(data) >= longFrame {
		slot, err := s.acquireDecodeSlot(c.who.Owner(), len(data))
		if err != nil {
			return nil, "", CloseCrowded
		}
		defer slot.Release()
	}
	if n := int64(len(data)); c.node == nil && n > s.cfg.MaxFrame { // an answer may be longer than other messages
		if answered = c.answeredCall(data); n > s.cfg.maxAnswer() || answered == "" {
			return nil, answered, CloseTooBig
		}
	}
	if c.messageUnits = 0; len(data) > fewValues {
		c.messageUnits = unitsPerValue * float64(strictjson.Values(data))
		c.budget.spend(c.messageUnits) // delays the next read
	}
	switch {
	case c.mcp != nil:
		frame, err = c.mcp.decode(data)
	case c.node != nil:
		frame, err = c.node.decode(data, c.budget.spend)
	default:
		frame, err = decodeFrame(data)
	}
	if errors.Is(err, fields.ErrUTF8) {
		err = CloseInvalidUTF8
	}
	if err != nil && answered == "" {
		answered = c.answeredCall(data)
	}
	return frame, answered, err
}

// answeredCall returns the id of the call that a message answers, even if the rest of the message is malformed. The id
// is empty if the message is not an answer.
func (c *conn) answeredCall(data []byte) string {
	switch {
	case c.mcp != nil:
		return c.mcp.AnsweredCall(data)
	case c.node != nil:
		return c.node.AnsweredCall(data)
	default:
		return answeredCall(data)
	}
}

// tooBig sends the device the limit that its message exceeded, and ends the connection. If the message answers a call,
// the call also fails, because the device would send the same answer again after a reconnect.
func (c *conn) tooBig(answered string) {
	text := fmt.Sprintf("The message is too big: at most %d bytes are allowed.", c.server.cfg.MaxFrame)
	if limit := c.server.cfg.MaxOutput; limit > c.server.cfg.MaxFrame && answered != "" {
		text = fmt.Sprintf("The output is too big: at most %d bytes are allowed.", limit)
	}
	bad := fields.NewError(codeMessageTooBig, text)
	c.failAnswer(answered, bad)
	if c.node != nil && answered != "" { // a node does not repeat its answers
		c.fail(bad)
		_ = c.node.Acknowledge(answered, true) // the error was the answer to its request
		return
	}
	_ = c.send(errorFrame(bad.Code, bad.Message)) // if the outbox is full, the close frame says the same
	c.fail(CloseTooBig)
}

func (c *conn) refuseBinary(data []byte) {
	defer c.recoverPanic()
	if c.ending() != closeNone {
		return
	}
	c.server.counters.frameReceived(nil)
	if int64(len(data)) > c.server.cfg.MaxFrame {
		c.tooBig("")
		return
	}
	if c.mcp != nil && c.mcp.HasEnvelope() { // voice data, which the gateway ignores
		return
	}
	c.fail(fields.NewError(fields.CodeInvalidJSON, "Binary messages are not supported. Send JSON in text messages."))
}

// handle checks that the device may send a frame now, and calls the handler for its type.
func (c *conn) handle(frame any) error {
	if err := c.mayFrame(frameType(frame)); err != nil {
		return err
	}
	if units := storeUnits(frame); units > 0 { // one read may contain many such frames, and each is delayed by itself
		c.pause(c.budget.spend(units))
		if c.ending() != closeNone {
			return nil
		}
	}
	return c.dispatch(frame)
}

// dispatch calls the handler for a frame's type. server.go lists what else a new frame needs.
func (c *conn) dispatch(frame any) error {
	switch f := frame.(type) {
	case *connectFrame:
		return withStoreTimeout(c.connect, f)
	case *registerToolsFrame:
		return withStoreTimeout(c.registerTools, f)
	case *unregisterToolsFrame:
		return withStoreTimeout(c.unregisterTools, f)
	case *getRegisteredToolsFrame:
		return withStoreTimeout(c.listRegistered, f)
	case *toolCallAcceptedFrame:
		_ = c.local.Progress(f.ID, nil, nil, "", "") // an empty report is never refused
	case *toolProgressFrame:
		return c.callProgress(f)
	case *toolResultFrame:
		return c.toolResult(f)
	case *uploadRequestFrame:
		return withStoreTimeout(c.uploadRequest, f)
	case *toolErrorFrame:
		c.toolError(f)
	case *messageFrame:
		return c.message(f)
	case *abortFrame:
		return c.abort()
	case *approvalResponseFrame:
		return withStoreTimeout(c.approvalResponse, f)
	case *registerWakeFrame:
		return withStoreTimeout(c.registerWake, f)
	case *regenerateFrame:
		return c.regenerate(f)
	case *presenceFrame:
		return withStoreTimeout(c.presence, f)
	case *setDefaultFrame:
		return withStoreTimeout(c.setDefault, f)
	case *mcp.Message:
		return withStoreTimeout(c.handleMCP, f)
	case *node.Request:
		return withStoreTimeout(c.handleNode, f)
	case *node.Answer:
		return c.askNode(f)
	case *node.Step:
		return c.stepNode(f)
	case *node.Progress:
		return c.progressNode(f)
	case *mcp.Lost:
		c.budget.spend(unitsPerStray)
		c.local.Fail(f.Call, registry.Errorf(registry.CodeLost, "The device's MCP server ended before it answered. "+
			"Whether the tool ran is not known."))
	default:
		return fmt.Errorf("no handler for %T", f)
	}
	return nil
}

// withStoreTimeout calls the handler of a frame that uses the store, with storeTimeout.
func withStoreTimeout[F any](handler func(context.Context, F) error, frame F) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return handler(ctx, frame)
}

// errStopped ends the reading of a connection whose close frame has been sent, or is about to be.
var errStopped = errors.New("ws: the connection is being closed")

// countInput charges the bytes just read, before the WebSocket library gets them. It runs in the reader, and pauses the
// reader if the device has spent too much.
func (c *conn) countInput(p []byte) error {
	c.server.counters.bytesIn.Add(int64(len(p)))
	frames, boundary := c.scanner.scan(p)
	if frames > 0 && c.budget.takeFrames(frames) != noSpender {
		c.stop(CloseRate)
	}
	if c.isStopped() {
		return errStopped
	}
	unfinished := c.scanner.busy()
	// A small, complete message is handled before the next read, so the intake need not count it.
	if unfinished || c.unfinished || c.unhandled > 0 || len(p) > readBuffer {
		c.unhandled += int64(len(p))
		c.unfinished = unfinished
		c.server.intake.update(c, c.unhandled, unfinished, boundary)
	}
	units := float64(frames) + float64(len(p))/bytesPerUnit
	if len(p) < readBuffer { // the device does not choose the reads of a long message
		units += unitsPerRead
	}
	c.pause(c.budget.spend(units))
	return nil
}

// pause blocks the reader for d, at most maxPause, or until the connection is stopped. A stopped reader must not wait:
// the bytes of its message are no longer counted, so they must be freed.
func (c *conn) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	wake := make(chan struct{})
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	c.wake = wake
	c.mu.Unlock()
	select {
	case <-time.After(min(d, maxPause)):
	case <-wake:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake = nil
}

// countHandled records that all input has been handled, except for the incomplete message.
func (c *conn) countHandled() {
	if held := int64(c.scanner.held); c.unhandled > held {
		c.unhandled = held
		c.server.intake.update(c, held, c.unfinished, false)
	}
}

// stop ends the connection even if its reader is in the middle of a message. The reader wakes and sends the close frame
// (see onError). If the connection is already closing, stop closes its socket immediately.
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
