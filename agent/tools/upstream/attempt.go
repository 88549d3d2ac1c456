package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// attempt is the delivery state of one request to a server. The request's context carries it through the SDK to the
// transport, because the SDK's errors do not distinguish a request that was never sent from one that may have run.
type attempt struct {
	ctx     context.Context        // of the request
	tenant  string                 // of the caller; empty: the gateway's own request
	call    bool                   // of a tool: whatever the answer is, the connection stays
	sent    atomic.Bool            // the server may have received it
	refusal atomic.Pointer[string] // as text for a model; nil: none
	final   atomic.Bool            // the refusal says nothing about the session

	id      jsonrpc.ID // of the request; guarded by the lock of the connection
	last    jsonrpc.ID // of the last answer; guarded by the same lock
	answers grants

	hide  func(string) string     // masks the operator's secrets; nil: there are none
	end   context.CancelCauseFunc // of a call, without the connection
	event string                  // the last one of its stream, as the stream is opened again
	stuck int                     // how often it was opened again at the same event
}

// progresses notes that the stream of a call is opened again after an event. It returns false if that has happened too
// often at the same one. The SDK does not open a stream twice at a time.
func (a *attempt) progresses(event string) bool {
	if event != a.event {
		a.event, a.stuck = event, 0
	}
	a.stuck++
	return a.stuck <= maxStuck
}

const maxStuck = 4 // one more, and the SDK would end the connection

type attemptKey struct{}

// newAttempt returns a context for one request, and the attempt that records its delivery.
func newAttempt(ctx context.Context, tenant string) (context.Context, *attempt) {
	a := &attempt{ctx: ctx, tenant: tenant}
	return context.WithValue(ctx, attemptKey{}, a), a
}

// deliveryOf returns the attempt whose delivery an HTTP request is. The SDK also sends other messages with the values
// of a request's context: the GET that opens its stream again, and the notification that it was cancelled. They get a
// new attempt that is never read, because they do not change whether the server has the request.
func deliveryOf(req *http.Request) *attempt {
	a := attemptOf(req.Context())
	if req.Method != http.MethodPost || a.ctx == nil || a.ctx.Err() != nil {
		return new(attempt)
	}
	return a
}

// attemptOf returns the attempt of a request. If the context has none, it returns a new attempt that is never read.
func attemptOf(ctx context.Context) *attempt {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a
	}
	return new(attempt)
}

// isRefusal reports whether an answer is a refusal: its status is 400 or 404, and the request belongs to a session.
// Servers send these for invalid requests and for unknown sessions.
func isRefusal(req *http.Request, status int) bool {
	return (status == http.StatusBadRequest || status == http.StatusNotFound) && req.Header.Get(headerSession) != ""
}

// check records a refusal, and returns an error for an answer that is no message. For some of them the SDK would end
// the connection, which other calls use, or report a failed tool.
func (a *attempt) check(req *http.Request, resp *http.Response, kind string, body []byte) error {
	status := resp.StatusCode
	good, redirects := status >= 200 && status < 300, isRedirect(resp)
	switch {
	case !good && !redirects && !wantsAnswer(req):
		return fmt.Errorf("%w with the HTTP status %d", errRefused, status)
	case isRefusal(req, status):
		return a.refuse(status, body)
	case !a.call, redirects, status >= 500 && refusalIn(body, nil) != "":
		return nil // the client or the SDK knows
	case status >= 300 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		a.final.Store(true)
		return a.refuse(status, body)
	case !good || kind != "application/json":
		return errNoMessage
	}
	return nil
}

// wantsAnswer reports whether an HTTP request has a request of JSON-RPC, not a notification or an answer.
func wantsAnswer(req *http.Request) bool { return idOf(req).IsValid() }

// idOf returns the id of the request of JSON-RPC in an HTTP request. It is not valid if there is none.
func idOf(req *http.Request) jsonrpc.ID {
	if req.GetBody == nil {
		return jsonrpc.ID{}
	}
	body, err := req.GetBody()
	if err != nil {
		return jsonrpc.ID{}
	}
	defer body.Close()
	text, _ := io.ReadAll(body)
	message, _ := jsonrpc.DecodeMessage(text)
	if request, ok := message.(*jsonrpc.Request); ok {
		return request.ID
	}
	return jsonrpc.ID{}
}

// refuse records a refusal, and returns the error of the request.
func (a *attempt) refuse(status int, body []byte) error {
	text := refusalIn(body, a.hide)
	if text == "" {
		text = fmt.Sprintf("The MCP server rejected the call with HTTP status %d.", status)
	}
	a.refusal.Store(&text)
	return errRefused
}

// isRedirect reports whether the client may follow an answer to another address.
func isRedirect(resp *http.Response) bool {
	return slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode) && resp.Header.Get("Location") != ""
}

// refusalIn returns the error in the body of a refusal, as text for a model; empty if there is none. body may be any
// text.
func refusalIn(body []byte, hide func(string) string) string {
	var answer struct {
		Error jsonrpc.Error `json:"error"`
	}
	_ = json.Unmarshal(body, &answer)
	if answer.Error.Code == 0 && answer.Error.Message == "" {
		return ""
	}
	if hide != nil { // before the text is cut
		answer.Error.Message = hide(answer.Error.Message)
	}
	return errorText(answer.Error.Code, answer.Error.Message)
}

// maxLate is how many notifications to a program may wait for longer than their contexts last.
const maxLate = 64

// trackedConnection records which requests were written to a program. It writes one message after another, and those
// whose requests are given up before their turn are not written at all.
type trackedConnection struct {
	mcp.Connection
	conn    *connection
	writing chan struct{} // capacity 1: a message is being written
	late    *atomic.Int64 // notifications that wait for longer than their contexts last
}

// Write implements mcp.Connection. If the program does not read, Write returns when ctx ends. A write that has begun
// goes on until the connection ends; closing the program's input aborts it.
func (m trackedConnection) Write(ctx context.Context, msg jsonrpc.Message) error {
	a := attemptOf(ctx)
	if a.ctx != nil && a.ctx.Err() != nil && !a.sent.Load() {
		return nil // the program does not have the request that was cancelled
	}
	select {
	case m.writing <- struct{}{}:
	case <-ctx.Done():
		if r, ok := msg.(*jsonrpc.Request); ok && !r.IsCall() {
			m.writeLate(ctx, msg)
		}
		return ctx.Err()
	}
	a.sent.Store(true)
	m.conn.asks(msg, a)
	written := make(chan error, 1)
	go func() {
		defer func() { <-m.writing }()
		written <- m.Connection.Write(ctx, msg)
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeLate writes a notification, such as that a request was cancelled, when its turn comes after its context's end.
func (m trackedConnection) writeLate(ctx context.Context, msg jsonrpc.Message) {
	if m.late.Add(1) > maxLate {
		m.late.Add(-1)
		return
	}
	go func() { // ends with the connection
		defer m.late.Add(-1)
		select {
		case m.writing <- struct{}{}:
			_ = m.Connection.Write(context.WithoutCancel(ctx), msg)
			<-m.writing
		case <-m.conn.ctx.Done():
		}
	}()
}
