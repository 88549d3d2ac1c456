package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/pairing"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// readyTimeout bounds the readiness check. Load balancers give up after a few seconds.
const readyTimeout = 2 * time.Second

// health answers while the process serves requests.
func (h *handler) health(c *gin.Context, _ *params) error {
	return h.writeUncached(c, http.StatusOK, wire.Health{Status: "ok", Pod: h.Pod, Version: h.Version})
}

// ready answers whether new traffic should come to this pod. If it should not, calls are still served.
func (h *handler) ready(c *gin.Context, _ *params) error {
	if h.isDraining() {
		return draining()
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	err := h.Ready(ctx)
	if e, ok := errors.AsType[*registry.Error](err); ok && e.Code == registry.CodeStoreUnavailable {
		return e
	} else if err != nil { // a probe must get 503 for any reason
		return registry.StoreUnavailable("readiness", err)
	}
	return h.writeUncached(c, http.StatusOK, wire.Ready{Status: "ready", Warnings: h.Warnings()})
}

const drainingRetry = 2 * time.Second

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
		Code: registry.CodeDraining, Message: "This pod is stopping. Retry at another pod.", RetryAfter: drainingRetry,
	}
}

// leavingWriter closes the connection of each answer that begins while the pod drains, even if its request came before.
// If such a connection were reused while the pod closes it, the next request would be lost.
type leavingWriter struct {
	http.ResponseWriter
	h *handler
}

func (w *leavingWriter) WriteHeader(status int) {
	if w.h.isDraining() {
		w.Header().Set("Connection", "close")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *leavingWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap supports http.ResponseController.
func (w *leavingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (h *handler) limits(c *gin.Context, _ *params) error {
	calls := h.Invoker.LimitsOf(caller(c))
	budgets, err := h.budgetsOf(c)
	if err != nil {
		return err
	}
	return h.respond(c, wire.Limits{
		BodyBytes: h.MaxBody, CallTimeoutMS: calls.Timeout.Milliseconds(),
		MaxCallTimeoutMS: calls.MaxTimeout.Milliseconds(), MaxWaitMS: maxWait.Milliseconds(),
		Streams: min(h.MaxCallerStreams, h.MaxStreams/2, h.MaxServed/2),
		Rates:   each(calls.Rates, rateLimitOf), Device: h.DeviceLimits,
		Budgets: budgets,
	})
}

// budgetsOf returns the budgets that apply to the caller.
func (h *handler) budgetsOf(c *gin.Context) (list []wire.BudgetState, err error) {
	if h.Budgets == nil {
		return nil, nil
	}
	found, err := h.Budgets.Of(storeContext(c), caller(c))
	for _, b := range found {
		list = append(list, wire.BudgetState{
			Per: b.Per, Limits: b.Limits, Spent: b.Spent, ResetIn: int64(b.Left / time.Second),
		})
	}
	return list, err
}

func rateLimitOf(r policy.LimitReport) wire.RateLimit {
	return wire.RateLimit{
		Rule: r.Rule, Per: string(r.Per), Tools: r.Tools, Calls: r.Calls, WindowSeconds: r.WindowSeconds,
	}
}

// me says who the caller is, and which parts of the gateway it can use.
func (h *handler) me(c *gin.Context, _ *params) error {
	who, mode := caller(c), pairing.ModeOff
	if h.Pairing != nil {
		mode = h.Pairing.Mode()
	}
	return h.writeUncached(c, http.StatusOK, wire.Me{
		Tenant: who.Tenant, UserID: who.User, Name: who.Name, Roles: who.RoleNames(), Chat: h.Agent != nil,
		Pairing: string(mode),
	})
}

// signIn says how people get a credential for the console.
func (h *handler) signIn(c *gin.Context, _ *params) error {
	var how wire.SignIn
	if h.SignIn != nil {
		var err error
		if how, err = h.SignIn(c.Request.Context()); err != nil {
			return err
		}
	}
	return h.writeUncached(c, http.StatusOK, how)
}

// Meter counts requests. Its method must not block, and must be safe for concurrent use.
type Meter interface {
	// Requested counts a request that has ended. route is one of Routes, or empty. method is the client's own text.
	// code is empty unless the gateway reported a failure. A WebSocket's request ends when the socket is open. traceID
	// is that of a recorded trace, or empty.
	Requested(method, route string, status int, code registry.Code, took time.Duration, traceID string)
}

// Route is one address of the API.
type Route struct{ Method, Path string }

// Routes returns all routes that any configuration can serve. GET routes also answer HEAD.
func Routes() []Route {
	h := &handler{Config: Config{Device: http.NotFoundHandler(), Metrics: http.NotFoundHandler()}}
	var all []Route
	for _, r := range h.routes() {
		all = append(all, Route{r.method, r.path})
	}
	return all
}

// Stats says how full the API of a pod is. Rejected requests are counted since the start.
type Stats struct {
	Streams, StreamsRefused int64 // open event streams and streamed turns
	Waiting, WaitingRefused int64 // requests that wait for the end of a call
	AnswersRefused          int64 // answers without enough bytes left
	BodiesRefused           int64 // request bodies without enough bytes left
}

// Stats returns how full the API is now.
func (h *Handler) Stats() Stats {
	streams, waiting := h.h.streams.pool.Stats(), h.h.waiting.pool.Stats()
	return Stats{
		Streams: streams.Held, StreamsRefused: streams.AllRefused(), Waiting: waiting.Held,
		WaitingRefused: waiting.AllRefused(), AnswersRefused: h.h.responses.refused.Load(),
		BodiesRefused: h.h.bodies.refused.Load(),
	}
}

// Pools returns how full each pool of the API is, by name.
func (h *Handler) Pools() map[string]share.Stats {
	p := h.h
	return map[string]share.Stats{
		"requests": p.served.pool.Stats(), "streams": p.streams.pool.Stats(),
		"waiting_requests": p.waiting.pool.Stats(), "exports": p.exports.pool.Stats(),
		"catching_up": p.catchingUp.pool.Stats(), "reading": p.reading.pool.Stats(),
		"answer_bytes": p.responses.pool.Stats(), "body_bytes": p.bodies.pool.Stats(),
		"uploads": p.uploads.files.pool.Stats(), "downloads": p.downloads.files.pool.Stats(),
		"erasures": p.erasing.Stats(),
	}
}

// metrics serves an operator's monitoring. It is for admins, because it shows the use of the gateway by all tenants.
func (h *handler) metrics(c *gin.Context, _ *params) error {
	h.Metrics.ServeHTTP(c.Writer, c.Request)
	return nil
}
