package ws

import (
	"errors"

	"github.com/farhand/farhand/registry"
)

// send queues a frame. A device that does not read its frames is closed as slow.
func (c *conn) send(frame []byte) error { return sendError(c.out.push(frame)) }

// sendLazily queues a frame that is not urgent: it leaves with the next frame, or after lazyDelay.
func (c *conn) sendLazily(frame []byte) error { return sendError(c.out.pushLazily(frame)) }

// sendError returns what an error of the outbox means for the handler that sends.
func sendError(err error) error {
	switch {
	case errors.Is(err, errOutboxFull):
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
	if err := c.send(errorFrame(bad.code, bad.message)); errors.As(err, &why) {
		c.end(why)
	}
}
