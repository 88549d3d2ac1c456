package api

import (
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// sampledTraces limits how many traces the callers of a tenant may mark as sampled on this pod. Each mark asks the
// gateway to record a trace whatever its own sampler would decide. Traces beyond the limit get an id of the gateway's
// own, about which the sampler decides, and a link to the caller's.
var sampledTraces = auth.Limit{Rate: 10, Burst: 100}

func (h *handler) mayTrace(tenant string) bool { return h.sampled.Take(tenant, 1) }

// trace begins the span of a request. Requests without a valid credential have none, so strangers cannot cause spans.
func (h *handler) trace(c *gin.Context) {
	who, authenticated := c.Get(keyCaller)
	if !h.Tracer.On() || !authenticated {
		return
	}
	tenant := who.(auth.Identity).Tenant
	r := c.Request
	ctx, span := h.Tracer.Serve(r.Context(), trace.Server, methodOf(r)+" "+c.FullPath(), r.Header.Get("traceparent"),
		r.Header.Get("tracestate"), func() bool { return h.mayTrace(tenant) })
	c.Request = r.WithContext(ctx)
	if !span.Records() {
		return
	}
	c.Next()
	status := c.Writer.Status()
	span.Text(trace.HTTPMethod, methodOf(r)).Text(trace.HTTPRoute, c.FullPath()).Text(trace.Pod, h.Pod)
	span.Number(trace.HTTPStatus, int64(status)).Text(trace.Tenant, tenant)
	failure := ""
	if e, ok := c.Get(keyFailure); ok {
		failure = string(e.(*registry.Error).Code)
	}
	if status >= http.StatusInternalServerError && failure == "" {
		failure = strconv.Itoa(status)
	}
	if status < http.StatusInternalServerError { // by convention, an error of the client is none of the server's
		span.Text(trace.ErrorType, failure)
		failure = ""
	}
	span.End(failure)
}

// methodOf returns the method of a request, if it is one of HTTP's: a span's name is bounded.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions,
		http.MethodPatch:
		return r.Method
	default:
		return "_OTHER"
	}
}
