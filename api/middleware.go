package api

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api/openai"
	"github.com/farhand/farhand/registry"
)

// Keys of a request's context that the middleware sets, and names of the gateway's own headers. The id of a call is
// stored in the header of its answer.
const (
	keyCaller = "farhand.caller"

	headerPod    = "X-Farhand-Pod"
	headerCallID = "X-Farhand-Call-Id"
)

const writeTimeout = 30 * time.Second

// identify sets the headers that name the pod, and that keep browsers from treating an answer as a web page.
func (h *handler) identify(c *gin.Context) {
	header := c.Writer.Header()
	header[headerPod], header["X-Content-Type-Options"] = h.podHeader, h.nosniff
}

// recover answers a panic with the fixed internal error, unless an answer has begun.
func (h *handler) recover(c *gin.Context) {
	defer func() {
		p := recover()
		switch {
		case p == nil:
			return
		case p == http.ErrAbortHandler: // net/http's way to drop a connection without an answer
			panic(p)
		}
		h.Log.Error("panic in a request", "method", c.Request.Method, "route", c.FullPath(),
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		c.Abort()
		if !c.Writer.Written() {
			// It is unknown how far a call had come.
			h.fail(c, registry.Errorf(registry.CodeInternal, "panic").With(registry.DispatchedUnknown))
		}
	}()
	c.Next()
}

// limitWriting bounds how long a slow reader can hold a request. Streams and long calls move the deadline, and a
// WebSocket removes it. Over HTTP/2, a passed deadline ends the request even if nothing is being written. So calls get
// the time of the longest call there, plus the longest wait for an approval.
func (h *handler) limitWriting(c *gin.Context) {
	limit := writeTimeout
	if c.Request.ProtoMajor > 1 && (isCall(c) || isMCP(c.Request.URL.Path)) {
		limit = h.MaxCallTimeout + agent.MaxApprovalTimeout + writeMargin
	}
	finishWritingBy(c, time.Now().Add(limit))
}

// answerInTime gives the answer of a call that began long ago the same time as any other. Answers of quick calls have
// enough time left: setting each deadline twice would cost 1 % of the pod's time (farhand-bench --only call-rate).
func answerInTime(c *gin.Context, began time.Time) {
	if time.Since(began) > writeTimeout/2 {
		finishWritingBy(c, time.Now().Add(writeTimeout))
	}
}

func finishWritingBy(c *gin.Context, deadline time.Time) {
	// A writer without deadlines (a test's recorder) has no slow reader.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(deadline)
}

// authenticate guards by path, not by route: later routes below /api, /v1 and /mcp, and unknown paths there, also need
// a credential. Other routes that need one check it themselves.
func (h *handler) authenticate(c *gin.Context) {
	path := c.Request.URL.Path
	if !strings.HasPrefix(path, prefixAPI) && !isOpenAI(path) && !isMCP(path) {
		return
	}
	if err := refuseQueryToken(c.Request); err != nil {
		h.fail(c, err)
		return
	}
	if err := h.identifyCaller(c); err != nil {
		h.fail(c, err)
		return
	}
	h.whileAlive(c)
}

// whileAlive serves a request while its identity is valid.
func (h *handler) whileAlive(c *gin.Context) {
	if h.Live == nil || !caller(c).MayEnd() {
		return
	}
	who, before := caller(c), c.Request.Context()
	ctx, release := h.Live.Bind(before, &who)
	defer release()
	if ctx != before {
		c.Request = c.Request.WithContext(ctx)
	}
	c.Next()
}

// endedIdentity returns why the identity of a request has ended since it was checked, or nil.
func endedIdentity(ctx context.Context) *registry.Error {
	var e *registry.Error
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &e) && e.Code == registry.CodeUnauthenticated {
		return e
	}
	return nil
}

