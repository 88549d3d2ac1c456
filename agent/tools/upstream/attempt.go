package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// attempt is what is known of one request on its way to a server. The request's context carries it through the SDK to
// the transport, because the SDK's errors do not tell a request that was never sent from one that may have run.
type attempt struct {
	sent    atomic.Bool             // the server may have it
	refusal atomic.Pointer[refusal] // nil: the server has not refused it
}

// refusal is the answer of a server that has not taken a request of a session: the session has ended, or the request is
// wrong.
type refusal struct {
	status  int
	code    int64  // of the JSON-RPC error in the answer; zero: it has none
	message string // of the same
}

// String says it to a model.
func (r *refusal) String() string {
	if r.code == 0 && r.message == "" {
		return fmt.Sprintf("The MCP server refused the call with the HTTP status %d.", r.status)
	}
	return errorText(r.code, r.message)
}

type attemptKey struct{}

// newAttempt returns a context for one request, and what becomes known of that request.
func newAttempt(ctx context.Context) (context.Context, *attempt) {
	a := new(attempt)
	return context.WithValue(ctx, attemptKey{}, a), a
}

// attemptOf returns the attempt of a request; one that is not read if the request has none.
func attemptOf(ctx context.Context) *attempt {
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		return a
	}
	return new(attempt)
}

// refusalOf returns the refusal that an answer is, nil if it is none: 400 or 404 to a request of a session. Servers
// answer so what they do not accept, and the requests of sessions that they do not have.
func refusalOf(req *http.Request, status int, body []byte) *refusal {
	if status != http.StatusBadRequest && status != http.StatusNotFound || req.Header.Get(headerSession) == "" {
		return nil
	}
	var answer struct {
		Error jsonrpc.Error `json:"error"`
	}
	_ = json.Unmarshal(body, &answer) // the answer may be any text
	return &refusal{status: status, code: answer.Error.Code, message: answer.Error.Message}
}

// spareWrites is how many messages may be on their way to a program beside two for each call that it takes at a time.
const spareWrites = 8

// marking notes which requests are written to a program, and how many are.
type marking struct {
	mcp.Connection
	conn    *connection
	writing *atomic.Int64 // messages, also those whose calls have been given up
}

// Write implements mcp.Connection. Where a program does not read, it returns with ctx, and what is being written goes
// on until the connection ends, which the program's input sees to.
func (m marking) Write(ctx context.Context, msg jsonrpc.Message) error {
	if m.writing.Add(1) > int64(2*m.conn.server.MaxCalls+spareWrites) { // calls end, and what they wrote is still here
		m.writing.Add(-1)
		m.conn.end(errDeaf)
		return errDeaf
	}
	attemptOf(ctx).sent.Store(true)
	written := make(chan error, 1)
	go func() {
		defer m.writing.Add(-1)
		written <- m.Connection.Write(ctx, msg)
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
