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
	// Receive stores an uploaded file, once.
	Receive(ctx context.Context, secret, mimeType string, size int64, body io.Reader) error

	// Read returns a file that was uploaded. The caller closes the reader.
	Read(ctx context.Context, secret string) (registry.Blob, io.ReadCloser, error)
}

const (
	maxTransfers = 32       // files that one pod sends and receives at once
	transferRate = 64 << 10 // bytes a second that a transfer must have
	transferSlow = 30 * time.Second
)

// fileRoutes are the routes of files. The secret in the path is the credential.
func (h *handler) fileRoutes() []route {
	return []route{
		{http.MethodPut, registry.PathUpload + ":slot", everybody, nil, h.uploadFile},
		{http.MethodGet, registry.PathBlob + ":id", everybody, nil, h.readFile},
	}
}

// errTransfers refuses a transfer that is one too many.
var errTransfers = registry.Errorf(registry.CodeBusy, "This pod moves as many files as it may. Retry after a moment.")

// transfer runs a transfer of so many bytes, unless too many run.
func (h *handler) transfer(c *gin.Context, size int64, run func(ctx context.Context) error) error {
	select {
	case h.transfers <- struct{}{}:
		defer func() { <-h.transfers }()
	default:
		return errTransfers
	}
	limit := transferSlow + time.Duration(size/transferRate)*time.Second
	ctx, cancel := context.WithTimeout(c.Request.Context(), limit)
	defer cancel()
	end := time.Now().Add(limit)
	_ = http.NewResponseController(c.Writer).SetReadDeadline(end) // fails only where there are no connections
	finishWritingBy(c, end.Add(writeTimeout))
	return run(ctx)
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
	return h.transfer(c, size, func(ctx context.Context) error {
		err := h.Files.Receive(ctx, secret, c.Request.Header.Get("Content-Type"), size, c.Request.Body)
		if err == nil {
			c.Status(http.StatusNoContent)
		}
		return err
	})
}

// readFile sends a file. It comes from a device, so a browser may show it only if it is an image or a sound, and run
// nothing in it.
func (h *handler) readFile(c *gin.Context, _ params) error {
	secret := c.Param("id")
	if !registry.ValidBlobSecret(secret) {
		return registry.ErrNoBlob
	}
	b, file, err := h.Files.Read(c.Request.Context(), secret) // which lasts as long as the file is read
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	header := c.Writer.Header()
	header.Set("Content-Type", shownType(b.MIMEType))
	header.Set("Content-Length", strconv.FormatInt(b.Size, 10))
	header.Set("Content-Disposition", disposition(b))
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cache-Control", "private, no-store")
	if c.Request.Method == http.MethodHead {
		c.Status(http.StatusOK)
		return nil
	}
	return h.transfer(c, b.Size, func(context.Context) error {
		c.Status(http.StatusOK)
		_, _ = io.Copy(c.Writer, file) // the client is gone if this fails, or sees that bytes are missing
		return nil
	})
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
