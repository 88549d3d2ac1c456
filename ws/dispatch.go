package ws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"
	"github.com/olahol/melody"

	"github.com/farhand/farhand/registry"
)

// onText handles one frame. Melody calls it in the connection's reader, one frame after the other.
func (s *Server) onText(ms *melody.Session, data []byte) {
	c := connOf(ms)
	defer c.recoverPanic()
	if c.ending() != closeNone {
		return
	}
	c.messageBytes = len(data)
	frame, big, err := s.decode(data)
	s.counters.frameReceived(frame)
	if !c.introduced {
		admitted := false
		c.runOnOwnStack(func() { admitted = c.introduce(frame) })
		if !admitted {
			return
		}
	}
	if big {
		c.tooBig(data)
		return
	}
	if bad := (*frameError)(nil); errors.As(err, &bad) {
		c.failAnswer(data, bad)
	}
	if int64(len(data)) > s.cfg.MaxOutput && s.outputTooBig(frame) {
		c.tooBig(data)
		return
	}
	switch frame.(type) {
	case nil:
	case *toolResultFrame, *toolErrorFrame, *toolProgressFrame, *toolCallAcceptedFrame: // of every call, and soon done
		err = c.handle(frame)
	default:
		c.runOnOwnStack(func() { err = c.handle(frame) })
	}
	if err != nil {
		c.fail(err)
	}
}

// longFrame is from how many bytes on few frames are decoded at a time, so that devices with long ones do not keep the others
// waiting.
const longFrame = 16 << 10

// understand decodes a frame, unless it is too big.
func (s *Server) decode(data []byte) (frame any, big bool, err error) {
	if len(data) >= longFrame {
		s.decoding <- struct{}{} // whoever is before this one only computes
		defer func() { <-s.decoding }()
	}
	if s.tooBig(data) {
		return nil, true, nil
	}
	frame, err = decodeFrame(data)
	return frame, false, err
}

// tooBig reports whether a message is longer than it may be. One that answers a call may be longer than others.
func (s *Server) tooBig(data []byte) bool {
	n := int64(len(data))
	return n > s.cfg.MaxFrame && (n > s.cfg.maxAnswer() || answeredCall(data) == "")
}

// outputTooBig reports whether a frame has a longer output than a tool may have.
func (s *Server) outputTooBig(frame any) bool {
	f, ok := frame.(*toolResultFrame)
	return ok && s.cfg.MaxOutput > s.cfg.MaxFrame && int64(len(f.result.Output)) > s.cfg.MaxOutput
}

// tooBig announces the limit a message went over, and ends the connection: what the device has to say it cannot say.
// If it was an answer, the device would send the same again after a reconnect, so its call ends too.
func (c *conn) tooBig(data []byte) {
	text := fmt.Sprintf("The message is too big: at most %d bytes are allowed.", c.server.cfg.MaxFrame)
	if limit := c.server.cfg.MaxOutput; limit > c.server.cfg.MaxFrame && answeredCall(data) != "" {
		text = fmt.Sprintf("The output is too big: at most %d bytes are allowed.", limit)
	}
	bad := &frameError{codeMessageTooBig, text}
	c.failAnswer(data, bad)
	_ = c.send(errorFrame(bad.code, bad.message)) // if there is no room for it, the close frame says the same
	c.fail(CloseTooBig)
}

// onBinary answers a binary message, which no version of the protocol has.
func (s *Server) onBinary(ms *melody.Session, data []byte) {
	c := connOf(ms)
	defer c.recoverPanic()
	if c.ending() != closeNone {
		return
	}
	s.counters.frameReceived(nil)
	if int64(len(data)) > s.cfg.MaxFrame {
		c.tooBig(nil)
		return
	}
	c.fail(&frameError{codeInvalidJSON, "Binary messages are not understood. Send JSON in text messages."})
}

// onPong notes a sign of life. Melody has moved the read deadline already.
func (s *Server) onPong(ms *melody.Session) {
	c := connOf(ms)
	defer c.recoverPanic()
	s.counters.received[countedPong].Add(1)
	c.notifyAlive()
}

// onPing answers a ping.
func (c *conn) onPing(data string) error {
	defer c.recoverPanic()
	c.server.counters.received[countedPing].Add(1)
	if c.ending() != closeNone {
		return nil
	}
	err := c.session.WebsocketConnection().WriteControl(
		websocket.PongMessage, []byte(data), time.Now().Add(closeFrameWait))
	if err != nil {
		c.log().Debug("pong not written", "error", err) // a dead peer shows by its silence
	}
	return nil
}

// handle does what a frame asks for.
func (c *conn) handle(frame any) error {
	switch f := frame.(type) {
	case *connectFrame, *registerToolsFrame, *unregisterToolsFrame:
		return c.changeSession(f)
	case *getRegisteredToolsFrame:
		return c.send(registeredToolsFrame(c.local.Tools()))
	case *toolCallAcceptedFrame:
		c.callAccepted(f)
	case *toolProgressFrame:
		return c.callProgress(f)
	case *toolResultFrame:
		c.toolResult(f)
	case *toolErrorFrame:
		c.toolError(f)
	case *messageFrame:
		return c.message(f)
	case *abortFrame:
		return c.abort()
	case *regenerateFrame:
		return c.regenerate(f)
	default:
		return fmt.Errorf("no handler for %T", f)
	}
	return nil
}

// change handles what changes the session in the store.
func (c *conn) changeSession(frame any) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	switch f := frame.(type) {
	case *connectFrame:
		return c.connect(ctx, f)
	case *registerToolsFrame:
		return c.registerTools(ctx, f)
	case *unregisterToolsFrame:
		return c.unregisterTools(ctx, f)
	default:
		return fmt.Errorf("%T changes no session", f)
	}
}

// send queues a frame. A device that does not read its frames is closed as slow.
func (c *conn) send(frame []byte) error { return c.sendError(c.out.push(frame)) }

// sendLazily queues a frame that nobody waits for: it leaves with the next one, or soon.
func (c *conn) sendLazily(frame []byte) error { return c.sendError(c.out.pushLazily(frame)) }

func (c *conn) sendError(err error) error {
	switch {
	case errors.Is(err, errOutboxFull):
		return CloseSlow
	case errors.Is(err, errFrameTooBig):
		return &frameError{codeInternalError, "The answer is larger than what this gateway sends to a device."}
	default: // a closed outbox belongs to a connection that is ending
		return nil
	}
}

// fail does what an error of a handler means for the connection: a Close ends it, everything else is answered.
func (c *conn) fail(err error) {
	var why Close
	var bad *frameError
	var refused *registry.Error
	switch {
	case errors.As(err, &why):
		c.log().Info("closing a device", "close", why.Code(), "reason", why.Reason())
		c.end(why)
		return
	case errors.Is(err, registry.ErrNotOwner):
		c.end(CloseReplaced)
		return
	case errors.As(err, &bad):
	case errors.As(err, &refused) && refused.Code == registry.CodeInvalidRequest:
		bad = invalidMessage("%s", refused.Message)
	default:
		c.log().Error("frame not handled", "error", err)
		bad = &frameError{codeInternalError, registry.AsError(err).Message}
	}
	if err := c.send(errorFrame(bad.code, bad.message)); errors.As(err, &why) {
		c.end(why)
	}
}
