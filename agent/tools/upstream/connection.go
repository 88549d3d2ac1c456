package upstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	farewell     = time.Second      // for a server to hear that the connection ends
	closeTimeout = 10 * time.Second // for the SDK to let go of a connection that was cut

	requestRate  = 1  // requests of a server to us, a second
	requestBurst = 60 // of those at once

	// before is the revision that every second attempt begins with: a server that knows no later one may not answer
	// the question of the latest at all.
	before = "2025-11-25"
)

// What ends connections.
var (
	errFlood = errors.New("the server asks the gateway for something all the time")
	errCut   = errors.New("the connection was closed")
)

// connection is one connection to a server, from its beginning to its end.
type connection struct {
	server  *Server
	session *mcp.ClientSession
	ctx     context.Context // ends with the connection; its cause is why
	end     context.CancelCauseFunc
	inUse   context.Context // ends when calls that begin need another connection; its cause is why
	leave   context.CancelCauseFunc
	changed chan struct{}  // has room for one: the tools are others now
	pages   map[string]int // bytes of each page of the list that the SDK keeps, by its cursor

	way      interface{ close() }
	program  *program // nil: a URL
	paces    *paces
	progress reports
	tasks    sync.WaitGroup

	listing  atomic.Bool // a list of tools is read
	mu       sync.Mutex
	taskOnly map[string]bool // tools of the list that run as tasks only, by name
	calls    int             // that are at the server
	idle     chan struct{}   // closed when there are none; nil: nobody waits for that
}

// connect connects to a server within its time. old says to begin with the revision before the latest.
func (c *Config) connect(ctx context.Context, s *Server, paces *paces, old bool) (*connection, error) {
	conn := &connection{
		server: s, changed: make(chan struct{}, 1), pages: make(map[string]int), taskOnly: make(map[string]bool),
		paces: paces,
	}
	conn.ctx, conn.end = context.WithCancelCause(ctx)
	conn.inUse, conn.leave = context.WithCancelCause(conn.ctx)
	transport, err := conn.open(c)
	if err != nil {
		conn.end(err)
		return nil, err
	}
	late := time.AfterFunc(s.Connect, func() { conn.end(fmt.Errorf("it has not answered within %v", s.Connect)) })
	options := &mcp.ClientSessionOptions{}
	if old {
		options.ProtocolVersion = before
	}
	conn.session, err = conn.client(c.Version).Connect(conn.ctx, keeping{transport, conn}, options)
	if late.Stop(); err != nil {
		err = conn.why(conn.ctx, err)
		conn.close()
		return nil, err
	}
	conn.tasks.Go(func() { // ends with the session, which close sees to
		err := conn.session.Wait()
		conn.end(fmt.Errorf("the connection has ended: %w", errors.Join(err, errors.New("the server has closed it"))))
	})
	return conn, nil
}

// open opens the way to the server.
func (c *connection) open(cfg *Config) (mcp.Transport, error) {
	if c.server.URL != "" {
		w := newWeb(c)
		c.way = w
		return w.transport(), nil
	}
	p, err := cfg.start(c.ctx, c.server, c.paces.of(""))
	if err != nil {
		return nil, err
	}
	c.way, c.program = p, p
	return p.transport(c), nil
}

// keeping closes the SDK's connection when ours ends: the SDK leaves it open when it cannot be used, and waits for some
// answers longer than its context.
type keeping struct {
	mcp.Transport
	conn *connection
}

// Connect implements mcp.Transport.
func (k keeping) Connect(ctx context.Context) (mcp.Connection, error) {
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
		return marking{made, k.conn, new(atomic.Int64)}, nil
	}
	return made, nil
}

// client returns the SDK's client, which offers a server nothing: no model, no person, no folder.
func (c *connection) client(version string) *mcp.Client {
	client := mcp.NewClient(&mcp.Implementation{Name: "farhand", Version: version}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			select {
			case c.changed <- struct{}{}:
			default: // it is known already
			}
		},
	})
	client.AddReceivingMiddleware(refuse)
	client.AddSendingMiddleware(trim)
	return client
}

// refuse refuses what a server asks for.
func refuse(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "sampling/createMessage", "elicitation/create", "roots/list":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Not offered: " + method}
		}
		return next(ctx, method, req)
	}
}

// why returns why a connection did not come about.
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

// enter counts a call that begins, and reports whether it may: it may not once the connection is left.
func (c *connection) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inUse.Err() != nil {
		return false
	}
	c.calls++
	return true
}

// exit counts a call that has ended.
func (c *connection) exit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls == 0 && c.idle != nil {
		close(c.idle)
	}
}

// finish closes a connection that was left, once the calls at the server have ended: a server that stops gracefully
// answers them although it takes no others.
func (c *connection) finish() {
	c.mu.Lock()
	if c.calls > 0 {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-c.ctx.Done():
		}
	}
	c.close()
}

// close cuts the connection, and waits until nothing of it is left.
func (c *connection) close() {
	if c.session != nil {
		c.tasks.Go(func() { _ = c.session.Close() })
		polite := time.AfterFunc(farewell, func() { c.end(errCut) })
		<-c.ctx.Done() // the session has ended, or its time is up
		polite.Stop()
	}
	c.end(errCut)
	c.way.close()
	done := make(chan struct{})
	go func() { // ends with the SDK's goroutines, all of whose requests were ended
		defer close(done)
		c.tasks.Wait()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
