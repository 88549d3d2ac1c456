package auth

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/farhand/farhand/registry"
)

type problemKind struct {
	status int
	title  string
}

// problemKinds maps codes to HTTP statuses, for every API. Other codes are internal to the gateway.
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
	registry.CodeNeedsForeground:  {http.StatusConflict, "App in the background"},
	registry.CodeAmbiguousTarget:  {http.StatusConflict, "Ambiguous target"},
	registry.CodeIdempotency:      {http.StatusConflict, "Idempotency key already used"},
	registry.CodeCancelled:        {http.StatusConflict, "Cancelled"},
	registry.CodePayloadTooLarge:  {http.StatusRequestEntityTooLarge, "Payload too large"},
	registry.CodeUnsupportedMedia: {http.StatusUnsupportedMediaType, "Unsupported media type"},
	registry.CodeInvalidArguments: {http.StatusUnprocessableEntity, "Invalid arguments"},
	registry.CodeRateLimited:      {http.StatusTooManyRequests, "Rate limited"},
	registry.CodeBudgetExceeded:   {http.StatusTooManyRequests, "Budget exceeded"},
	registry.CodeBusy:             {http.StatusTooManyRequests, "Busy"},
	registry.CodeInternal:         {http.StatusInternalServerError, "Internal error"},
	registry.CodeConnectionLost:   {http.StatusBadGateway, "Connection lost"},
	registry.CodeLost:             {http.StatusBadGateway, "Call lost"},
	registry.CodeInvalidResult:    {http.StatusBadGateway, "Invalid result"},
	registry.CodeProvider:         {http.StatusBadGateway, "Model provider failed"},
	registry.CodeAgent:            {http.StatusBadGateway, "Turn not finished"},
	registry.CodeStoreUnavailable: {http.StatusServiceUnavailable, "Store unavailable"},
	registry.CodeDraining:         {http.StatusServiceUnavailable, "Draining"},
	registry.CodeTimeout:          {http.StatusGatewayTimeout, "Timeout"},
}

const (
	problemType = "urn:farhand:problem:" // the code follows

	// internalDetail is the only detail that clients get about an internal error. The log has the rest.
	internalDetail = "Something went wrong inside the gateway; the details are in its log."
)

// Problem is an error as clients see it: RFC 9457 with Farhand's own members.
type Problem struct {
	Type   string        `json:"type"`
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Detail string        `json:"detail"` // what to do about it, for people
	Code   registry.Code `json:"code"`

	// In every failure of a request to call a tool, with `dispatched` and `retryable`.
	CallID string `json:"call_id,omitempty"`

	Dispatched registry.Dispatched `json:"dispatched,omitempty"`

	// The call was not dispatched and asking again may help.
	Retryable *bool `json:"retryable,omitempty"`

	// The trace of the request, if the gateway makes traces.
	TraceID string `json:"trace_id,omitempty" schema:"pattern=^[0-9a-f]{32}$"`

	// With `invalid_arguments`: the broken rules of the parameters schema.
	Errors []registry.Violation `json:"errors,omitempty"`

	// With `ambiguous_target`: sessions that could have been meant, at most 20.
	Candidates []registry.Candidate `json:"candidates,omitempty"`

	retryAfter time.Duration
}

// ProblemOf returns the problem that a client gets for an error. A code that is not for clients becomes internal.
func ProblemOf(e *registry.Error) Problem {
	kind, known := problemKinds[e.Code]
	code, detail := e.Code, e.Message
	if !known || e.Code == registry.CodeInternal {
		kind, code, detail = problemKinds[registry.CodeInternal], registry.CodeInternal, internalDetail
	}
	p := Problem{
		Type: problemType + string(code), Title: kind.title, Status: kind.status, Detail: detail, Code: code,
		CallID: e.CallID, Dispatched: e.Dispatched, Errors: e.Violations, Candidates: e.Candidates,
		retryAfter: e.RetryAfter,
	}
	if e.Dispatched != "" {
		p.Retryable = new(e.Retryable())
	}
	return p
}

// WriteProblem answers a request with a problem.
func WriteProblem(w http.ResponseWriter, p Problem) error {
	body, err := json.Marshal(p)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	p.SetHeaders(header)
	w.WriteHeader(p.Status)
	_, err = w.Write(body)
	return err
}

// SetHeaders sets the headers of a problem, in any response format. It keeps an existing WWW-Authenticate header.
func (p Problem) SetHeaders(header http.Header) {
	if p.Code == registry.CodeUnauthenticated && header.Get("WWW-Authenticate") == "" {
		header.Set("WWW-Authenticate", "Bearer")
	}
	switch p.Code {
	case registry.CodeProvider, registry.CodeNotConnected: // only if the wait is known
		if p.retryAfter <= 0 {
			break
		}
		fallthrough
	case registry.CodeRateLimited, registry.CodeBudgetExceeded, registry.CodeBusy, registry.CodeStoreUnavailable,
		registry.CodeDraining:
		header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(p.retryAfter.Seconds())))))
	}
}
