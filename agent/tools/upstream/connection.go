package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
)

const (
	sessionEndTimeout = time.Second      // for a clean end of the session
	closeTimeout      = 10 * time.Second // for the SDK to release a closed connection

	requestRate  = 1  // requests of a server to the gateway, a second
	requestBurst = 60 // the same, in a burst

	// olderRevision is the protocol revision that every second attempt starts with. A server that knows no later
	// revision may not answer a request of the latest revision.
	olderRevision = "2025-11-25"
)

// Errors that end connections.
var (
	errFlood = errors.New("the server sends too many requests to the gateway")
	errCut   = errors.New("the connection was closed")
	errPanic = errors.New("a message of the server made the MCP library fail")
)

type connection struct {
	server  *Server
	session *mcp.ClientSession
	ctx     context.Context // ends with the connection; its cause is the reason
	end     context.CancelCauseFunc
	inUse   context.Context // ends when new calls need another connection; its cause is the reason
	leave   context.CancelCauseFunc
	changed chan struct{}  // capacity 1: the tools have changed
	pages   map[string]int // bytes of each list page that the SDK caches, by cursor
	cached  int            // bytes of all pages

	link     interface{ close() }
	program  *program // nil for a URL
	paces    *paces
	progress reports
	decoding *share.Pool // memory of answers, of all connections of the pod
	first    *attempt    // gets the answers until the session has begun
	tasks    sync.WaitGroup

	listing  atomic.Bool             // a list of tools is in progress
	calls    sync.WaitGroup          // in flight
	mu       sync.Mutex              // held to add a call
	asked    map[jsonrpc.ID]*attempt // requests to a program that wait for an answer; nil for a URL
	taskOnly map[string]bool         // listed tools that only run as tasks, by name
}

// connect connects to a server within s.Connect. With old, it starts with the protocol revision in before.
func (c *Config) connect(ctx context.Context, s *Server, paces *paces, old bool) (*connection, error) {
	conn := &connection{
		server: s, changed: make(chan struct{}, 1), pages: make(map[string]int), taskOnly: make(map[string]bool),
		paces: paces, decoding: c.decoding, asked: make(map[jsonrpc.ID]*attempt), first: new(attempt),
	}
	defer conn.first.answers.finish()
	conn.ctx, conn.end = context.WithCancelCause(ctx)
	conn.inUse, conn.leave = context.WithCancelCause(conn.ctx)
	transport, err := conn.open(c)
	if err != nil {
		conn.end(err)
		return nil, err
	}
	late := time.AfterFunc(s.Connect, func() { conn.end(fmt.Errorf("no answer within %v", s.Connect)) })
	options := &mcp.ClientSessionOptions{}
	if old {
		options.ProtocolVersion = olderRevision
	}
	conn.session, err = conn.client(c.Version).Connect(conn.ctx, closingTransport{transport, conn}, options)
	if late.Stop(); err != nil {
		err = conn.why(conn.ctx, err)
		conn.close()
		return nil, err
	}
	conn.tasks.Go(func() { // ends with the session, which close ends
		err := conn.session.Wait()
		conn.end(fmt.Errorf("the connection has ended: %w", errors.Join(err, errors.New("the server has closed it"))))
	})
	return conn, nil
}

func (c *connection) open(cfg *Config) (mcp.Transport, error) {
	if c.server.URL != "" {
		w := newWeb(c)
		c.link = w
		return &mcp.StreamableClientTransport{
			Endpoint: c.server.URL, HTTPClient: w.client, MaxEventSize: maxMessage,
		}, nil
	}
	p, err := cfg.start(c.ctx, c.server)
	if err != nil {
		return nil, err
	}
	c.link, c.program = p, p
	output := &paced{ReadCloser: p.stdout, ctx: c.ctx, pace: c.paces.forTenant(""), left: -1}
	return &mcp.IOTransport{
		Reader: newGate(output, c, false), Writer: deadlineWriter{p.stdin, c}, MaxLineLength: maxMessage,
	}, nil
}

// closingTransport closes the SDK's connection when ours ends. The SDK leaves an unusable connection open, and waits
// for some answers longer than its context allows.
type closingTransport struct {
	mcp.Transport
	conn *connection
}

func (k closingTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	made, err := k.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	k.conn.tasks.Add(1)
	context.AfterFunc(k.conn.ctx, func() {
		defer k.conn.tasks.Done()
		_ = made.Close()
	})
	if k.conn.program != nil {
		return trackedConnection{made, k.conn, make(chan struct{}, 1), new(atomic.Int64)}, nil
	}
	return made, nil
}

// client returns the SDK's client. It offers servers no capabilities: no sampling, no elicitation, no roots.
func (c *connection) client(version string) *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "farhand", Version: version}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case c.changed <- struct{}{}:
			default: // already pending
			}
		},
	})
	client.AddReceivingMiddleware(refuse)
	client.AddSendingMiddleware(trim)
	return client
}

// refuse passes on only what the gateway serves: the server's pings, and the notifications that the SDK needs. The SDK
// would serve more, such as completions, for which it asks the server, or what belongs to elicitations.
func refuse(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "ping", "notifications/cancelled", "notifications/tools/list_changed",
			"notifications/subscriptions/acknowledged":
			return safely(next)(ctx, method, req)
		}
		if strings.HasPrefix(method, "notifications/") {
			return nil, nil
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Not offered: " + method}
	}
}

// safely turns a panic of the SDK about a message of the server into an error. It would end the pod otherwise.
func safely(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				res, err = nil, fmt.Errorf("%w, at %s: %v", errPanic, method, p)
			}
		}()
		return next(ctx, method, req)
	}
}

// why returns the reason why a connection or a list failed, with the program's stderr if there is any.
func (c *connection) why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if c.program == nil {
		return err
	}
	select {
	case <-c.program.ended:
		err = c.program.err
	default:
	}
	if said := c.program.stderr.String(); said != "" {
		err = fmt.Errorf("%w; it says: %s", err, said)
	}
	return err
}

// enter adds a call to calls. It returns false if the connection takes no new calls.
func (c *connection) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inUse.Err() != nil {
		return false
	}
	c.calls.Add(1)
	return true
}

// finish takes no new calls, and closes the connection after its calls in flight have ended. A server that stops
// gracefully still answers them.
func (c *connection) finish() {
	c.mu.Lock()
	c.leave(errCut)
	c.mu.Unlock()
	_ = pause.Wait(c.ctx, &c.calls)
	c.close()
}

// close ends the connection, and waits up to closeTimeout until its goroutines have ended.
func (c *connection) close() {
	if c.session != nil {
		c.tasks.Go(func() { _ = c.session.Close() })
		polite := time.AfterFunc(sessionEndTimeout, func() { c.end(errCut) })
		<-c.ctx.Done() // the session has ended, or sessionEndTimeout has passed
		polite.Stop()
	}
	c.end(errCut)
	c.link.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = pause.Wait(ctx, &c.tasks) // of the SDK, whose requests have all ended
}
