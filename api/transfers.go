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
type transfers struct{ files, addresses *slots }

func newTransfers(what string) *transfers {
	return &transfers{newSlots(what+" of files", maxTransfers, 0), newSlots(what+" from your network", maxTransfers, 0)}
}

// enter counts a transfer in, and returns how to count it out. of is the link or the session that it belongs to.
func (t *transfers) enter(tenant, of string, source netip.Prefix) (done func(), err error) {
	leave, err := t.addresses.enter(share.Owner{Tenant: source.String()})
	if err != nil {
		return nil, err
	}
	release, err := t.files.enter(share.Owner{Tenant: tenant, Identity: of})
	if err != nil {
		leave()
		return nil, err
	}
	return func() { release(); leave() }, nil
}

// limitTransfer bounds a transfer of so many bytes, however it moves.
func limitTransfer(c *gin.Context, size int64) (context.Context, context.CancelFunc) {
	limit := transferMargin + time.Duration(size/transferPart+1)*transferTime
	finishWritingBy(c, time.Now().Add(limit+writeTimeout))
	return context.WithTimeout(c.Request.Context(), limit)
}

// pace ends a transfer that is too slow: the connection has transferTime for each part of transferPart bytes. Reads or
// writes fail after that.
type pace struct {
	setDeadline func(time.Time) error
	moved       int // bytes of this part
}

func newPace(setDeadline func(time.Time) error) *pace {
	p := &pace{setDeadline: setDeadline}
	p.begin()
	return p
}

func (p *pace) begin() {
	p.moved = 0
	_ = p.setDeadline(time.Now().Add(transferTime)) // fails only where there are no connections
}

func (p *pace) add(n int) {
	if p.moved += n; p.moved >= transferPart {
		p.begin()
	}
}

// pacedReader reads the body of an upload at its pace.
type pacedReader struct {
	from io.Reader
	pace *pace
}

func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.pace.add(n)
	return n, err
}

// pacedWriter writes a download at its pace.
type pacedWriter struct {
	to   http.ResponseWriter
	pace *pace
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	n, err := w.to.Write(b)
	w.pace.add(n)
	return n, err
}
