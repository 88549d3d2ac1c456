package ws

import (
	"errors"

	"github.com/farhand/farhand/registry"
)

// Deliver implements registry.Conn.
func (c *conn) Deliver(call registry.DeviceCall) error {
	switch err := c.out.push(toolCallRequestFrame(call)); {
	case err == nil:
		return nil
	case errors.Is(err, errFrameTooBig):
		return registry.Errorf(registry.CodePayloadTooLarge,
			"The arguments are larger than what this gateway sends to a device (%d bytes).", c.server.cfg.MaxOutbound)
	case errors.Is(err, errOutboxFull):
		c.end(CloseSlow)
		return registry.Errorf(registry.CodeNotConnected,
			"The device does not read what is sent to it and is being disconnected. Retry when it is back.")
	default: // not started yet, or ending
		return registry.Errorf(registry.CodeNotConnected, "The device is not connected. Retry when it is back.")
	}
}

// toolResult settles a call with what the tool answered.
func (c *conn) toolResult(f *toolResultFrame) error {
	success := f.Success == nil || *f.Success
	message := ""
	if f.Error != nil {
		message = *f.Error
	}
	return c.settle(f.ID, registry.NewResult(success, f.Output, message))
}

// toolError settles a call with a failure of the tool. The text is the output too, so that a model can read why.
func (c *conn) toolError(f *toolErrorFrame) error {
	message := "The tool failed and did not say why."
	if f.Error != nil && *f.Error != "" {
		message = *f.Error
	}
	return c.settle(f.ID, registry.NewResult(false, nil, message))
}

// settle acknowledges every answer, also one nobody waits for, so that the device stops repeating it.
func (c *conn) settle(id string, r registry.Result) error {
	open := c.local.Settle(id, r)
	if open {
		c.bucket.refund(answerRefund, c.server.cfg.FrameBurst)
	}
	return c.send(resultAcknowledgedFrame(id, !open))
}