// identifyCaller authenticates a request, by its token or its ticket.
func (h *handler) identifyCaller(c *gin.Context) error {
	token := auth.BearerHeader(c.Request)
	var caller auth.Identity
	var err error
	if ticket := ticketOf(c.Request); ticket != "" && h.States != nil {
		token = ticket
		caller, err = h.takeTicket(c.Request.Context(), ticket, c.Request.URL.Path)
	} else {
		caller, err = h.Auth.Authenticate(c.Request.Context(), c.Request, token)
	}
	if err != nil {
		if errors.Is(err, registry.CodeUnauthenticated) {
			h.challenge(c, invalidToken)
		}
		return h.Refusals.Token(c.Request, token, err)
	}
	caller.Source = h.Sources.Network(c.Request)
	c.Set(keyCaller, caller)
	return nil
}

// caller returns the identity of a request. Routes with access everybody must not use it.
func caller(c *gin.Context) auth.Identity { return c.MustGet(keyCaller).(auth.Identity) }

// CORS: headers and methods that scripts of an allowed web origin may send and read.
const (
	corsMethods = "GET, HEAD, POST, PUT, DELETE"
	corsHeaders = "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, " + headerRequest +
		", " + openai.HeaderSession
	corsExposed = headerPod + ", " + headerRequest + ", " + headerCallID +
		", ETag, Location, Retry-After, Idempotent-Replayed, " + openai.HeaderRetry
	corsExposedMCP = "WWW-Authenticate, Mcp-Session-Id" // in addition, at the MCP endpoint
	corsMaxAge     = "600"                              // seconds that a browser may cache the answer to a preflight
)

// checkOrigin rejects foreign web pages, except at the probes and the public assets of the pages, which reveal nothing.
// It lets scripts of allowed pages read the answers (CORS). It allows no cookies, because there are none.
func (h *handler) checkOrigin(c *gin.Context) {
	path := c.Request.URL.Path
	if path == pathHealth || path == pathReady {
		return
	}
	if strings.HasPrefix(path, prefixAssets) { // the device page's canvas loads its own, and has an opaque origin
		if err := h.Origins.CheckHost(c.Request); err != nil {
			h.fail(c, h.Refusals.Origin(c.Request, err))
		}
		return
	}
	c.Writer.Header().Add("Vary", "Origin")
	check := h.Origins.Check
	if isMCP(path) {
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
	if isMCP(path) {
		exposed += ", " + corsExposedMCP
	}
	c.Header("Access-Control-Expose-Headers", exposed)
	if c.Request.Method == http.MethodOptions && c.GetHeader("Access-Control-Request-Method") != "" {
		c.Header("Access-Control-Allow-Methods", corsMethods)
		c.Header("Access-Control-Allow-Headers", allowedHeaders(path))
		c.Header("Access-Control-Max-Age", corsMaxAge)
		c.AbortWithStatus(http.StatusNoContent)
	}
}

// allowedHeaders returns the headers that a script may send. OpenAI's client library sends headers of its own, which
// are ignored. MCP clients repeat arguments in headers named after them. So both endpoints allow any header. The
// asterisk covers all but Authorization.
func allowedHeaders(path string) string {
	if isOpenAI(path) || isMCP(path) {
		return corsHeaders + ", *"
	}
	return corsHeaders
}

// headerRequest carries the id of a request, which finds its lines in the logs of all pods and services involved.
const headerRequest = "X-Request-Id"

// maxRequestID is the maximum length of a caller's id for a request, in bytes.
const maxRequestID = 128

// nameRequest echoes the request's id in the answer. A caller or a load balancer may set it. Otherwise a call's request
// has the id of the call, and any other request gets a new id.
func (h *handler) nameRequest(c *gin.Context) {
	header := c.Writer.Header()
	if given := c.Request.Header[headerRequest]; len(given) == 1 && plainID(given[0]) {
		header[headerRequest] = given
		return
	}
	if call := header[headerCallID]; call != nil {
		header[headerRequest] = call
		return
	}
	header[headerRequest] = []string{newRequestID()}
}

// idCharacters are safe in every log.
const idCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+/="

func plainID(id string) bool {
	return id != "" && len(id) <= maxRequestID && strings.Trim(id, idCharacters) == ""
}

// newRequestID returns a unique id. It is not secret.
func newRequestID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

func requestID(c *gin.Context) string { return c.Writer.Header().Get(headerRequest) }
