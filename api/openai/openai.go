// Package openai implements OpenAI's API at /v1, so that its clients work unchanged. It parses requests for chat
// completions, runs their turns, and writes answers, streams, models and errors in OpenAI's format. The tools of a
// connected device are added to a completion and run by the gateway. The caller runs its own tools and sends their
// results in the next request, which continues the conversation.
//
//	body ─▶ ParseRequest ─▶ Request.Open: model, session ─▶ Completion.Answer or Completion.Stream
//
// Package api has the routes (v1.go) and handles all that applies to every request: bodies, bounds and deadlines. This
// package imports agent, registry and api/internal. Start with completions.go; openai.go has models and errors.
package openai

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

const (
	// Prefix begins every path whose clients expect OpenAI's format.
	Prefix = "/v1/"

	// HeaderSession names the session whose tools are added to a completion.
	HeaderSession = "X-Farhand-Session"

	// HeaderRetry tells clients of OpenAI's API whether to retry automatically. It overrides their decision by status.
	HeaderRetry = "X-Should-Retry"
)

// defaultModel is an alias of the default model. Clients can use it without knowing the model's name.
const defaultModel = "farhand"

func modelOf(name string) wire.Model {
	return wire.Model{ID: name, Object: "model", OwnedBy: "farhand"}
}

// configuredModel returns the configured name of a model. The first model is the default.
func configuredModel(all []string, name string) (string, error) {
	switch {
	case slices.Contains(all, name):
		return name, nil
	case name == defaultModel && len(all) > 0:
		return all[0], nil
	default:
		return "", unknownModel(name)
	}
}

// ListModels returns the answer that lists models, to be encoded as JSON.
func ListModels(all []string) any {
	list := wire.ModelList{Object: "list", Data: make([]wire.Model, len(all))}
	for i, name := range all {
		list.Data[i] = modelOf(name)
	}
	return list
}

// GetModel returns the answer that describes one model, to be encoded as JSON.
func GetModel(all []string, name string) (any, error) {
	name, err := configuredModel(all, name)
	return modelOf(name), err
}

// Types of errors. Some clients check only the type.
const (
	typeBadRequest = "invalid_request_error"
	typeLimited    = "rate_limit_error"
	typeServer     = "server_error"
)

// codes maps the gateway's codes to OpenAI's own codes. Other codes stay as they are.
var codes = map[registry.Code]string{
	registry.CodeInvalidRequest:  "invalid_request_error",
	registry.CodeUnauthenticated: "invalid_api_key",
	registry.CodeRateLimited:     "rate_limit_exceeded",
}

// finalError is an error of a turn in which tools have run. A client must not retry the request automatically.
type finalError struct{ error }

func (f finalError) Unwrap() error { return f.error }

// isFinal reports whether a client should not retry the request automatically, because its tools would run twice, or it
// would fail again. A turn that reached one of its limits would most likely reach it again.
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

// paramError adds the fields of OpenAI's format to an error.
type paramError struct {
	error
	param string // the invalid field
	code  string // empty: use codes
}

func (p *paramError) Unwrap() error { return p.error }

func badParam(param, format string, args ...any) error {
	return &paramError{param: param, error: registry.Errorf(registry.CodeInvalidRequest, format, args...)}
}

// NoModel returns err as the error that no model is configured.
func NoModel(err error) error {
	return &paramError{param: "model", code: "model_not_found", error: err}
}

func unknownModel(name string) error {
	return NoModel(registry.Errorf(registry.CodeNotFound,
		"The model %.120q does not exist. GET /v1/models lists all models.", name))
}

// errorBodyOf returns an error in OpenAI's format, and its status.
func errorBodyOf(err error) (int, wire.OpenAIError) {
	p := auth.ProblemOf(registry.AsError(err))
	e := wire.OpenAIErrorDetail{Message: p.Detail, Type: typeBadRequest, Code: string(p.Code)}
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
	return p.Status, wire.OpenAIError{Error: e}
}

// turnFailure returns a turn's failure so that clients of OpenAI's API handle it correctly. They retry after 408, 409,
// 429 and 5xx. They must not retry if tools have run in the turn. A retry is useless if the provider rejects the
// request.
func turnFailure(err error, reply chat.Reply) error {
	err = providerFailure(err)
	if len(reply.Calls) > 0 {
		return finalError{err}
	}
	return err
}

// providerFailure gives a failure of the provider the code that OpenAI's clients expect.
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
			return &paramError{param: failed.Param, error: &coded}
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
	body, _ := strictjson.Encode(answer) // cannot fail: strings only
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
	_, _ = w.Write(append(body, '\n')) // on failure the client is gone
}
