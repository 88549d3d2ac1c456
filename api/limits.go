package api

import (
	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// limitsAnswer says what the gateway takes of the asker, and of devices.
type limitsAnswer struct {
	BodyBytes        int64                 `json:"body_bytes"` // of a request
	CallTimeoutMS    int64                 `json:"call_timeout_ms"`
	MaxCallTimeoutMS int64                 `json:"max_call_timeout_ms"`
	MaxWaitMS        int64                 `json:"max_wait_ms"`
	Streams          int                   `json:"streams"` // open at once on this pod, of the asker
	Rates            []policy.LimitReport  `json:"rates"`
	Device           registry.DeviceLimits `json:"device"`
}

// limits shows the limits that hold for the asker.
func (h *handler) limits(c *gin.Context, _ params) error {
	calls := h.Invoker.LimitsOf(caller(c))
	return h.respond(c, limitsAnswer{
		BodyBytes: h.MaxBody, CallTimeoutMS: calls.Timeout.Milliseconds(),
		MaxCallTimeoutMS: calls.MaxTimeout.Milliseconds(), MaxWaitMS: maxWait.Milliseconds(),
		Streams: min(h.MaxCallerStreams, h.MaxStreams/2, h.MaxServed/2), Rates: calls.Rates, Device: h.DeviceLimits,
	})
}
