package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// readyTimeout bounds the check of readiness. Load balancers give up after a few seconds.
const readyTimeout = 2 * time.Second

// health answers as long as the process serves requests at all.
func (h *handler) health(c *gin.Context, _ params) error {
	return h.writeStatus(c, struct {
		Status  string `json:"status"`
		Pod     string `json:"pod"`
		Version string `json:"version"`
	}{"ok", h.Pod, h.Version})
}

// ready answers whether new traffic should come here. Calls are still served while it answers no.
func (h *handler) ready(c *gin.Context, _ params) error {
	if h.isDraining() {
		return draining()
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		return notReady(err)
	}
	return h.writeStatus(c, struct {
		Status   string   `json:"status"`
		Warnings []string `json:"warnings,omitempty"`
	}{"ready", h.Warnings()})
}

// notReady returns why a pod cannot serve, as far as clients may know.
func notReady(err error) error {
	if e := (*registry.Error)(nil); errors.As(err, &e) && e.Code == registry.CodeStoreUnavailable {
		return e
	}
	return registry.StoreUnavailable("readiness", err) // a probe must see 503, whatever the reason
}

func (h *handler) writeStatus(c *gin.Context, status any) error {
	c.Header("Cache-Control", "no-store")
	return h.writeJSON(c, http.StatusOK, status)
}
