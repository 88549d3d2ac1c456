package api

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

// problemKind is what every problem of one code has in common.
type problemKind struct {
	status int
	title  string
}

// problemKinds is the one table from code to HTTP status. A code that is not in it is internal to the gateway. It is
// never changed.
var problemKinds = map[registry.Code]problemKind{
	registry.CodeInvalidRequest:   {http.StatusBadRequest, "Invalid request"},
	registry.CodeUnauthenticated:  {http.StatusUnauthorized, "Unauthenticated"},
	registry.CodeForbidden:        {http.StatusForbidden, "Forbidden"},
	registry.CodePolicyDenied:     {http.StatusForbidden, "Denied by policy"},
	registry.CodeHookCancelled:    {http.StatusForbidden, "Stopped by a hook"},
	registry.CodeApprovalDenied:   {http.StatusForbidden, "Approval denied"},
	registry.CodeToolNotFound:     {http.StatusNotFound, "Tool not found"},
	registry.CodeSessionNotFound:  {http.StatusNotFound, "Session not found"},
	registry.CodeCallNotFound:     {http.StatusNotFound, "Call not found"},
	registry.CodeNotFound:         {http.StatusNotFound, "Not found"},
	registry.CodeMethodNotAllowed: {http.StatusMethodNotAllowed, "Method not allowed"},
	registry.CodeNotConnected:     {http.StatusConflict, "Device not connected"},
	registry.CodeAmbiguousTarget:  {http.StatusConflict, "Ambiguous target"},
	registry.CodeIdempotency:      {http.StatusConflict, "Idempotency key already used"},
	registry.CodeCancelled:        {http.StatusConflict, "Cancelled"},
	registry.CodePayloadTooLarge:  {http.StatusRequestEntityTooLarge, "Payload too large"},
	registry.CodeUnsupportedMedia: {http.StatusUnsupportedMediaType, "Unsupported media type"},
	registry.CodeInvalidArguments: {http.StatusUnprocessableEntity, "Invalid arguments"},
	registry.CodeRateLimited:      {http.StatusTooManyRequests, "Rate limited"},
	registry.CodeBusy:             {http.StatusTooManyRequests, "Busy"},
	registry.CodeInternal:         {http.StatusInternalServerError, "Internal error"},
	registry.CodeConnectionLost:   {http.StatusBadGateway, "Connection lost"},
	registry.CodeLost:             {http.StatusBadGateway, "Call lost"},
	registry.CodeInvalidResult:    {http.StatusBadGateway, "Invalid result"},
	registry.CodeStoreUnavailable: {http.StatusServiceUnavailable, "Store unavailable"},
	registry.CodeDraining:         {http.StatusServiceUnavailable, "Draining"},
	registry.CodeTimeout:          {http.StatusGatewayTimeout, "Timeout"},
}

const (
	problemType = "urn:farhand:problem:" // the code follows

	// internalDetail is all a client learns about a failure of the gateway's own; the log has the rest.
	internalDetail = "Something went wrong inside the gateway; the details are in its log."
)

// problem is an error as clients see it: RFC 9457 with members of ours.
type problem struct {
	Type       string               `json:"type"`
	Title      string               `json:"title"`
	Status     int                  `json:"status"`
	Detail     string               `json:"detail"`
	Code       registry.Code        `json:"code"`
	CallID     string               `json:"call_id,omitempty"`
	Dispatched registry.Dispatched  `json:"dispatched,omitempty"` // calls only, as is retryable
	Retryable  *bool                `json:"retryable,omitempty"`
	Errors     []registry.Violation `json:"errors,omitempty"`
	Candidates []registry.Candidate `json:"candidates,omitempty"`
}

// fail ends a request that is not a call with the problem err stands for.
func (h *handler) fail(c *gin.Context, err error) {
	e := *registry.AsError(err)
	e.CallID, e.Dispatched = "", ""
	h.writeProblem(c, &e)
}

// failCall ends a call with the problem err stands for. An error that does not say otherwise happened before the
// call was dispatched.
func (h *handler) failCall(c *gin.Context, err error) {
	e := registry.AsError(err)
	if e.Dispatched == "" {
		e = e.With(registry.DispatchedNo)
	}
	h.writeProblem(c, e)
}

// writeProblem is the one place where an error becomes a response. It also ends the chain of handlers.
func (h *handler) writeProblem(c *gin.Context, e *registry.Error) {
	p := problemOf(e)
	h.logCause(c, p.Code, e)
	header := c.Writer.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	if p.Code == registry.CodeUnauthenticated {
		header.Set("WWW-Authenticate", "Bearer")
	}
	if wait, ok := retryAfter(e); ok {
		header.Set("Retry-After", wait)
	}
	noteCall(c, e.CallID)
	body, err := json.Marshal(p) // cannot fail: strings and numbers only
	if err != nil {
		h.Log.Error("problem not encoded", "error", err)
	}
	c.Abort()
	c.Status(p.Status)
	_, _ = c.Writer.Write(body) // the client is gone if this fails
}

// logCause logs what a client is not told.
func (h *handler) logCause(c *gin.Context, code registry.Code, e *registry.Error) {
	level := slog.LevelWarn
	switch {
	case code == registry.CodeInternal:
		level = slog.LevelError
	case e.Cause == nil:
		return
	}
	h.Log.Log(c.Request.Context(), level, "request failed", "method", c.Request.Method, "route", c.FullPath(),
		"code", code, "call_id", e.CallID, "error", e)
}

func problemOf(e *registry.Error) problem {
	kind, known := problemKinds[e.Code]
	if !known || e.Code == registry.CodeInternal {
		kind, e = problemKinds[registry.CodeInternal], &registry.Error{
			Code: registry.CodeInternal, Message: internalDetail, CallID: e.CallID, Dispatched: e.Dispatched,
		}
	}
	p := problem{
		Type: problemType + string(e.Code), Title: kind.title, Status: kind.status, Detail: e.Message, Code: e.Code,
		CallID: e.CallID, Dispatched: e.Dispatched, Errors: e.Violations, Candidates: e.Candidates,
	}
	if e.Dispatched != "" {
		retryable := e.Retryable()
		p.Retryable = &retryable
	}
	return p
}

// retryAfter returns the value of the Retry-After header, in whole seconds, rounded up, at least one.
func retryAfter(e *registry.Error) (string, bool) {
	switch e.Code {
	case registry.CodeRateLimited, registry.CodeBusy, registry.CodeStoreUnavailable, registry.CodeDraining:
		seconds := max(int64(1), int64((e.RetryAfter+time.Second-1)/time.Second))
		return strconv.FormatInt(seconds, 10), true
	default:
		return "", false
	}
}

// noteCall names the call a response is about, to the client and in the log.
func noteCall(c *gin.Context, callID string) {
	if callID == "" {
		return
	}
	c.Set(keyCallID, callID)
	c.Header(headerCallID, callID)
}
