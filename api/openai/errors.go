package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// errorBody is an error in OpenAI's format, which its client libraries understand.
type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

// Types of errors. Some clients look at nothing else.
const (
	typeBadRequest = "invalid_request_error"
	typeLimited    = "rate_limit_error"
	typeServer     = "server_error"
)

// codes are the codes that OpenAI has a name of its own for. Others keep ours.
var codes = map[registry.Code]string{
	registry.CodeInvalidRequest:  "invalid_request_error",
	registry.CodeUnauthenticated: "invalid_api_key",
	registry.CodeRateLimited:     "rate_limit_exceeded",
}

// finalError is an error of a turn in which tools have run. A client must not repeat the request by itself.
type finalError struct{ error }

// Unwrap returns the error.
func (f finalError) Unwrap() error { return f.error }

// isFinal reports whether a client should not repeat the request by itself: its tools would run twice, or it would fail
// again. A turn that one of its limits has stopped would most likely be stopped again.
func isFinal(err error) bool {
	var final finalError
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

// paramError adds to an error what only OpenAI's format can say.
type paramError struct {
	param string // the field that is wrong
	code  string // empty: as codes has it
	err   error
}

// Error implements error.
func (p *paramError) Error() string { return p.err.Error() }

// Unwrap returns what is wrong with the field.
func (p *paramError) Unwrap() error { return p.err }

// badParam says that a field of a request is wrong.
func badParam(param, format string, args ...any) error {
	return &paramError{param: param, err: registry.Errorf(registry.CodeInvalidRequest, format, args...)}
}

// NoModel says that no model can be named because none is configured, as err says.
func NoModel(err error) error { return &paramError{param: "model", code: "model_not_found", err: err} }

// unknownModel says that there is no such model.
func unknownModel(name string) error {
	return NoModel(registry.Errorf(registry.CodeNotFound,
		"The model %.120q does not exist. GET /v1/models lists those that do.", name))
}

// errorBodyOf returns an error in OpenAI's format, and its status.
func errorBodyOf(err error) (int, errorBody) {
	p := auth.ProblemOf(registry.AsError(err))
	e := errorDetail{Message: p.Detail, Type: typeBadRequest, Code: string(p.Code)}
	switch {
	case p.Status == http.StatusTooManyRequests:
		e.Type = typeLimited
	case p.Status >= http.StatusInternalServerError:
		e.Type = typeServer
	}
	if code := codes[p.Code]; code != "" {
		e.Code = code
	}
	if len(p.Candidates) > 0 {
		ids := make([]string, len(p.Candidates))
		for i, c := range p.Candidates {
			ids[i] = c.SessionID
		}
		e.Message += " Sessions: " + strings.Join(ids, ", ") + "."
	}
	var wrong *paramError
	if errors.As(err, &wrong) {
		e.Param = &wrong.param
		if wrong.code != "" {
			e.Code = wrong.code
		}
	}
	return p.Status, errorBody{e}
}

// turnFailure returns a failure of a turn such that clients of OpenAI's API act rightly on it. They repeat a request
// after 408, 409, 429 and 5xx. They must not when tools have run in the turn, and it is in vain when the provider does
// not accept the request.
func turnFailure(err error, reply chat.Reply) error {
	err = providerFailure(err)
	if len(reply.Calls) > 0 {
		return finalError{err}
	}
	return err
}

// providerFailure gives a failure of the provider the code that OpenAI's clients know it by.
func providerFailure(err error) error {
	var failed *provider.Error
	if !errors.As(err, &failed) {
		return err
	}
	coded := *registry.AsError(err)
	switch failed.Kind {
	case provider.KindRequest:
		coded.Code = registry.CodeInvalidRequest
		if failed.Param != "" {
			return &paramError{param: failed.Param, err: &coded}
		}
	case provider.KindLimit:
		coded.Code, coded.RetryAfter = registry.CodeRateLimited, failed.RetryAfter
	default:
		return err
	}
	return &coded
}

// WriteError answers with an error in OpenAI's format.
func WriteError(w http.ResponseWriter, err error) {
	status, answer := errorBodyOf(err)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(answer) // cannot fail: strings only
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if isFinal(err) {
		header.Set(HeaderRetry, "false")
	}
	wait := registry.AsError(err).RetryAfter
	switch {
	case status == http.StatusUnauthorized:
		header.Set("WWW-Authenticate", "Bearer")
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable, wait > 0:
		header.Set("Retry-After", strconv.Itoa(max(1, int((wait+time.Second-1)/time.Second))))
	}
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client is gone if this fails
}
