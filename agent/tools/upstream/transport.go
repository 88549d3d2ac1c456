package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/internal/trace"
)

const (
	maxRedirects = 3  // of one request, on the same host
	getRate      = 1  // reconnects of streams, a second
	getBurst     = 10 // the same, in a burst

	maxCancels = 4 // of calls at once

	streamTimeout = 3 * time.Second // for a server to start the stream of its own messages
)

var (
	// errNoStream ends the request for a stream that does not start. The server is then treated as one without a
	// stream.
	errNoStream = errors.New("the server does not start its stream")

	// errNotReading ends the connection to a server that does not read its messages.
	errNotReading = errors.New("the server does not read its messages")

	// errBusyCancelling drops a cancellation: a server that takes none of them would keep the connections that calls
	// need. It sees the end of the call's own request.
	errBusyCancelling = errors.New("the server takes no cancellations")

	// errRefused is the error of a request with a refusal.
	errRefused = errors.New("the server rejected the request")

	// errNotResumed ends a call whose stream cannot be opened again.
	errNotResumed = errors.New("the server does not resume the stream of a call")
)

// Headers of MCP requests, and the method whose requests need special handling.
const (
	headerMethod    = "Mcp-Method"
	headerSession   = "Mcp-Session-Id"
	headerLastEvent = "Last-Event-ID"
	methodListen    = "subscriptions/listen"
)

// web is the transport to a server at a URL. It bounds responses before the SDK reads them, and cancels all requests
// when the connection ends.
type web struct {
	server *Server
	base   *http.Transport
	client *http.Client
	conn   *connection

	cancels chan struct{} // capacity maxCancels: cancellations of calls in flight
}

func newWeb(conn *connection) *web {
	s := conn.server
	w := &web{
		server: s, conn: conn, cancels: make(chan struct{}, maxCancels),
		base: publicnet.Guard{AllowPrivate: s.private()}.Transport(s.Connect),
	}
	w.base.MaxConnsPerHost = 2*s.MaxCalls + 8 // calls, their cancellations, and streams
	w.base.MaxIdleConnsPerHost = s.MaxCalls
	w.client = &http.Client{Transport: w, CheckRedirect: w.checkRedirect}
	return w
}

// private reports whether the file permits private addresses: the URL names one or localhost, or Private is set.
func (s *Server) private() bool {
	u, err := url.Parse(s.URL)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return s.Private || u.Hostname() == "localhost" || err == nil && publicnet.KindOf(addr) == publicnet.Private
}

