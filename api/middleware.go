package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
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
