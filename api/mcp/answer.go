package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/mcpcontent"
	"github.com/farhand/farhand/api/internal/ssewriter"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// silence is how long a call may take before its answer begins as an event stream with heartbeats: proxies close silent
// connections. Quicker calls are answered with plain JSON, unless they report progress.
const silence = 10 * time.Second

// answer is the answer to one request while it runs: plain JSON, or an event stream if messages precede the result. It
// is safe for concurrent use.
type answer struct {
	*request
	ctx  context.Context
	stop context.CancelFunc // ends the request: its client is gone

	mu     sync.Mutex
	stream *ssewriter.Stream // nil: nothing is written yet
	timer  *time.Timer       // sends heartbeats; nil: the client does not accept events
	over   bool              // the last message was written, or the client is gone
}

// begin begins an answer. The context ends when a write shows that the client is gone.
func (r *request) begin(ctx context.Context) (context.Context, *answer) {
	a := &answer{request: r}
	a.ctx, a.stop = context.WithCancel(ctx)
	if a.takesEvents() {
		a.mu.Lock() // the timer may fire before it is stored
		defer a.mu.Unlock()
		a.timer = time.AfterFunc(silence, a.beat)
	}
	return a.ctx, a
}

func (r *request) takesEvents() bool {
	return slices.ContainsFunc(r.Header["Accept"], func(accepted string) bool {
		return strings.Contains(accepted, "text/event-stream")
	})
}

// beat sends a heartbeat. It begins the event stream if necessary.
func (a *answer) beat() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || !a.openLocked() {
		return
	}
	if err := a.stream.Flush(); err != nil {
		a.endLocked()
		return
	}
	a.timer.Reset(max(a.stream.UntilHeartbeat(), time.Millisecond))
}

// notify writes a message before the result. If the client is gone, it does nothing.
func (a *answer) notify(message []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.timer == nil || !a.openLocked() {
		return
	}
	putMessage(a.stream, message)
	if err := a.stream.Flush(); err != nil {
		a.endLocked()
	}
}

// noteCall sets the id of the call that the answer is about, unless the answer has begun.
func (a *answer) noteCall(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream == nil && !a.over {
		a.Out.NoteCall(id)
	}
}

// openLocked begins the event stream, if it has not begun. It reports whether the client is still there.
func (a *answer) openLocked() bool {
	if a.stream != nil {
		return true
	}
	var err error
	if a.stream, err = a.Out.Open(); err != nil {
		a.endLocked()
		return false
	}
	a.timer.Reset(max(a.stream.UntilHeartbeat(), time.Millisecond))
	return true
}

func (a *answer) endLocked() {
	a.over = true
	a.stop()
}

// finish writes the last message, or none if the client has cancelled the request. It must be called once. Nothing is
// written after it.
func (a *answer) finish(s *Server, res result, err error) error {
	defer a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // under the lock, because a concurrent write resets it
	}
	if a.over {
		return nil
	}
	a.over = true
	switch {
	case a.stream == nil && err == errCancelled:
		return a.Out.Write(http.StatusAccepted, nil, nil) // like a message without an answer
	case a.stream == nil && err != nil:
		return a.fail(err)
	case a.stream == nil:
		return a.Out.Write(http.StatusOK, s.appendResult(nil, a.request, res), nil)
	}
	defer a.stream.Close()
	if err == errCancelled {
		return nil
	}
	var last []byte
	if err != nil {
		e := rpcErrorOf(err)
		a.Out.NoteFailure(e.cause)
		last = appendError(nil, a.id, e)
	} else {
		last = s.appendResult(nil, a.request, res)
	}
	release, err := a.Out.Reserve(a.ctx, a.stream, len(last))
	if err != nil {
		return nil // the pod is out of memory; the client sees its stream end without an answer
	}
	defer release()
	putMessage(a.stream, last)
	_ = a.stream.Flush() // on failure the client is gone
	return nil
}

// putMessage adds a message to a stream as an event, on one line. It changes message.
func putMessage(s *ssewriter.Stream, message []byte) {
	s.PutEncoded([]byte("event: message\ndata: "))
	if n := len(message); n > 0 && message[n-1] == '\n' {
		message = message[:n-1]
	}
	ssewriter.OneLine(message)
	s.PutEncoded(message)
	s.PutEncoded([]byte("\n\n"))
}

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

