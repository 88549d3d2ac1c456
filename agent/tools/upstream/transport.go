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
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/internal/publicnet"
	"github.com/farhand/farhand/internal/strictjson"
)

const (
	maxRedirects = 3  // of one request, on the same host
	getRate      = 1  // streams a second that are opened again
	getBurst     = 10 // of those at once

	streamTimeout = 3 * time.Second // for a server to begin the stream of its own messages
)

var (
	// errNoStream ends the request for a stream that does not begin: the server is taken to have none.
	errNoStream = errors.New("the server does not begin its stream")

	// errDeaf ends the connection to a server that does not take what it is told.
	errDeaf = errors.New("the server does not take what it is told")

	// errRefused is the error of a request with a refusal.
	errRefused = errors.New("the server has refused the request")
)

// Methods whose requests are told from others.
const (
	headerMethod  = "Mcp-Method"
	headerSession = "Mcp-Session-Id"
	methodListen  = "subscriptions/listen"
)

// web is the way to a server at a URL. It bounds what comes from there before the SDK reads it, and ends all requests
// with the connection.
type web struct {
	server *Server
	base   *http.Transport
	client *http.Client
	conn   *connection
	gets   bucket
}

func newWeb(conn *connection) *web {
	s := conn.server
	w := &web{
		server: s, conn: conn, gets: bucket{rate: getRate, burst: getBurst},
		base: publicnet.Guard{AllowPrivate: s.private()}.Transport(s.Connect),
	}
	w.base.MaxConnsPerHost = 2*s.MaxCalls + 8 // calls, what cancels them, and streams
	w.base.MaxIdleConnsPerHost = s.MaxCalls
	w.client = &http.Client{Transport: w, CheckRedirect: w.checkRedirect}
	return w
}

// private reports whether the file allows an address of a private network: it names it, or this machine, or says so.
func (s *Server) private() bool {
	u, err := url.Parse(s.URL)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return s.Private || u.Hostname() == "localhost" || err == nil && publicnet.KindOf(addr) == publicnet.Private
}

// transport returns the SDK's way through w.
func (w *web) transport() mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: w.server.URL, HTTPClient: w.client, MaxEventSize: maxMessage}
}

// checkRedirect follows a server on its own host only: nobody else gets the headers of the file.
func (w *web) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (w *web) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stop := context.AfterFunc(w.conn.ctx, func() { cancel(context.Cause(w.conn.ctx)) })
	release := func() { stop(); cancel(nil) }
	late := w.expect(req, cancel)
	defer late()
	resp, err := w.roundTrip(ctx, req)
	if err != nil {
		release()
		if context.Cause(ctx) == errNoStream { // the SDK waits for this answer, for ever
			return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody, Request: req}, nil
		}
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "text/event-stream" {
		resp.Body = w.stream(ctx, req, resp.Body, release)
		return resp, nil
	}
	defer release()
	body, err := w.readWhole(ctx, resp, kind)
	if err != nil {
		return nil, err
	}
	if r := refusalOf(req, resp.StatusCode, body); r != nil && req.Method == http.MethodPost {
		attemptOf(ctx).refusal.Store(r)
		return nil, errRefused // the SDK would end the connection over some, and take others for a failed tool
	}
	return resp, nil
}

// expect gives a request that has no time of its own some, until the function that it returns is called. A stream of
// the server's own messages that does not begin is given up with cancel. Answers to what the server asks for wait on a
// goroutine each, so a server that does not take them loses the connection.
func (w *web) expect(req *http.Request, cancel context.CancelCauseFunc) (stop func() bool) {
	switch {
	case req.Method == http.MethodGet:
		return time.AfterFunc(streamTimeout, func() { cancel(errNoStream) }).Stop
	case req.Context().Value(attemptKey{}) == nil:
		return time.AfterFunc(2*w.server.Connect, func() { w.conn.end(errDeaf) }).Stop
	default:
		return func() bool { return true }
	}
}

func (w *web) roundTrip(ctx context.Context, req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet { // the SDK opens streams again as often as the server asks for it
		if err := w.gets.take(ctx, 1); err != nil {
			return nil, err
		}
	}
	req = req.Clone(ctx)
	for name, value := range w.server.Headers {
		req.Header.Set(name, string(value))
	}
	req.Header.Set("User-Agent", "farhand")
	return w.send(ctx, req)
}

// send sends a request, and notes in its attempt whether the server may have it. Without a connection it has not, and
// net/http makes another connection for a request only if nothing of it was written to the former. A server that cannot
// be reached is left.
func (w *web) send(ctx context.Context, req *http.Request) (*http.Response, error) {
	sent := &attemptOf(ctx).sent
	resp, err := w.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { sent.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})))
	if err != nil && !sent.Load() && ctx.Err() == nil {
		w.conn.leave(fmt.Errorf("it cannot be reached: %w", err))
	}
	return resp, err
}

// stream bounds a stream of messages: as a whole if it answers one request, else only in its pace. The connection ends
// with the stream that tells of changes, because nobody else would notice.
func (w *web) stream(ctx context.Context, req *http.Request, body io.ReadCloser, release func()) io.ReadCloser {
	listens := req.Header.Get(headerMethod) == methodListen
	left := int64(maxAnswer)
	if listens || req.Method == http.MethodGet {
		left = -1
	}
	bounded := &paced{ReadCloser: body, ctx: ctx, pace: w.paceOf(req), left: left, done: func(err error) {
		release()
		if listens && req.Context().Err() == nil {
			w.conn.leave(fmt.Errorf("the stream of changes has ended: %w", err))
		}
	}}
	return newGate(bounded, w.conn, true)
}

// paceOf returns the pace of the answer to a request.
func (w *web) paceOf(req *http.Request) *bucket {
	return w.conn.paces.of(attemptOf(req.Context()).tenant)
}

// readWhole reads and returns an answer that is one message, so that one that is broken fails its request, and not the
// connection.
func (w *web) readWhole(ctx context.Context, resp *http.Response, kind string) ([]byte, error) {
	body := &paced{ReadCloser: resp.Body, ctx: ctx, pace: w.paceOf(resp.Request), left: maxMessage}
	text, err := io.ReadAll(body)
	body.Close()
	good := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case err != nil:
	case good && kind == "application/json" && len(text) > 0:
		_, err = w.conn.receive(text, body)
	case strictjson.Values(text) > maxValues: // the SDK looks for a message in any answer
		err = errTooMany
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return text, err
}

// close ends the connections that nobody uses.
func (w *web) close() { w.base.CloseIdleConnections() }
