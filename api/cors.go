package api

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/openai"
)

// What scripts of an allowed web origin may send and read.
const (
	corsMethods = "GET, HEAD, POST, PUT, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, " + headerRequest +
		", " + openai.HeaderSession
	corsExposed = headerPod + ", " + headerRequest + ", " + headerCallID +
		", ETag, Location, Retry-After, Idempotent-Replayed, " + openai.HeaderRetry
	corsExposedMCP = "WWW-Authenticate, Mcp-Session-Id" // beside those, at the MCP endpoint
	corsMaxAge     = "600"                              // seconds a browser may remember the answer to a preflight
)

// checkOrigin refuses foreign web pages, except at the probes, which reveal nothing. It lets the scripts of allowed
// pages read the answers (CORS). It allows no credentials in cookies, because there are none.
func (h *handler) checkOrigin(c *gin.Context) {
	if path := c.Request.URL.Path; path == pathHealth || path == pathReady {
		return
	}
	c.Writer.Header().Add("Vary", "Origin")
	check := h.Origins.Check
	if isMCP(c.Request.URL.Path) {
		check = h.Origins.CheckNamed
	}
	if err := check(c.Request); err != nil {
		h.fail(c, h.Refusals.Origin(c.Request, err))
		return
	}
	origin := c.GetHeader("Origin")
	if origin == "" {
		return
	}
	c.Header("Access-Control-Allow-Origin", origin)
	exposed := corsExposed
	if isMCP(c.Request.URL.Path) {
		exposed += ", " + corsExposedMCP
	}
	c.Header("Access-Control-Expose-Headers", exposed)
	if c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") != "" {
		c.Header("Access-Control-Allow-Methods", corsMethods)
		c.Header("Access-Control-Allow-Headers", allowedHeaders(c.Request.URL.Path))
		c.Header("Access-Control-Max-Age", corsMaxAge)
		c.AbortWithStatus(http.StatusNoContent)
	}
}

// allowedHeaders returns the headers that a script may send. OpenAI's client library sends headers of its own, which
// are ignored, and clients of the MCP repeat arguments in headers named after them, so both endpoints allow any. The
// asterisk covers all but Authorization.
func allowedHeaders(path string) string {
	if isOpenAI(path) || isMCP(path) {
		return corsHeaders + ", *"
	}
	return corsHeaders
}