type rpcError struct {
	code    int
	message string
	data    any             // as JSON; nil: none
	cause   *registry.Error // of the gateway; nil: the message itself is invalid
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

// status returns the HTTP status of the answer. Revision 2026-07-28 has a status for each code. In earlier revisions,
// any answer to a readable request has 200. In every revision, a session in the path that does not exist for the caller
// is 404.
func (e *rpcError) status(modern bool, s Scope) int {
	status := http.StatusOK
	switch e.code {
	case codeParse, codeInvalidRequest, codeHeaderMismatch, codeUnsupportedVersion:
		return http.StatusBadRequest
	case codeMethodNotFound:
		status = http.StatusNotFound
	case codeInvalidParams, codeMissingCapability:
		status = http.StatusBadRequest
	}
	if s.Session != "" && e.cause != nil && e.cause.Code == registry.CodeSessionNotFound {
		return http.StatusNotFound
	}
	if !modern {
		return http.StatusOK
	}
	return status
}

func invalidRequest(format string, args ...any) error {
	return &rpcError{code: codeInvalidRequest, message: fmt.Sprintf(format, args...)}
}

func invalidParams(format string, args ...any) error {
	return &rpcError{code: codeInvalidParams, message: fmt.Sprintf(format, args...)}
}

func methodNotFound(method string) error {
	return &rpcError{code: codeMethodNotFound, message: fmt.Sprintf("The method %.80q is not supported here.", method)}
}

// rpcErrorOf converts any error to a JSON-RPC error. Mistakes of the client are invalid params. Other failures of the
// gateway share one code, and data has the gateway's own code.
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

// errorData returns what clients act on: the gateway's code, whether the call can have run, and when to retry.
func errorData(e *registry.Error, p auth.Problem) any {
	return struct {
		Code         registry.Code        `json:"code"`
		CallID       string               `json:"call_id,omitempty"`
		Dispatched   registry.Dispatched  `json:"dispatched,omitempty"`
		Retryable    *bool                `json:"retryable,omitempty"`
		RetryAfterMS int64                `json:"retry_after_ms,omitempty"`
		Errors       []registry.Violation `json:"errors,omitempty"`
		Candidates   []registry.Candidate `json:"candidates,omitempty"`
	}{
		p.Code, p.CallID, p.Dispatched, p.Retryable, e.RetryAfter.Milliseconds(), p.Errors, p.Candidates,
	}
}

func appendError(b []byte, id json.RawMessage, e *rpcError) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != nil { // JSON-RPC demands null here, which MCP does not allow
		b = append(append(b, `,"id":`...), id...)
	}
	return append(appendErrorObject(append(b, `,"error":`...), e), "}\n"...)
}

func appendErrorObject(b []byte, e *rpcError) []byte {
	b = fmt.Appendf(b, `{"code":%d,"message":`, e.code)
	b = strictjson.AppendString(b, e.message)
	if e.data != nil {
		data, _ := json.Marshal(e.data) // cannot fail: strings, numbers, and JSON of this package
		b = append(append(b, `,"data":`...), data...)
	}
	return append(b, '}')
}

// WriteError answers a request that could not be read: it was not authenticated, or too long. The status is the same as
// in the gateway's other APIs.
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

// content returns the members of the result of a call that ran.
func (r *request) content(out *agent.Outcome) []byte {
	exact, _ := r.exact() // invalid values were rejected before the call ran
	style := mcpcontent.Style{CallID: out.CallID, Origin: r.Origin, AnyStructured: r.modern, Exact: exact}
	return style.Append(nil, &out.Result)
}

// invalidContent returns the members of a result that says what is wrong with the arguments, so that a model can
// correct them.
func invalidContent(e *registry.Error) []byte {
	text := e.Message
	for _, v := range e.Violations {
		text += "\n" + v.String()
	}
	return append(mcpcontent.AppendText([]byte(`"content":[`), text), `],"isError":true`...)
}
