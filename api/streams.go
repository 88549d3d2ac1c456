package api

import (
	"context"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/internal/sse"
	"github.com/farhand/farhand/registry"
)

// serveStream begins an answer of server-sent events and has fill write it. The context of fill ends when the client
// leaves or the pod begins to stop.
func (h *handler) serveStream(c *gin.Context, fill func(context.Context, *sse.Stream) error) {
	s, err := sse.Open(c)
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