// checkRedirect follows redirects to the same host and scheme only, so that no other server gets the configured
// headers.
func (w *web) checkRedirect(req *http.Request, via []*http.Request) error {
	a, status := deliveryOf(via[0]), req.Response.StatusCode
	same := len(via) <= maxRedirects && req.URL.Host == via[0].URL.Host && req.URL.Scheme == via[0].URL.Scheme
	repeats := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect // others become a GET
	if same && (repeats || !a.call) {
		return nil
	}
	if a.call {
		a.final.Store(true)
		return a.refuse(status, nil)
	}
	if via[0].Method == http.MethodPost && !wantsAnswer(via[0]) {
		return errRefused
	}
	return http.ErrUseLastResponse
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(w.conn.ctx, func() { cancel(context.Cause(w.conn.ctx)) })
	release := func() { stop(); cancel(nil) }
	if req.Method == http.MethodGet { // the SDK reopens streams as often as the server asks for it
		if err := w.mayReopen(ctx, req); err != nil {
			release()
			return nil, err
		}
	}
	late := w.expect(req, cancel)
	defer late()
	if a := attemptOf(ctx); req.Method == http.MethodPost && a.ctx != nil && a.ctx.Err() != nil {
		select {
		case w.cancels <- struct{}{}:
			defer func() { <-w.cancels }()
		default:
			release()
			return nil, errBusyCancelling
		}
	}
	delivery := deliveryOf(req)
	if delivery.ctx != nil {
		w.conn.posts(delivery, idOf(req))
	}
	resp, err := w.roundTrip(ctx, req, &delivery.sent)
	if err == nil && attemptOf(ctx).call {
		resp.Header.Del(headerSession) // the SDK would end the connection if it differed
	}
	if err != nil {
		release()
		// The SDK waits for this response without a timeout.
		if context.Cause(ctx) == errNoStream && !attemptOf(ctx).call {
			return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody, Request: req}, nil
		}
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	refused := attemptOf(ctx).call && (resp.StatusCode < 200 || resp.StatusCode >= 300) // whatever its content is
	if kind == "text/event-stream" && !refused {
		resp.Body = w.stream(ctx, req, resp.Body, release)
		return resp, nil
	}
	defer release()
	body, err := w.readWhole(ctx, resp, kind)
	if err != nil {
		return nil, err
	}
	switch a := attemptOf(ctx); {
	case req.Method == http.MethodPost:
		err = delivery.check(req, resp, kind, body)
	case req.Method == http.MethodGet && a.call:
		a.end(errNotResumed)
		err = errNotResumed
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// expect sets a deadline for requests without an attempt, until the returned function is called. If the stream of the
// server's own messages does not start, expect calls cancel. If the server does not accept an answer to one of its
// requests, the connection ends, because each such answer holds a goroutine.
func (w *web) expect(req *http.Request, cancel context.CancelCauseFunc) (stop func() bool) {
	switch {
	case req.Method == http.MethodGet:
		return time.AfterFunc(streamTimeout, func() { cancel(errNoStream) }).Stop
	case req.Context().Value(attemptKey{}) == nil:
		return time.AfterFunc(2*w.server.Connect, func() { w.conn.end(errNotReading) }).Stop
	default:
		return func() bool { return true }
	}
}

// mayReopen waits until a stream may be opened again. The stream of a call that makes no progress ends the call: later
// the SDK would end the connection.
func (w *web) mayReopen(ctx context.Context, req *http.Request) error {
	if a := attemptOf(ctx); a.call && !a.progresses(req.Header.Get(headerLastEvent)) {
		a.end(errNotResumed)
		return errNotResumed
	}
	gets := &w.paceOf(req).gets
	err := gets.wait(ctx, 1)
	if err != nil {
		gets.giveBack(1)
	}
	return err
}

// roundTrip sends a request, and records in sent whether the server may have received it. Without a connection
// it has not: net/http only retries a request on a new connection if it wrote nothing of it to the previous one. If the
// server is unreachable, new calls need another connection.
func (w *web) roundTrip(ctx context.Context, req *http.Request, sent *atomic.Bool) (*http.Response, error) {
	req = req.Clone(ctx)
	for name, value := range w.server.Headers {
		req.Header.Set(name, string(value))
	}
	req.Header.Set("User-Agent", "farhand")
	trace.Inject(ctx, req.Header)
	resp, err := w.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sent.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})))
	if err != nil && !sent.Load() && ctx.Err() == nil {
		w.conn.leave(fmt.Errorf("it cannot be reached: %w", err))
	}
	return resp, err
}

// stream bounds a stream of messages. The answer to one request has a size limit; other streams only have a rate limit.
// If the stream of change notifications ends, new calls need another connection, because the end would otherwise go
// unnoticed.
func (w *web) stream(ctx context.Context, req *http.Request, body io.ReadCloser, release func()) io.ReadCloser {
	listens := req.Header.Get(headerMethod) == methodListen
	left := int64(maxAnswer)
	if listens || req.Method == http.MethodGet {
		left = -1
	}
	a := attemptOf(ctx)
	bounded := &paced{ReadCloser: body, ctx: ctx, pace: w.paceOf(req), left: left, call: a.call}
	bounded.done = func(err error) {
		release()
		if a.call && errors.Is(err, errFlood) {
			a.end(err)
		}
		if listens && req.Context().Err() == nil {
			w.conn.leave(fmt.Errorf("the stream of changes ended: %w", err))
		}
	}
	return newGate(bounded, w.conn, true)
}

func (w *web) paceOf(req *http.Request) *pace {
	return w.conn.paces.forTenant(attemptOf(req.Context()).tenant)
}

// readWhole reads and returns an answer that is not a stream. An invalid message thus fails its request, not the
// connection.
func (w *web) readWhole(ctx context.Context, resp *http.Response, kind string) ([]byte, error) {
	body := &paced{
		ReadCloser: resp.Body, ctx: ctx, pace: w.paceOf(resp.Request), left: maxMessage, call: attemptOf(ctx).call,
	}
	text, err := io.ReadAll(&counted{paced: body, conn: w.conn})
	defer body.arrived()
	body.ReadCloser.Close()
	good := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case err != nil:
	case good && kind == "application/json" && len(text) > 0:
		var pass bool
		if pass, err = w.conn.receive(text, body); err == nil && !pass {
			err = errNoMessage // a notification is no answer
		}
	case strictjson.Values(text) > maxValues: // the SDK parses any answer as a message
		err = errTooMany
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return text, err
}

// counted counts the bytes of a body as they arrive.
type counted struct {
	*paced
	conn *connection
	n    int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.paced.Read(p)
	c.n += n
	if late := c.conn.arrives(c.paced, c.n); late != nil {
		return 0, late
	}
	return n, err
}

func (w *web) close() { w.base.CloseIdleConnections() }
