package api

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/internal/share"
)

const (
	maxTransfers = 32 // files that one pod sends at once, and as many that it receives

	// transferPart is how many bytes of a file must move within transferTime. That is 64 KiB a second.
	transferPart = 640 << 10
	transferTime = 10 * time.Second

	// transferMargin is what a transfer may take beyond the time of its parts: the bucket may be slow, too.
	transferMargin = 30 * time.Second
)

// transfers bounds the files that this pod sends, or those that it receives: those of a tenant, those of one link or
// session of it, and those that one address moves. Nobody who moves a file has shown who they are: its address is
// the secret. It is safe for concurrent use.
type transfers struct {
	files     *slots
	addresses *share.Pool
}

func newTransfers(what string) *transfers {
	return &transfers{newSlots(what+" of files", maxTransfers, 0), share.New(share.Bounds{Pod: maxTransfers})}
}

// enter counts a transfer in, and returns how to count it out. of is the link or the session that it belongs to.
func (t *transfers) enter(tenant, of string, source netip.Prefix) (done func(), err error) {
	place, err := t.addresses.Try(share.Owner{Tenant: source.String()}, 1)
	if err != nil {
		return nil, tooMany("This pod moves as many files to and from your network as it may. Retry after a moment.")
	}
	release, err := t.files.enter(share.Owner{Tenant: tenant, Identity: of})
	if err != nil {
		place.Release()
		return nil, err
	}
	return func() { release(); place.Release() }, nil
}

// limitTransfer bounds a transfer of so many bytes, however it moves.
func limitTransfer(c *gin.Context, size int64) (context.Context, context.CancelFunc) {
	limit := transferMargin + time.Duration(size/transferPart+1)*transferTime
	finishWritingBy(c, time.Now().Add(limit+writeTimeout))
	return context.WithTimeout(c.Request.Context(), limit)
}

// pace ends a transfer that is too slow: the connection has transferTime for each part of transferPart bytes. Reads or
// writes fail after that. What the store takes in between does not count.
type pace struct {
	setDeadline func(time.Time) error
	moved       int           // bytes of this part
	spent       time.Duration // on this part
}

// move reads or writes some bytes of the transfer.
func (p *pace) move(b []byte, readOrWrite func([]byte) (int, error)) (int, error) {
	began := time.Now()
	_ = p.setDeadline(began.Add(transferTime - p.spent)) // fails only where there are no connections
	n, err := readOrWrite(b)
	p.spent += time.Since(began)
	if p.moved += n; p.moved >= transferPart {
		p.moved, p.spent = 0, 0
	}
	return n, err
}

// pacedReader reads the body of an upload at its pace.
type pacedReader struct {
	from io.Reader
	pace pace
}

func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.pace.move(b, r.from.Read)
	if err == io.EOF {
		// The server goes on reading, to see whether the client hangs up: it must not take a deadline for that.
		_ = r.pace.setDeadline(time.Time{})
	}
	return n, err
}

// pacedWriter writes a download at its pace.
type pacedWriter struct {
	to   http.ResponseWriter
	pace pace
}

func (w *pacedWriter) Write(b []byte) (int, error) { return w.pace.move(b, w.to.Write) }
