package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/registry"
)

// serveStream begins an answer of server-sent events and has fill write it. The context of fill ends when the client
// leaves or the pod begins to stop.
func (h *handler) serveStream(c *gin.Context, fill func(context.Context, *ssewriter.Stream) error) {
	s, err := ssewriter.Open(c)
	if err != nil || c.Request.Method == http.MethodHead {
		return
	}
	defer s.Close()
	ctx, stop := h.untilDraining(c.Request.Context())
	defer stop()
	if err := fill(ctx, s); err != nil && ctx.Err() == nil {
		h.Log.Debug("event stream cut off", "route", c.FullPath(), "error", err)
	}
}

// lastEventID returns the id of the last event that a client has seen, empty for a new client. A browser that
// reconnects sends the header beside the query string of its first request, so the header is newer.
func lastEventID(c *gin.Context, q params) (string, error) {
	id := c.GetHeader("Last-Event-ID")
	if id == "" {
		id = q.get("last_event_id")
	}
	if id == "" {
		return "", nil
	}
	return id, registry.CheckFeedID(id)
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	await(ctx, nil, d)
	return ctx.Err() == nil
}

// await waits until a channel is closed, atMost has passed, or ctx ends.
func await(ctx context.Context, closed <-chan struct{}, atMost time.Duration) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	case <-ctx.Done():
	}
}
