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

// Names of what the middleware keeps in a request's context, and of the headers of our own. The id of a call is kept in
// the header of its answer.
const (
	keyCaller = "farhand.caller"

	headerPod    = "X-Farhand-Pod"
	headerCallID = "X-Farhand-Call-Id"
)

// writeTimeout is how long a client may take to receive an answer.
const writeTimeout = 30 * time.Second

// identify says which pod answered, and that nothing in an answer is to be taken for a web page.
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
		case p == http.ErrAbortHandler: // the way to drop a connection without a word
			panic(p)
		}
		h.Log.Error("panic in a request", "method", c.Request.Method, "route", c.FullPath(),
			"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		c.Abort()
		if !c.Writer.Written() {
			// Nobody knows how far a call had come.
			h.fail(c, registry.Errorf(registry.CodeInternal, "panic").With(registry.DispatchedUnknown))
		}
	}()
	c.Next()
}

// limitWriting bounds how long a slow reader can hold a request. Streams and calls that take long move the deadline,
// and a socket drops it. Over HTTP/2 a deadline that passes ends the request, also if nothing is written: there the
// bound of a call is that of the longest call, which may wait for a person first.
func (h *handler) limitWriting(c *gin.Context) {
	limit := writeTimeout
	if c.Request.ProtoMajor > 1 && (isCall(c) || isMCP(c.Request.URL.Path)) {
		limit = h.MaxCallTimeout + agent.MaxApprovalTimeout + writeMargin
	}
	finishWritingBy(c, time.Now().Add(limit))
}

// answerInTime gives the answer of a call that began long ago the time of any other. The answers of quick calls have
// enough of it left: to set each deadline twice costs 1 % of the pod's time (farhand-bench --only call-rate).
func answerInTime(c *gin.Context, began time.Time) {
	if time.Since(began) > writeTimeout/2 {
		finishWritingBy(c, time.Now().Add(writeTimeout))
	}
}

func finishWritingBy(c *gin.Context, deadline time.Time) {
	// A writer without deadlines (a test's recorder) has no slow reader either.
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(deadline)
}

// authenticate guards by path, not by route: later routes below /api, /v1 and /mcp, and paths that do not exist there,
// need a credential too. Routes elsewhere that need one ask for it themselves.
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

// whileAlive serves a request as long as the identity that sent it lives.
func (h *handler) whileAlive(c *gin.Context) {
	if h.Live == nil || !caller(c).MayEnd() {
		return
	}
	who, before := caller(c), c.Request.Context()
	ctx, release := h.Live.Hold(before, &who)
	defer release()
	if ctx != before {
		c.Request = c.Request.WithContext(ctx)
	}
	c.Next()
}

// endedIdentity returns why the identity that sent a request has ended meanwhile, nil if it has not.
func endedIdentity(ctx context.Context) *registry.Error {
	var e *registry.Error
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &e) && e.Code == registry.CodeUnauthenticated {
		return e
	}
	return nil
}

// identifyCaller finds out who sent a request.
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
	caller.Source = h.Sources.Of(c.Request)
	c.Set(keyCaller, caller)
	return nil
}

// caller returns who asked. It is only for routes that are not for everybody.
func caller(c *gin.Context) auth.Identity { return c.MustGet(keyCaller).(auth.Identity) }

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

// headerRequest names a request, so that its lines in the logs of all that had to do with it can be found.
const headerRequest = "X-Request-Id"

// maxRequestID is how many bytes of a caller's name for a request are taken.
const maxRequestID = 128

// nameRequest echoes the request's id with the answer. A caller, or a load balancer, may give one; else one is made. A
// call that nobody named otherwise is named after itself.
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

// idCharacters are harmless in every log.
const idCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:+/="

// plainID reports whether a text is short and has no characters but idCharacters.
func plainID(id string) bool {
	return id != "" && len(id) <= maxRequestID && strings.Trim(id, idCharacters) == ""
}

// newRequestID returns a name that no other request has. It is no secret.
func newRequestID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], rand.Uint64())
	binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	return hex.EncodeToString(id[:])
}

// requestID returns the name of the request that is being answered.
func requestID(c *gin.Context) string { return c.Writer.Header().Get(headerRequest) }
