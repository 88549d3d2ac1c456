package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

const (
	// readyTimeout bounds the check of readiness; load balancers give up after a few seconds.
	readyTimeout = 2 * time.Second

	// drainingRetry is when a client that was turned away should ask again: another pod answers by then.
	drainingRetry = 2 * time.Second
)

// health answers as long as the process serves requests at all.
func (h *handler) health(c *gin.Context, _ params) {
	h.writeStatus(c, struct {
		Status  string `json:"status"`
		Pod     string `json:"pod"`
		Version string `json:"version"`
	}{"ok", h.Pod, h.Version})
}

// ready says whether new traffic should come here. Calls are still served while it says no.
func (h *handler) ready(c *gin.Context, _ params) {
	if h.Draining() {
		h.fail(c, draining())
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		h.fail(c, notReady(err))
		return
	}
	h.writeStatus(c, struct {
		Status string `json:"status"`
	}{"ready"})
}

func draining() *registry.Error {
	return &registry.Error{
		Code: registry.CodeDraining, Message: "This pod is stopping. Ask another.", RetryAfter: drainingRetry,
	}
}

// notReady returns why a pod cannot serve, as far as that is anybody's business.
func notReady(err error) error {
	if e := (*registry.Error)(nil); errors.As(err, &e) && e.Code == registry.CodeStoreUnavailable {
		return e
	}
	return registry.StoreUnavailable("readiness", err) // whatever it is, a probe must see 503
}

func (h *handler) writeStatus(c *gin.Context, status any) {
	c.Header("Cache-Control", "no-store")
	h.writeJSON(c, http.StatusOK, status)
}
