package api

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// Files keeps files that are too large for a result. *blobs.Service is one.
type Files interface {
	// Find returns the slot, or the file, that a secret names.
	Find(ctx context.Context, secret string) (registry.Blob, error)

	// Receive stores the file of a slot, once.
	Receive(ctx context.Context, b registry.Blob, mimeType string, size int64, body io.Reader) error

	// Open returns the bytes of a file that was uploaded. The caller closes the reader.
	Open(ctx context.Context, b registry.Blob) (io.ReadCloser, error)
}

// fileRoutes are the routes of files. The secret in the path is the credential.
func (h *handler) fileRoutes() []route {
	return []route{
		{http.MethodPut, registry.PathUpload + ":slot", everybody, nil, h.uploadFile},
		{http.MethodGet, registry.PathBlob + ":id", everybody, nil, h.readFile},
	}
}

// uploadFile stores the file of a slot.
func (h *handler) uploadFile(c *gin.Context, _ params) error {
	secret, size := c.Param("slot"), c.Request.ContentLength
	switch {
	case !registry.ValidBlobSecret(secret):
		return registry.ErrNoBlob
	case size < 1:
		return registry.Errorf(registry.CodeInvalidRequest, "The header Content-Length is required, and not 0.")
	}
	b, err := h.Files.Find(c.Request.Context(), secret)
	if err != nil {
		return err
	}
	done, err := h.uploads.enter(b.Tenant, b.SessionID, h.Sources.Of(c.Request))
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := limitTransfer(c, size)
	defer cancel()
	control := http.NewResponseController(c.Writer)
	body := &pacedReader{c.Request.Body, pace{setDeadline: control.SetReadDeadline}}
	if err := h.Files.Receive(ctx, b, c.Request.Header.Get("Content-Type"), size, body); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// readFile sends a file. It comes from a device, so a browser may show it only if it is an image or a sound, and run
// nothing in it.
func (h *handler) readFile(c *gin.Context, _ params) error {
	secret := c.Param("id")
	if !registry.ValidBlobSecret(secret) {
		return registry.ErrNoBlob
	}
	b, err := h.Files.Find(c.Request.Context(), secret)
	switch {
	case err != nil:
		return err
	case b.State != registry.BlobFilled:
		return registry.ErrNoBlob
	case c.Request.Method == http.MethodHead:
		setFileHeaders(c.Writer.Header(), b)
		c.Status(http.StatusOK)
		return nil
	}
	done, err := h.downloads.enter(b.Tenant, b.Digest, h.Sources.Of(c.Request))
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := limitTransfer(c, b.Size)
	defer cancel()
	file, err := h.Files.Open(ctx, b)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	setFileHeaders(c.Writer.Header(), b) // not before: a refusal has headers of its own
	c.Status(http.StatusOK)
	control := http.NewResponseController(c.Writer)
	to := &pacedWriter{c.Writer, pace{setDeadline: control.SetWriteDeadline}}
	_, _ = io.Copy(to, file)                         // the client is gone if this fails, or sees that bytes are missing
	finishWritingBy(c, time.Now().Add(transferTime)) // what the server holds of it yet
	return nil
}

func setFileHeaders(header http.Header, b registry.Blob) {
	header.Set("Content-Type", shownType(b.MIMEType))
	header.Set("Content-Length", strconv.FormatInt(b.Size, 10))
	header.Set("Content-Disposition", disposition(b))
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cache-Control", "private, no-store")
}

// isShown reports whether a browser may show a type by itself.
func isShown(mimeType string) bool {
	switch mimeType {
	case "image/png", "image/jpeg", "image/gif", "image/webp",
		"audio/mpeg", "audio/ogg", "audio/wav", "audio/mp4", "audio/webm":
		return true
	default:
		return false
	}
}

func shownType(mimeType string) string {
	if isShown(mimeType) {
		return mimeType
	}
	return "application/octet-stream"
}

func disposition(b registry.Blob) string {
	kind := "attachment"
	if isShown(b.MIMEType) {
		kind = "inline"
	}
	if b.Name == "" {
		return kind
	}
	if with := mime.FormatMediaType(kind, map[string]string{"filename": b.Name}); with != "" {
		return with
	}
	return kind
}
