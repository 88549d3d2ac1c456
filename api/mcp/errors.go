package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Codes of JSON-RPC and of MCP.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603

	codeGateway            = -32000 // any other failure of the gateway: data has its code
	codeHeaderMismatch     = -32020
	codeMissingCapability  = -32021
	codeUnsupportedVersion = -32022
)

// rpcError is a failure in the words of JSON-RPC.
type rpcError struct {
	code    int
	message string
	data    json.RawMessage // nil: none
	cause   *registry.Error // of the gateway; nil: the message itself is wrong
}

// Error implements error.
func (e *rpcError) Error() string { return e.message }

// Unwrap returns the gateway's own error.
func (e *rpcError) Unwrap() error {
	if e.cause == nil {
		return nil
	}
	return e.cause
}

// status is the HTTP status of the answer. Revision 2026-07-28 has one for each code; before it, an answer to a request
// that could be read has 200, whatever it says.
// What is not there for the caller, though the path names it, is not found in every revision.
func (e *rpcError) status(modern bool, s Scope) int {
	if s.Session != "" && e.cause != nil && e.cause.Code == registry.CodeSessionNotFound {
		return http.StatusNotFound
	}
	switch e.code {
	case codeParse, codeInvalidRequest, codeHeaderMismatch, codeUnsupportedVersion:
		return http.StatusBadRequest
	}
	if !modern {
		return http.StatusOK
	}
	switch e.code {
	case codeMethodNotFound:
		return http.StatusNotFound
	case codeInvalidParams, codeMissingCapability:
		return http.StatusBadRequest
	default:
		return http.StatusOK
	}
}

func invalidRequest(format string, args ...any) error {
	return &rpcError{code: codeInvalidRequest, message: fmt.Sprintf(format, args...)}
}

func invalidParams(format string, args ...any) error {
	return &rpcError{code: codeInvalidParams, message: fmt.Sprintf(format, args...)}
}

func methodNotFound(method string) error {
	return &rpcError{code: codeMethodNotFound, message: fmt.Sprintf("The method %.80q is not served here.", method)}
}

// rpcErrorOf returns any error as one of JSON-RPC. What a client did wrong is invalid params; what else may fail in the
// gateway has one code, and its own name in data.
func rpcErrorOf(err error) *rpcError {
	var rpc *rpcError
	if errors.As(err, &rpc) {
		return rpc
	}
	e := registry.AsError(err)
	p := auth.ProblemOf(e)
	code := codeGateway
	switch p.Code {
	case registry.CodeInvalidRequest, registry.CodeToolNotFound, registry.CodeSessionNotFound,
		registry.CodePayloadTooLarge, registry.CodeUnsupportedMedia:
		code = codeInvalidParams
	case registry.CodeInternal:
		code = codeInternal
	}
	return &rpcError{code: code, message: p.Detail, data: errorData(e, p), cause: e}
}

// errorData is what clients may decide on: the gateway's code, whether the call can have run, and when to try again.
func errorData(e *registry.Error, p auth.Problem) json.RawMessage {
	data, _ := json.Marshal(struct { // cannot fail: strings and numbers
		Code         registry.Code        `json:"code"`
		CallID       string               `json:"call_id,omitempty"`
		Dispatched   registry.Dispatched  `json:"dispatched,omitempty"`
		Retryable    *bool                `json:"retryable,omitempty"`
		RetryAfterMS int64                `json:"retry_after_ms,omitempty"`
		Errors       []registry.Violation `json:"errors,omitempty"`
		Candidates   []registry.Candidate `json:"candidates,omitempty"`
	}{
		p.Code, p.CallID, p.Dispatched, p.Retryable, e.RetryAfter.Milliseconds(), p.Errors, p.Candidates,
	})
	return data
}

// appendError appends the answer to a request that failed.
func appendError(b []byte, id json.RawMessage, e *rpcError) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != nil { // JSON-RPC would have null, which MCP does not allow
		b = append(append(b, `,"id":`...), id...)
	}
	return append(appendErrorObject(append(b, `,"error":`...), e), "}\n"...)
}

// appendErrorObject appends what went wrong.
func appendErrorObject(b []byte, e *rpcError) []byte {
	b = fmt.Appendf(b, `{"code":%d,"message":`, e.code)
	b = strictjson.AppendString(b, e.message)
	if e.data != nil {
		b = append(append(b, `,"data":`...), e.data...)
	}
	return append(b, '}')
}

// WriteError answers a request that could not be read: nobody is known to have sent it, or it was too long. The status
// is that of the gateway's other APIs.
func WriteError(w http.ResponseWriter, err error) error {
	e := registry.AsError(err)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	p := auth.ProblemOf(e)
	p.SetHeaders(header)
	w.WriteHeader(p.Status)
	_, err = w.Write(appendError(nil, nil, rpcErrorOf(e)))
	return err
}
