package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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

// silence is how long a call may take before its answer begins as events, with signs of life between them: proxies cut
// off what is silent for longer. Quicker calls are answered with plain JSON, unless they report progress.
const silence = 10 * time.Second

// answer is the answer to one request while it is made: plain JSON, or events if something is to be said before the
// result. It is safe for concurrent use.
type answer struct {
	*request
	ctx  context.Context
	stop context.CancelFunc // ends the request: its client is gone

	mu     sync.Mutex
	stream *ssewriter.Stream // nil: nothing is written yet
	timer  *time.Timer       // of signs of life; nil: the client takes no events
	over   bool              // the last message is written, or the client is gone
}

// begin begins an answer. The context ends when a client that is told something turns out to be gone.
func (r *request) begin(ctx context.Context) (context.Context, *answer) {
	a := &answer{request: r}
	a.ctx, a.stop = context.WithCancel(ctx)
	if a.takesEvents() {
		a.mu.Lock() // the timer may go off before it is noted
		defer a.mu.Unlock()
		a.timer = time.AfterFunc(silence, a.beat)
	}
	return a.ctx, a
}

// takesEvents reports whether the client says that it takes server-sent events.
func (r *request) takesEvents() bool {
	for _, accepted := range r.Header["Accept"] {
		if strings.Contains(accepted, "text/event-stream") {
			return true
		}
	}
	return false
}

// beat shows that the answer is under way.
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

// notify writes a message before the result. It does nothing once the client is gone.
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

// noteCall says which call the answer is about, unless the answer has begun.
func (a *answer) noteCall(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream == nil && !a.over {
		a.Out.NoteCall(id)
	}
}

// openLocked makes sure that the answer has begun as events.
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

// finish writes the last message, or none if the client has cancelled the request. It must be called once; nothing is
// written after it.
func (a *answer) finish(s *Server, res result, err error) error {
	defer a.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop() // under the lock, because what is being written meanwhile sets it again
	}
	switch {
	case a.over:
		return nil
	case err == errCancelled && a.stream == nil:
		a.over = true
		return a.Out.Write(http.StatusAccepted, nil, nil) // as a message that has no answer
	case err == errCancelled:
		a.over = true
		a.stream.Close()
		return nil
	case a.stream == nil && err != nil:
		a.over = true
		return a.fail(err)
	case a.stream == nil:
		a.over = true
		return a.Out.Write(http.StatusOK, s.appendResult(nil, a.request, res), nil)
	}
	a.over = true
	defer a.stream.Close()
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
		return nil // the client sees its stream end without an answer: this pod is out of memory
	}
	defer release()
	putMessage(a.stream, last)
	_ = a.stream.Flush() // the client is gone if this fails
	return nil
}

// putMessage adds a message to a stream as an event, on one line. What a device sent may have line feeds, which would
// end the event; outside of strings they are white space. It changes message.
func putMessage(s *ssewriter.Stream, message []byte) {
	s.PutEncoded([]byte("event: message\ndata: "))
	if n := len(message); n > 0 && message[n-1] == '\n' {
		message = message[:n-1]
	}
	for i, c := range message {
		if c == '\n' || c == '\r' {
			message[i] = ' '
		}
	}
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

// appendContent appends the members of a result to a call that ran.
func (r *request) appendContent(b []byte, out *agent.Outcome) []byte {
	exact, _ := r.exact() // of calls it was read before they ran
	style := mcpcontent.Style{CallID: out.CallID, Origin: r.Origin, AnyStructured: r.modern, Exact: exact}
	return style.Append(b, &out.Result)
}

// appendInvalid appends the members of a result that says what is wrong with the arguments, so that a model can mend
// them.
func appendInvalid(b []byte, e *registry.Error) []byte {
	var text strings.Builder
	text.WriteString(e.Message)
	for _, v := range e.Violations {
		text.WriteString("\n" + v.String())
	}
	return append(mcpcontent.AppendText(append(b, `"content":[`...), text.String()), `],"isError":true`...)
}
