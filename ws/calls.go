package ws

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
	"github.com/farhand/farhand/ws/internal/fields"
)

// Bounds of a progress report.
const (
	maxProgressMessage = 1 << 10  // bytes; the rest is dropped
	maxProgressChunk   = 64 << 10 // bytes
)

// Deliver implements routing.Conn.
func (c *conn) Deliver(call routing.DeviceCall) error {
	if call.Trace != "" && !c.continuesTraces() {
		call.Trace = ""
	}
	c.startMu.Lock()
	err := errOutboxNotOpen
	if !c.refusesNew && c.ending() == closeNone {
		err = c.pushCall(call)
	}
	c.startMu.Unlock()
	refused, isRefused := errors.AsType[*registry.Error](err)
	switch {
	case err == nil:
		return nil
	case isRefused:
		return refused
	case errors.Is(err, errFrameTooBig):
		return registry.Errorf(registry.CodePayloadTooLarge,
			"The arguments are too large: this gateway sends a device at most %d bytes.", c.server.cfg.MaxOutbound)
	case errors.Is(err, errOutboxFull):
		c.end(CloseSlow)
		return registry.Errorf(registry.CodeNotConnected,
			"The device does not read its messages and is being disconnected. Retry when it is back.")
	case errors.Is(err, errOutboxesFull):
		return registry.Errorf(registry.CodeRateLimited, "The send queues of this pod, or of this tenant on it, are "+
			"full. Retry after a moment, with shorter arguments if possible.")
	default: // not started yet, or ending
		return registry.Errorf(registry.CodeNotConnected, "The device is not connected. Retry when it is back.")
	}
}

// pushCall queues the frame that starts a call. The error is of the outbox, or says why the call cannot start.
func (c *conn) pushCall(call routing.DeviceCall) error {
	switch {
	case c.mcp != nil:
		err := c.out.push(c.mcp.Call(call.ID, call.Tool, call.Args.Raw()))
		if err != nil {
			c.mcp.NotSent(call.ID)
		}
		return err
	case c.node != nil:
		frame, err := c.callNode(call)
		if err == nil {
			err = c.out.push(frame)
		}
		if err != nil {
			c.node.End(call.ID)
		}
		return err
	default:
		return c.out.push(toolCallRequestFrame(call))
	}
}

// continuesTraces reports whether the device declared the capability traceparent.
func (c *conn) continuesTraces() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wantsTrace
}

// Cancel implements routing.Conn. Cancellation is best effort: if the outbox is full, the device finishes its work in
// vain.
func (c *conn) Cancel(callID, reason string) {
	c.mu.Lock()
	wanted := c.wantsCancel
	c.mu.Unlock()
	switch {
	case !wanted:
	case c.mcp != nil:
		if frame := c.mcp.Cancel(callID, reason); frame != nil {
			_ = c.out.push(frame)
		}
	case c.node != nil:
		if frame := c.node.Cancel(callID); frame != nil {
			_ = c.out.push(frame)
		}
	default:
		_ = c.out.push(toolCallCancelFrame(callID, reason))
	}
}

// Expired implements routing.Expirer. It cancels the call at an MCP device or a node. Frames of the device protocol
// already contain the call's timeout.
func (c *conn) Expired(callID string) {
	if c.mcp != nil || c.node != nil {
		c.Cancel(callID, "the call timed out")
	}
}

// callProgress records a call's progress or a chunk of its output. A chunk that is not a string is kept as its JSON,
// like an output.
func (c *conn) callProgress(f *toolProgressFrame) error {
	chunk := registry.NewResult(true, f.Chunk, "").Output
	if len(chunk) > maxProgressChunk {
		return fields.Invalid("chunk: at most %d bytes are allowed", maxProgressChunk)
	}
	message := fields.Truncate(or(f.Message, ""), maxProgressMessage)
	if err := c.local.Progress(f.ID, number(f.Progress), number(f.Total), message, chunk); err != nil {
		return fields.NewError(codeProgressRefused, registry.AsError(err).Message)
	}
	return nil
}

// number returns a number that the decoder has checked, nil if it is absent.
func number(raw json.RawMessage) *float64 {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return nil
	}
	return &n
}

func (c *conn) toolResult(f *toolResultFrame) error {
	if c.node != nil {
		return c.nodeResult(f)
	}
	for _, p := range f.result.Parts {
		if p.URL != "" {
			return withStoreTimeout(c.uploadedResult, f)
		}
	}
	c.completeCall(f.ID, f.result)
	return nil
}

// toolError completes a call as failed by the tool. The error text is also the output, so that a model can read it.
func (c *conn) toolError(f *toolErrorFrame) {
	message := cmp.Or(f.Error, "The tool failed and did not say why.")
	c.completeCall(f.ID, registry.NewResult(false, registry.JSON{}, message))
}

// answerFrames is how many frames an answer to an open call refunds: itself and the acceptance before it.
const answerFrames = 2

