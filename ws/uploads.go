package ws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/registry"
)

// Uploads keeps files that are too large for a result. *blobs.Service is one.
type Uploads interface {
	// Reserve makes a slot for one file of a running call, whose caller waits for so long.
	Reserve(ctx context.Context, key registry.Key, call string, p registry.Part, left time.Duration,
	) (registry.UploadSlot, error)

	// Link returns a part that names a slot with the address where the file can be read. CodeInvalidResult says that
	// the part is wrong.
	Link(ctx context.Context, key registry.Key, call string, p registry.Part) (registry.Part, error)
}

// uploadRequest answers a device that wants to put a file somewhere, for a call that it runs.
func (c *conn) uploadRequest(ctx context.Context, f *uploadRequestFrame) error {
	part := registry.Part{Type: registry.PartFile, MIMEType: f.MIMEType, Size: f.Size}
	if f.Name != nil {
		part.Name = *f.Name
	}
	slot, err := c.reserve(ctx, f.ID, part)
	if err != nil {
		return c.send(uploadRefusedFrame(f.ID, registry.AsError(err)))
	}
	return c.send(uploadSlotFrame(f.ID, slot))
}

func (c *conn) reserve(ctx context.Context, call string, p registry.Part) (registry.UploadSlot, error) {
	if c.server.cfg.Uploads == nil {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeInvalidRequest,
			"This gateway keeps no files (FARHAND_BLOB_URL). Send at most %d bytes as data.", registry.MaxInlinePart)
	}
	left, running := c.local.Remaining(call)
	if !running {
		return registry.UploadSlot{}, registry.Errorf(registry.CodeCallNotFound, "You run no call with this id.")
	}
	return c.server.cfg.Uploads.Reserve(ctx, c.local.Session().Key, call, p, left)
}

// uploadedResult completes a call with an answer that names slots.
func (c *conn) uploadedResult(ctx context.Context, f *toolResultFrame) error {
	if c.server.cfg.Uploads == nil {
		return c.refuseResult(f.ID, 0, errors.New("url: this gateway keeps no files"))
	}
	for i, p := range f.result.Parts {
		if p.URL == "" {
			continue
		}
		linked, err := c.server.cfg.Uploads.Link(ctx, c.local.Session().Key, f.ID, p)
		if err != nil {
			return c.refuseResult(f.ID, i, err)
		}
		f.result.Parts[i] = linked
	}
	c.completeCall(f.ID, f.result)
	return nil
}

// refuseResult fails a call because one of the parts of its answer cannot be used.
func (c *conn) refuseResult(id string, part int, cause error) error {
	text := fmt.Sprintf("parts[%d]: %s", part, registryMessage(cause))
	c.local.Fail(id, registry.Errorf(registry.CodeInvalidResult,
		"The device's answer could not be understood: %s", text))
	return invalidMessage("%s", text)
}

// registryMessage returns what an error says to a device.
func registryMessage(err error) string {
	if e, ok := errors.AsType[*registry.Error](err); ok {
		return e.Message
	}
	return err.Error()
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
