package api

import (
	"net/http"
	"time"

	"github.com/farhand/farhand/internal/share"
)

const (
	// smallResponse is the length up to which an answer needs no reservation: the buffers of its connection take it.
	smallResponse = 64 << 10

	// pageBytes is about the longest page of a list. The page ends there, whatever its limit of rows. pageCost is what
	// it reserves while it is made.
	pageBytes = 1 << 20
	pageCost  = 12 << 20

	// logCost is what a part of a call's log reserves, recordCost the record of a call, and transcriptCost a
	// conversation.
	logCost        = 2 << 20
	recordCost     = 8 << 20
	transcriptCost = 12 << 20

	// stallLimit is how long a client may take to receive smallResponse bytes.
	stallLimit = 10 * time.Second
)

// newResponses returns the budget of answers that are being made or received.
func newResponses(limit int64) *byteBudget {
	r := newByteBudget(share.Bounds{Pod: limit, Identity: limit / 2}, (*http.ResponseController).SetWriteDeadline)
	r.partLimit = stallLimit
	r.full = "This pod is sending as much as it may, or as its share for this tenant is. " +
		"Retry after a moment, or ask for shorter pages."
	return r
}

// writeParts sends a body one part at a time. A client that is too slow to receive a part is disconnected. It reports
// false for that client, and for one that is gone.
func (h *reservation) writeParts(w http.ResponseWriter, body []byte) bool {
	control := http.NewResponseController(w)
	for len(body) > 0 {
		n := min(len(body), smallResponse)
		if !h.nextPart(control) {
			return false
		}
		if _, err := w.Write(body[:n]); err != nil {
			return false
		}
		body = body[n:]
	}
	return true
}
