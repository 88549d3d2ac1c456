package api

import (
	"context"
	"net/http"
	"time"

	"github.com/farhand/farhand/registry"
)

// drainingRetry is when a refused client should ask again. Another pod answers by then.
const drainingRetry = 2 * time.Second

// isDraining reports whether the pod is stopping. New traffic should go elsewhere.
func (h *handler) isDraining() bool { return h.Draining.Err() != nil }

// untilDraining returns a context that ends with ctx or when the pod begins to stop. Its caller must call stop.
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

// leavingWriter has an answer that begins while the pod stops close its connection, also if its request was there
// before: a connection that is used again while the pod closes it costs its request.
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

// Unwrap is for http.ResponseController.
func (w *leavingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
