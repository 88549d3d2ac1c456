package api

import (
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
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
	return &byteBudget{
		limit: limit, free: semaphore.NewWeighted(limit), moving: make(map[*reservation]time.Time),
		deadline: (*http.ResponseController).SetWriteDeadline, partLimit: stallLimit,
		full: "This pod is sending as much as it may. Retry after a moment, or ask for shorter pages.",
	}
}

// writeParts sends a body one part at a time. A client that is too slow to receive a part is disconnected.
func (h *reservation) writeParts(w http.ResponseWriter, body []byte) {
	control := http.NewResponseController(w)
	for len(body) > 0 {
		n := min(len(body), smallResponse)
		if !h.nextPart(control) {
			return
		}
		if _, err := w.Write(body[:n]); err != nil {
			return // the client is gone, or was disconnected
		}
		body = body[n:]
	}
}
