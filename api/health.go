package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

// readyTimeout bounds the readiness check. Load balancers give up after a few seconds.
const readyTimeout = 2 * time.Second

// health answers while the process serves requests.
func (h *handler) health(c *gin.Context, _ params) error {
	return h.writeStatus(c, wire.Health{Status: "ok", Pod: h.Pod, Version: h.Version})
}

// ready answers whether new traffic should come to this pod. If it should not, calls are still served.
func (h *handler) ready(c *gin.Context, _ params) error {
	if h.isDraining() {
		return draining()
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := h.Ready(ctx); err != nil {
		return notReady(err)
	}
	return h.writeStatus(c, wire.Ready{Status: "ready", Warnings: h.Warnings()})
}

// notReady returns why a pod cannot serve, without details that clients may not see.
func notReady(err error) error {
	if e := (*registry.Error)(nil); errors.As(err, &e) && e.Code == registry.CodeStoreUnavailable {
		return e
	}
	return registry.StoreUnavailable("readiness", err) // a probe must get 503 for any reason
}

func (h *handler) writeStatus(c *gin.Context, status any) error {
	c.Header("Cache-Control", "no-store")
	return h.writeJSON(c, http.StatusOK, status)
}

// drainingRetry is when a rejected client should retry. Another pod answers by then.
const drainingRetry = 2 * time.Second

// isDraining reports whether the pod is draining. New traffic should go elsewhere.
func (h *handler) isDraining() bool { return h.Draining.Err() != nil }

// untilDraining returns a context that ends with ctx or when the pod begins to drain. Its caller must call stop.
func (h *handler) untilDraining(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(h.Draining, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// draining returns the error for requests that another pod should serve.
func draining() *registry.Error {
	return &registry.Error{
		Code: registry.CodeDraining, Message: "This pod is stopping. Ask another.", RetryAfter: drainingRetry,
	}
}

// leavingWriter closes the connection of each answer that begins while the pod drains, even if its request came before.
// If such a connection were reused while the pod closes it, the next request would be lost.
type leavingWriter struct {
	http.ResponseWriter
	h *handler
}

// WriteHeader implements http.ResponseWriter.
func (w *leavingWriter) WriteHeader(status int) {
	if w.h.isDraining() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher.
func (w *leavingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap supports http.ResponseController.
func (w *leavingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// limits returns the limits for the asker.
func (h *handler) limits(c *gin.Context, _ params) error {
	calls := h.Invoker.LimitsOf(caller(c))
	rates := make([]wire.RateLimit, len(calls.Rates))
	for i, r := range calls.Rates {
		rates[i] = wire.RateLimit{
			Rule: r.Rule, Per: string(r.Per), Tools: r.Tools, Calls: r.Calls, WindowSeconds: r.WindowSeconds,
		}
	}
	return h.respond(c, wire.Limits{
		BodyBytes: h.MaxBody, CallTimeoutMS: calls.Timeout.Milliseconds(),
		MaxCallTimeoutMS: calls.MaxTimeout.Milliseconds(), MaxWaitMS: maxWait.Milliseconds(),
		Streams: min(h.MaxCallerStreams, h.MaxStreams/2, h.MaxServed/2), Rates: rates, Device: h.DeviceLimits,
	})
}
