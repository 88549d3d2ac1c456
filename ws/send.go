package ws

import (
	"errors"
	"time"

	"github.com/farhand/farhand/registry"
)

// send queues a frame of the device protocol, which a device that speaks MCP is never sent. A device that does not read
// its frames is closed as slow.
func (c *conn) send(frame []byte) error {
	if c.mcp != nil {
		return nil
	}
	return sendError(c.out.push(frame))
}

// How long an acknowledgement may wait for the next frame to the device. Two frames written together cost one system
// call here, and one at the device. An acknowledgement only frees what the device keeps, and keeps it from sending the
// answer again on its next connection, so a device that nobody calls gets it late: in a fleet where each device is
// called about once a second, most ride along with the next call then. A device with other calls to answer gets it
// soon: it may answer them one after the other.
const (
	ackDelay     = 20 * time.Millisecond
	idleAckDelay = 800 * time.Millisecond
)

// acknowledge queues the acknowledgement of an answer.
func (c *conn) acknowledge(id string, ignored bool) error {
	if c.mcp != nil {
		return nil // MCP has none: its servers do not repeat answers
	}
	delay := idleAckDelay
	if ignored || c.local.InFlight() > 0 {
		delay = ackDelay
	}
	return sendError(c.out.pushLazily(resultAcknowledgedFrame(id, ignored), delay))
}

// sendError returns what an error of the outbox means for the handler that sends.
func sendError(err error) error {
	switch {
	case errors.Is(err, errOutboxFull), errors.Is(err, errOutboxesFull):
		return CloseSlow
	case errors.Is(err, errFrameTooBig):
		return &frameError{codeInternalError, "The answer is larger than what this gateway sends to a device."}
	default: // a closed outbox belongs to a connection that is ending
		return nil
	}
}

// fail answers an error of a handler with an error frame. A Close ends the connection instead.
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
	if c.mcp != nil {
		err = c.sendMCP(mcpErrorFrame(nil, mcpCodeOf(bad), bad.message))
	} else {
		err = c.send(errorFrame(bad.code, bad.message))
	}
	if errors.As(err, &why) {
		c.end(why)
	}
}
