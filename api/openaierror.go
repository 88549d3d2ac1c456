package api

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/guard"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// openAIError is an error as OpenAI's API tells it, which its client libraries understand.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// openAIFailure is the whole body.
type openAIFailure struct {
	Error openAIError `json:"error"`
}

// Types of errors, for machines that look at nothing else.
const (
	openAIBadRequest = "invalid_request_error"
	openAILimited    = "rate_limit_error"
	openAIServer     = "server_error"
)

// openAICodes are the codes OpenAI has a name of its own for. Others go by ours.
var openAICodes = map[registry.Code]string{
	registry.CodeInvalidRequest:  "invalid_request_error",
	registry.CodeUnauthenticated: "invalid_api_key",
	registry.CodeRateLimited:     "rate_limit_exceeded",
}

// headerRetry tells clients of OpenAI's API whether to ask again by themselves, whatever they make of the status.
const headerRetry = "X-Should-Retry"

// finalFailure is an error after which the same request must not be sent again unasked: tools have run.
type finalFailure struct{ error }

// Unwrap returns the error.
func (f finalFailure) Unwrap() error { return f.error }

// isFinal reports whether a client should not ask again by itself: what has run would run twice, or nothing would come
// of it. A turn that was stopped by one of its limits would most likely be stopped again.
func isFinal(err error) bool {
	var final finalFailure
	if errors.As(err, &final) {
		return true
	}
	switch registry.AsError(err).Code {
	case registry.CodeAmbiguousTarget, registry.CodeTimeout, registry.CodeAgent:
		return true
	default:
		return false
	}
}

// openAIFault adds to an error what only OpenAI's format can say.
type openAIFault struct {
	param string // the field that is wrong
	code  string // empty: as openAICodes has it
	err   error
}

// Error implements error.
func (f *openAIFault) Error() string { return f.err.Error() }

// Unwrap returns what is wrong with the field.
func (f *openAIFault) Unwrap() error { return f.err }

// badParam says that a field of a completion's request is wrong.
func badParam(param, format string, args ...any) error {
	return &openAIFault{param: param, err: registry.Errorf(registry.CodeInvalidRequest, format, args...)}
}

// unknownModel says that there is no such model.
func unknownModel(name string) error {
	return &openAIFault{param: "model", code: "model_not_found", err: registry.Errorf(registry.CodeNotFound,
		"The model %.120q does not exist. GET /v1/models lists those that do.", name)}
}

// openAIErrorOf returns what a client of OpenAI's API is told of an error, and with which status.
func openAIErrorOf(err error) (int, openAIFailure) {
	p := guard.ProblemOf(registry.AsError(err))
	e := openAIError{Message: p.Detail, Type: openAIBadRequest, Code: string(p.Code)}
	switch {
	case p.Status == http.StatusTooManyRequests:
		e.Type = openAILimited
	case p.Status >= http.StatusInternalServerError:
		e.Type = openAIServer
	}
	if code := openAICodes[p.Code]; code != "" {
		e.Code = code
	}
	if len(p.Candidates) > 0 {
		ids := make([]string, len(p.Candidates))
		for i, c := range p.Candidates {
			ids[i] = c.SessionID
		}
		e.Message += " Sessions: " + strings.Join(ids, ", ") + "."
	}
	var fault *openAIFault
	if errors.As(err, &fault) {
		e.Param = &fault.param
		if fault.code != "" {
			e.Code = fault.code
		}
	}
	return p.Status, openAIFailure{e}
}

// completionError turns the failure of a turn into one that clients of OpenAI's API do the right thing about: they try
// again after 408, 409, 429 and 5xx. They must not when tools have run in the turn, and it would be in vain when the
// provider does not take the request at all.
func completionError(err error, reply chat.Reply) error {
	err = providerFault(err)
	if len(reply.Calls) > 0 {
		return finalFailure{err}
	}
	return err
}

// providerFault gives a failure of the provider the code OpenAI's clients know it by.
func providerFault(err error) error {
	var failed *provider.Error
	if !errors.As(err, &failed) {
		return err
	}
	told := *registry.AsError(err)
	switch failed.Kind {
	case provider.KindRequest:
		told.Code = registry.CodeInvalidRequest
		if failed.Param != "" {
			return &openAIFault{param: failed.Param, err: &told}
		}
	case provider.KindLimit:
		told.Code, told.RetryAfter = registry.CodeRateLimited, failed.RetryAfter
	default:
		return err
	}
	return &told
}

// isOpenAI reports whether a path belongs to the doors whose clients expect OpenAI's answers.
func isOpenAI(path string) bool { return strings.HasPrefix(path, prefixV1) }

// writeOpenAIError answers with an error in OpenAI's format.
func writeOpenAIError(c *gin.Context, err error) {
	status, failure := openAIErrorOf(err)
	body, encodeErr := encode(failure)
	if encodeErr != nil { // cannot happen: strings only
		c.Status(http.StatusInternalServerError)
		return
	}
	header := c.Writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if isFinal(err) {
		header.Set(headerRetry, "false")
	}
	wait := registry.AsError(err).RetryAfter
	switch {
	case status == http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, wait > 0:
		header.Set("Retry-After", strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second))))
	}
	c.Status(status)
	_, _ = c.Writer.Write(body) // the client is gone if this fails
}
