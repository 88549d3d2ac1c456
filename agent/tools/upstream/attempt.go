package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// attempt is what is known of one request on its way to a server. The request's context carries it through the SDK to
// the transport, because the SDK's errors do not tell a request that was never sent from one that may have run.
type attempt struct {
	tenant  string                  // who calls; empty: the gateway asks
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
func newAttempt(ctx context.Context, tenant string) (context.Context, *attempt) {
	a := &attempt{tenant: tenant}
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

// Bounds of how often the tools of a server are listed that says that they change.
const (
	minCalm  = time.Second      // from one list to the next
	maxCalm  = time.Minute      // the same, of a server that says so all the time
	minQuiet = 10 * time.Second // after which a server begins anew
)

// calm says when the tools of a server are listed again that says that they have changed: the more often it says so,
// the later.
type calm struct {
	pause  time.Duration // from the last list to the next
	waited time.Duration // the pause before the last list; zero: it was the first of its kind
	last   time.Time     // when the tools were listed
}

func newCalm() *calm { return &calm{pause: minCalm} }

// listed notes that the tools were listed.
func (c *calm) listed() { c.last = time.Now() }

// wait returns how long to wait before the next list, now that the server says that its tools have changed. A server
// that was quiet for twice as long as it had to wait last begins anew.
func (c *calm) wait() time.Duration {
	quiet := time.Since(c.last)
	if quiet >= max(2*c.waited, minQuiet) {
		c.waited, c.pause = 0, minCalm
		return 0
	}
	c.waited, c.pause = c.pause, min(2*c.pause, maxCalm)
	return max(0, c.waited-quiet)
}

// Bounds of what a server sends. Messages beside the answers that are waited for cost work, too, so what comes faster
// than the pace stays in the pipe, or in the network. The answers to each tenant's calls have a pace of their own.
const (
	maxMessage = 8 << 20  // bytes of one message
	maxAnswer  = 64 << 20 // bytes of the stream of messages that answers one request

	paceRate  = 1000  // lines a second; as many bytes as paceBytes count as one, too
	paceBurst = 10000 // lines at once
	paceBytes = 4 << 10
	paceValue = 64 // as many values of JSON count as one, too: the SDK takes some microseconds for each

	paceRead   = 16 << 10 // bytes that are read at once: what is read first waits for nothing that comes later
	pacesForMe = 64       // tenants whose paces are kept although nothing is used of them
)

// paces are the buckets of one server. They outlive its connections: to connect anew refills none of them. It is safe
// for concurrent use.
type paces struct {
	requests bucket // what the server asks of the gateway

	mu sync.Mutex
	by map[string]*bucket // by tenant; empty: what nobody has called for
}

func newPaces() *paces {
	return &paces{requests: bucket{rate: requestRate, burst: requestBurst}, by: make(map[string]*bucket)}
}

// of returns the pace of what a tenant has called for.
func (p *paces) of(tenant string) *bucket {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.by[tenant]; b != nil {
		return b
	}
	if len(p.by) >= pacesForMe {
		maps.DeleteFunc(p.by, func(_ string, b *bucket) bool { return b.idle() })
	}
	b := &bucket{rate: paceRate, burst: paceBurst}
	p.by[tenant] = b
	return b
}

// bucket is a token bucket. It is safe for concurrent use.
type bucket struct {
	rate, burst float64

	mu   sync.Mutex
	used float64 // of the burst
	last time.Time
}

// reserve takes n tokens, and returns how long to wait for them.
func (b *bucket) reserve(n float64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.used = max(0, b.used-now.Sub(b.last).Seconds()*b.rate) + n
	b.last = now
	return time.Duration(max(0, b.used-b.burst) / b.rate * float64(time.Second))
}

// idle reports whether nothing is used.
func (b *bucket) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.last).Seconds()*b.rate >= b.used
}

// try takes a token if there is one.
func (b *bucket) try() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.used, b.last = max(0, b.used-now.Sub(b.last).Seconds()*b.rate), now
	if b.used+1 > b.burst {
		return false
	}
	b.used++
	return true
}

// take waits for n tokens, at most until ctx ends.
func (b *bucket) take(ctx context.Context, n float64) error {
	wait := b.reserve(n)
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errTooLong ends an answer that is longer than any may be.
var errTooLong = errors.New("the server has sent more than one answer may have")

// paced reads at the pace of a server's messages.
type paced struct {
	io.ReadCloser
	ctx  context.Context // of the connection, or of one request
	pace *bucket
	left int64       // bytes that may come; negative: any number
	done func(error) // called once by Close, with what ended the reading; nil: nobody

	err error
}

// Read implements io.Reader.
func (r *paced) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p[:min(len(p), paceRead)])
	if r.left >= 0 {
		if r.left -= int64(n); r.left < 0 {
			n, err = 0, errTooLong
		}
	}
	cost := float64(bytes.Count(p[:n], []byte("\n"))) + float64(n)/paceBytes
	if late := r.pace.take(r.ctx, cost); late != nil {
		n, err = 0, late
	}
	if err != nil {
		r.err = err
	}
	return n, err
}

// charge waits for the pace of what a message with so many values takes.
func (r *paced) charge(values int) error { return r.pace.take(r.ctx, float64(values/paceValue)) }

// Close implements io.Closer.
func (r *paced) Close() error {
	err := r.ReadCloser.Close()
	if r.done != nil {
		r.done(r.err)
		r.done = nil
	}
	return err
}