// completeCall completes a call and acknowledges the answer. It also acknowledges answers to calls that are not open,
// so that the device stops repeating them. The acknowledgement may come from another goroutine, and after the
// connection has ended.
func (c *conn) completeCall(id string, r registry.Result) {
	c.unacknowledged.Add(1)
	units := answerFrames*(1+unitsPerRead) + float64(c.messageBytes)/bytesPerUnit + c.messageUnits + unitsPerStray
	c.budget.spend(unitsPerStray) // refunded if the call is open
	c.local.Complete(id, r, func(ignored bool) {
		defer c.unacknowledged.Add(-1)
		if !ignored {
			c.budget.refund(answerFrames, units)
		}
		if err := c.acknowledge(id, ignored); err != nil {
			c.fail(err)
		}
	})
}

// failAnswer fails a call whose answer could not be understood. The caller need not wait longer, because the device
// does not answer again. It does nothing without an id.
func (c *conn) failAnswer(id string, bad *fields.Error) {
	if id != "" {
		c.budget.spend(unitsPerStray)
		c.local.Fail(id, registry.Errorf(registry.CodeInvalidResult,
			"The device's answer could not be understood: %s", bad.Message))
		switch {
		case c.mcp != nil:
			c.mcp.End(id)
		case c.node != nil:
			c.node.End(id)
		}
	}
}

// Uploads stores files that are too large for a result. *blobs.Service implements it.
type Uploads interface {
	// Reserve creates an upload slot for one file of a running call, in the quotas of its session and of an owner. left
	// is how long the caller still waits.
	Reserve(
		ctx context.Context, key registry.Key, owner registry.BlobOwner, call string, p registry.Part,
		left time.Duration,
	) (registry.UploadSlot, error)

	// Link returns a part that names a slot, with the URL to read the file from. CodeInvalidResult means that the part
	// is invalid.
	Link(ctx context.Context, key registry.Key, call string, p registry.Part) (registry.Part, error)
}

// uploadRequest answers a device that asks for an upload slot for a call it runs.
func (c *conn) uploadRequest(ctx context.Context, f *uploadRequestFrame) error {
	part := registry.Part{Type: registry.PartFile, MIMEType: f.MIMEType, Size: f.Size, Name: f.Name}
	slot, err := c.reserve(ctx, f.ID, part)
	if err != nil {
		return c.send(uploadRefusedFrame(f.ID, registry.AsError(err)))
	}
	return c.send(uploadSlotFrame(f.ID, slot))
}

func (c *conn) reserve(ctx context.Context, call string, p registry.Part) (registry.UploadSlot, error) {
	if c.server.cfg.Uploads == nil {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeInvalidRequest,
			"This gateway stores no files (FARHAND_BLOB_URL). Send at most %d bytes as data.", registry.MaxInlinePart)
	}
	left, running := c.local.Remaining(call)
	if !running {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeCallNotFound, "This session runs no call with "+
			"this id.")
	}
	return c.server.cfg.Uploads.Reserve(ctx, c.local.Session().Key, c.who.FileOwner(), call, p, left)
}

func (c *conn) uploadedResult(ctx context.Context, f *toolResultFrame) error {
	if c.server.cfg.Uploads == nil {
		return c.refuseResult(f.ID, "parts[0]: url: this gateway stores no files")
	}
	for i, p := range f.result.Parts {
		if p.URL == "" {
			continue
		}
		linked, err := c.server.cfg.Uploads.Link(ctx, c.local.Session().Key, f.ID, p)
		if err != nil {
			text := err.Error()
			if e, ok := errors.AsType[*registry.Error](err); ok {
				text = e.Message
			}
			return c.refuseResult(f.ID, fmt.Sprintf("parts[%d]: %s", i, text))
		}
		f.result.Parts[i] = linked
	}
	c.completeCall(f.ID, f.result)
	return nil
}

// refuseResult fails a call because a part of its answer cannot be used.
func (c *conn) refuseResult(id, why string) error {
	c.local.Fail(id, registry.Errorf(registry.CodeInvalidResult,
		"The device's answer could not be understood: %s", why))
	return fields.Invalid("%s", why)
}

func uploadSlotFrame(id string, s registry.UploadSlot) []byte {
	return encode(struct {
		Type      string `json:"type"`
		ID        string `json:"id"`
		URL       string `json:"url"`
		Method    string `json:"method"`
		Size      int64  `json:"size"`
		ExpiresMS int64  `json:"expires_ms"`
	}{typeUploadSlot, id, s.URL, "PUT", s.Size, s.Expires.Milliseconds()})
}

func uploadRefusedFrame(id string, e *registry.Error) []byte {
	return encode(struct {
		Type  string        `json:"type"`
		ID    string        `json:"id"`
		Error string        `json:"error"`
		Code  registry.Code `json:"code"`
	}{typeUploadSlot, id, e.Message, e.Code})
}
