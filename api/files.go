package api

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Files stores files that are too large for a result. *blobs.Service implements it.
type Files interface {
	// Find returns the slot, or the file, that a secret names.
	Find(ctx context.Context, secret string) (registry.Blob, error)

	// Receive stores the file of a slot, once.
	Receive(ctx context.Context, b registry.Blob, mimeType string, size int64, body io.Reader) error

	// Offer creates a slot for a file that a caller sends to devices.
	Offer(ctx context.Context, by registry.Uploader, size int64, sha256, mimeType string) (registry.UploadSlot, error)

	// Open returns the bytes of an uploaded file. The caller closes the reader.
	Open(ctx context.Context, b registry.Blob) (io.ReadCloser, error)
}

// makeUpload creates a slot for a file that the caller names in arguments of its calls.
func (h *handler) makeUpload(c *gin.Context, _ *params) error {
	r, err := readAs(h, c, func(body []byte) (request[wire.UploadRequest], error) {
		return readStrict[wire.UploadRequest](body, map[string]string{"size": "a whole number of bytes"})
	})
	if err != nil {
		return err
	}
	who := caller(c)
	by := registry.Uploader{Tenant: who.Tenant, Key: who.Requester().Key()}
	slot, err := h.Files.Offer(storeContext(c), by, r.said.Size, r.said.SHA256, r.said.MIMEType)
	if err != nil {
		return err
	}
	return h.writeUncached(c, http.StatusCreated, wire.Upload{
		UploadID: slot.ID, URL: slot.URL, ExpiresAt: shownTime(time.Now().Add(slot.Expires)),
	})
}

// uploadFile receives the file of a slot. The secret in the path is the credential.
func (h *handler) uploadFile(c *gin.Context, _ *params) error {
	secret, size := c.Param("slot"), c.Request.ContentLength
	switch {
	case !registry.ValidBlobSecret(secret):
		return registry.ErrNoBlob
	case size < 1:
		return registry.Errorf(registry.CodeInvalidRequest, "The header Content-Length is required and must not be 0.")
	}
	b, err := h.Files.Find(c.Request.Context(), secret)
	if err != nil {
		return err
	}
	done, err := h.uploads.enter(fileOwner(b), h.Sources.Network(c.Request))
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

// readFile sends a file. Files come from devices, so browsers may show only images and sounds, and must not run
// anything in them.
func (h *handler) readFile(c *gin.Context, _ *params) error {
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
	done, err := h.downloads.enter(fileOwner(b), h.Sources.Network(c.Request))
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
	setFileHeaders(c.Writer.Header(), b) // set last, because a rejection has headers of its own
	c.Status(http.StatusOK)
	sendPaced(c, file)
	return nil
}

// sendPaced sends a file whose headers are set.
func sendPaced(c *gin.Context, file io.Reader) {
	control := http.NewResponseController(c.Writer)
	to := &pacedWriter{c.Writer, pace{setDeadline: control.SetWriteDeadline}}
	_, _ = io.Copy(to, file)                         // on failure the client is gone, or sees that bytes are missing
	finishWritingBy(c, time.Now().Add(transferTime)) // for the bytes still in the server's buffers
}

func setFileHeaders(header http.Header, b registry.Blob) {
	media, disposition := "application/octet-stream", "attachment"
	switch b.MIMEType {
	case "image/png", "image/jpeg", "image/gif", "image/webp", // browsers may display these themselves
		"audio/mpeg", "audio/ogg", "audio/wav", "audio/mp4", "audio/webm":
		media, disposition = b.MIMEType, "inline"
	}
	if b.Name != "" {
		named := mime.FormatMediaType(disposition, map[string]string{"filename": b.Name})
		disposition = cmp.Or(named, disposition)
	}
	header.Set("Content-Type", media)
	header.Set("Content-Length", strconv.FormatInt(b.Size, 10))
	header.Set("Content-Disposition", disposition)
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	header.Set("Cache-Control", "private, no-store")
}

const (
	maxTransfers = 32 // files that one pod sends at a time, and as many that it receives

	// transferPart is how many bytes of a file must move within transferTime: 64 KiB per second.
	transferPart = 640 << 10
	transferTime = 10 * time.Second

	// transferMargin is the time a transfer may take beyond that of its parts, because the bucket may also be slow.
	transferMargin = 30 * time.Second
)

// transfers bounds the files that this pod sends, or those that it receives: per tenant, per owner of the files, and
// per client address. Addresses are bounded because these requests have no identity: the URL itself is the
// secret. It is safe for concurrent use.
type transfers struct {
	files     *slots
	addresses *share.Pool
}

func newTransfers(what string) *transfers {
	return &transfers{newSlots(what+" of files", maxTransfers, 0), share.New(share.Bounds{Pod: maxTransfers})}
}

// fileOwner returns who shares the transfers of a file: its user, else its device, else its session, which may be that
// of one of many devices with a common credential. A file that a caller without a user uploads shares with no other:
// the caller may serve many.
func fileOwner(b registry.Blob) share.Owner {
	who := "session:" + b.SessionID
	if _, ofCaller := registry.UploaderOf(b.SessionID); ofCaller {
		who = "file:" + b.Digest
	}
	switch {
	case b.Owner.User != "":
		who = "user:" + b.Owner.User
	case b.Owner.Device != "":
		who = "device:" + b.Owner.Device
	}
	return share.Owner{Tenant: b.Tenant, Identity: who}
}

// enter counts a transfer in, and returns a function that counts it out.
func (t *transfers) enter(of share.Owner, source netip.Prefix) (done func(), err error) {
	place, err := t.addresses.Try(share.Owner{Tenant: source.String()}, 1)
	if err != nil {
		return nil, tooMany("This pod has reached its limit of file transfers for your network. Retry after a moment.")
	}
	release, err := t.files.enter(of)
	if err != nil {
		place.Release()
		return nil, err
	}
	return func() { release(); place.Release() }, nil
}

// limitTransfer bounds the total time of a transfer of size bytes.
func limitTransfer(c *gin.Context, size int64) (context.Context, context.CancelFunc) {
	limit := transferMargin + time.Duration(size/transferPart+1)*transferTime
	finishWritingBy(c, time.Now().Add(limit+writeTimeout))
	return context.WithTimeout(c.Request.Context(), limit)
}

// pace ends a transfer that is too slow: each part of transferPart bytes must move within transferTime. After that,
// reads or writes fail. The store's time between them does not count.
type pace struct {
	setDeadline func(time.Time) error
	moved       int           // bytes of this part
	spent       time.Duration // on this part
}

// move reads or writes some bytes of the transfer.
func (p *pace) move(b []byte, readOrWrite func([]byte) (int, error)) (int, error) {
	began := time.Now()
	_ = p.setDeadline(began.Add(transferTime - p.spent)) // fails only without a real connection
	n, err := readOrWrite(b)
	p.spent += time.Since(began)
	if p.moved += n; p.moved >= transferPart {
		p.moved, p.spent = 0, 0
	}
	return n, err
}

// pacedReader reads the body of an upload, bounded by pace.
type pacedReader struct {
	from io.Reader
	pace pace
}

func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.pace.move(b, r.from.Read)
	if err == io.EOF {
		// The server keeps reading, to detect that the client hangs up. A passed deadline would look the same.
		_ = r.pace.setDeadline(time.Time{})
	}
	return n, err
}

// pacedWriter writes a download, bounded by pace.
type pacedWriter struct {
	to   http.ResponseWriter
	pace pace
}

func (w *pacedWriter) Write(b []byte) (int, error) { return w.pace.move(b, w.to.Write) }
