// Package client is a device in Go. It connects to a Farhand gateway, offers tools, and answers the calls to them.
//
//	c, err := client.New("wss://gateway.example.com",
//		client.WithToken(token),
//		client.WithTool(client.Tool{Name: "battery", Description: "Charge of the battery in percent"}, battery))
//	...
//	err = c.Run(ctx)
//
// Run keeps the connection. It reconnects with growing, jittered delays and registers the tools again each time, until
// its context ends or the gateway says not to reconnect. Each call is answered once, however often the gateway sends
// it. A panic in a handler does not end the process. RunMCP connects an MCP server on stdio instead of tools in Go.
//
// The package imports nothing of Farhand. Start at Client.Run in client.go. link.go is one connection and has the
// frames, calls.go runs handlers and keeps answers until the gateway has acknowledged them, journal.go keeps them in a
// file, chat.go is the conversation.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// Client is one device. Its methods are safe for concurrent use.
type Client struct {
	cfg     config
	url     *url.URL
	calls   calls
	asking  sync.WaitGroup // of questions
	running atomic.Bool
	links   atomic.Int64
	pace    pace

	ready     chan struct{}
	readyOnce sync.Once

	rotation   sync.Mutex                 // held during Rotate
	credential atomic.Pointer[Credential] // with WithCredential; Rotate replaces it

	registration sync.Mutex // keeps the frames about tools and presence in order; held during their writes
	foreground   *bool      // as last reported; nil: never. Guarded by registration

	mu      sync.Mutex // never held during writes
	offers  map[string]offer
	session string
	token   string // proves that this is the same device; empty before the first session_start
	limits  limits // that the gateway announced; zero: none
	link    *link  // nil before session_start, and while disconnected
	turn    *turn  // of the conversation; nil: none

	asked map[string]context.CancelCauseFunc // questions without an answer, by the id of the approval

	lost [][]byte // answers to lost calls of an ended MCP server, for the next connection
}

// New returns a client for the gateway at address, a ws, wss, http or https URL. The default path is /ws/chat. New does
// not connect; Run does.
func New(address string, options ...Option) (*Client, error) {
	u, err := endpoint(address)
	if err != nil {
		return nil, fmt.Errorf("client: the address %q: %w", address, err)
	}
	cfg := config{
		parallelism: 16, readLimit: 4 << 20,
		minBackoff: 500 * time.Millisecond, maxBackoff: 30 * time.Second,
		silence: time.Minute, serverWait: serverWriteTimeout,
		onState: func(State) {}, log: slog.New(slog.DiscardHandler),
	}
	for _, o := range options {
		o(&cfg)
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, url: u,
		calls: calls{
			slots:   make(chan struct{}, cfg.parallelism),
			pending: make(map[string]pending), slotsAsked: make(map[string]chan<- *received),
		},
		ready: make(chan struct{}), offers: make(map[string]offer), asked: make(map[string]context.CancelCauseFunc),
		session: cfg.session,
	}
	if cfg.credential.Token != "" {
		credential := cfg.credential
		credential.Token = cfg.token
		c.credential.Store(&credential)
	}
	c.pace.limit(limits{})
	for _, o := range cfg.tools {
		c.offers[o.tool.Name] = o
	}
	return c, nil
}

// Ready returns a channel that is closed when the gateway has answered the first registration. From then on the tools
// can be called.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// SessionID returns the session's id, empty until the gateway has chosen one.
func (c *Client) SessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Run connects and keeps reconnecting until ctx ends, or until reconnecting is pointless. It returns the error of ctx,
// ErrEnded, ErrUnpaired, ErrReplaced or ErrHeld without a resume token, a *RefusedError, or the error of the journal.
// Before it returns, it cancels the contexts of the running handlers and of the approver, waits for them, and sends
// their answers if they end within two seconds. Only one Run may be active.
func (c *Client) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("client: Run is already active")
	}
	defer c.running.Store(false)
	forget, err := c.remember()
	if err != nil {
		return err
	}
	defer forget()
	c.calls.reopen()
	defer c.calls.done.Wait()
	defer c.asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return c.stay(ctx, traffic{open: c.attach, send: c.resend, receive: c.handle})
}

// traffic is what the client does on each connection.
type traffic struct {
	open    func(*link)                          // runs first
	send    func(context.Context, *link)         // runs in a goroutine until the connection ends
	receive func(context.Context, *link, []byte) // takes one frame of the gateway after another
}

// stay makes one connection after another, as documented at Run.
func (c *Client) stay(ctx context.Context, t traffic) error {
	retry := backoff{min: c.cfg.minBackoff, max: c.cfg.maxBackoff}
	rivals := retry
	for {
		begin := time.Now()
		atLeast, err := c.connect(ctx, t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if last := final(err); last != nil {
			c.cfg.log.Warn("not reconnecting", "error", last)
			return last
		}
		lasted := time.Since(begin)
		if lasted >= stableAfter || websocket.IsCloseError(err, websocket.CloseServiceRestart) {
			retry.reset() // a stopping pod sends its devices to another pod, which is no failure
		}
		if lasted >= rivalGoneAfter {
			rivals.reset()
		}
		delay := time.Duration(0)
		switch taken := rival(err); {
		case taken == nil:
			delay = retry.next(atLeast)
		case !c.mayReturn():
			c.cfg.log.Warn("not reconnecting", "error", taken)
			return taken
		default:
			err, delay = taken, rivals.nextRival()
		}
		c.cfg.log.Info(whyDisconnected(err), "error", err, "retry_in", delay.Round(time.Millisecond).String())
		c.cfg.onState(State{Phase: PhaseWaiting, SessionID: c.SessionID(), Err: err, RetryIn: delay})
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// mayReturn reports whether the client may reconnect while another connection has the session. Devices that speak MCP
// have no token.
func (c *Client) mayReturn() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token != "" || strings.HasSuffix(c.url.Path, pathMCP)
}

func whyDisconnected(err error) string {
	var refused *RefusedError
	var dial *net.OpError
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refused):
		return "the gateway refused the connection"
	case errors.As(err, &name):
		return "the gateway's host name does not resolve; check the URL"
	case errors.As(err, &certificate):
		return "the gateway's certificate is not trusted"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "no gateway answers at this address; check that it runs, and the URL"
	default:
		return "disconnected"
	}
}

// connect makes one connection and serves it until it ends. atLeast is the delay before the next connection that the
// gateway asks for.
func (c *Client) connect(ctx context.Context, t traffic) (atLeast time.Duration, err error) {
	c.cfg.onState(State{Phase: PhaseConnecting, SessionID: c.SessionID()})
	l, err := c.dial(ctx)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.retryAfter, err
	}
	if err != nil {
		return 0, err
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer l.conn.Close()
	defer l.closeWhenDone(ctx, c.calls.end)()
	defer c.detach(l)
	t.open(l)
	linked, unlink := context.WithCancel(ctx)
	defer unlink()
	sending.Go(func() { t.send(linked, l) })
	for {
		kind, data, err := l.conn.ReadMessage()
		if err != nil {
			return max(time.Until(l.backAt), 0), err
		}
		l.extendReadDeadline()
		if kind == websocket.TextMessage {
			t.receive(ctx, l, data)
		}
	}
}

// handle handles one frame. It ignores unknown frames, which are from a newer gateway.
func (c *Client) handle(ctx context.Context, l *link, data []byte) {
	f := &received{}
	if err := json.Unmarshal(data, f); err != nil {
		c.cfg.log.Warn("frame not understood", "error", err)
		return
	}
	switch f.Type {
	case "session_start":
		c.begin(l, f)
	case "connected":
		c.registerWake(l, f.Wake)
	case "default_set":
		c.cfg.log.Info("the device is its user's default", "device", f.DeviceID)
	case "tools_registered":
		c.registered(l, f)
	case "tool_call_request":
		c.startCall(ctx, f)
	case "tool_call_cancel":
		c.cancelCall(f.ID, f.Reason)
	case "approval_request":
		c.ask(ctx, f)
	case "approval_decided":
		c.endQuestion(f.ID, fmt.Errorf("the approval is already %s", f.State))
	case "server_draining":
		// The gateway closes when the running calls are answered. Calls that take too long are answered on the next
		// connection.
		wait := time.Duration(min(f.RetryAfterMS, maxDeadlineMS)) * time.Millisecond
		l.backAt = time.Now().Add(wait)
		c.cfg.onState(State{Phase: PhaseDraining, SessionID: c.SessionID(), RetryIn: wait})
	case "upload_slot":
		c.slotCame(f)
	case "result_acknowledged":
		c.acknowledged(f.ID)
		if f.Ignored {
			c.cfg.log.Debug("answer came too late", "call", f.ID)
		}
	case "error":
		if !c.failTurn(f) {
			c.cfg.log.Warn("the gateway reported an error", "code", f.Code, "message", f.Message)
		}
	default:
		c.turnFrame(f, data)
	}
}

// acknowledged keeps of an answer only that it was acknowledged.
func (c *Client) acknowledged(id string) {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	kept := c.calls.answers.acknowledge(id)
	if kept == nil || c.calls.journal == nil {
		return
	}
	done := keptCall{At: kept.at.UnixMilli(), Acknowledged: true}
	if err := c.calls.journal.put(callPrefix+id, done, false); err != nil {
		c.cfg.log.Error("acknowledgement not recorded", "call", id, "error", err)
	}
}

// registered reports a registration. The client is ready after the last answer to the opening registration.
func (c *Client) registered(l *link, f *received) {
	for _, r := range f.Rejected {
		c.cfg.log.Warn("tool rejected", "tool", r.Name, "reason", r.Reason)
	}
	c.mu.Lock()
	l.registering--
	opened := l.registering <= 0
	c.mu.Unlock()
	c.cfg.onState(State{
		Phase: PhaseConnected, SessionID: c.SessionID(), Resumed: l.resumed,
		Registered: f.Registered, Rejected: f.Rejected,
	})
	if opened {
		c.readyOnce.Do(func() { close(c.ready) })
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Phase is the state of the connection.
type Phase string

// The phases.
const (
	PhaseConnecting Phase = "connecting"
	PhaseConnected  Phase = "connected" // the gateway has answered a registration; repeated after each change
	PhaseDraining   Phase = "draining"  // the pod stops: it waits for the running calls, and then ends the connection
	PhaseWaiting    Phase = "waiting"   // waiting for the next attempt
)

// State is passed to the function of WithState.
type State struct {
	Phase      Phase
	SessionID  string        // empty until the gateway has chosen one
	Resumed    bool          // with PhaseConnected: the session existed before
	Registered int           // with PhaseConnected: how many tools the session offers
	Rejected   []Rejection   // with PhaseConnected: tools the last registration rejected
	Err        error         // with PhaseWaiting: why the last attempt ended
	RetryIn    time.Duration // with PhaseWaiting; with PhaseDraining at least
}

// How long a connection must have lasted.
const (
	stableAfter    = 5 * time.Second // for the next failure to count as the first
	rivalGoneAfter = 5 * time.Minute // for a rival to count as gone
)

// backoff computes the delays before reconnects, with full jitter, so that devices that lost their gateway together do
// not reconnect together.
type backoff struct {
	min, max time.Duration
	ceiling  time.Duration // of the next delay
}

// next returns the delay after a failure. atLeast is the delay that the gateway asked for.
func (b *backoff) next(atLeast time.Duration) time.Duration {
	if b.ceiling == 0 {
		b.ceiling = b.min
	}
	delay := rand.N(b.ceiling)
	b.ceiling = min(2*b.ceiling, b.max)
	return atLeast + delay
}

// nextRival returns the delay before a connection that may take the session from another one. At least half of it is
// not random, so that two clients with the same session do not take it from one another all the time.
func (b *backoff) nextRival() time.Duration {
	least := b.ceiling / 2
	if b.ceiling == 0 {
		least = b.min / 2
	}
	return least + b.next(0)/2
}

func (b *backoff) reset() { b.ceiling = 0 }

// The rates of a gateway that announces none.
const (
	defaultPerSecond = 500
	defaultBurst     = 1000
)

// maxBurst keeps the pace's arithmetic within a Duration.
const maxBurst = 1 << 20

// pace limits how fast frames are sent that the gateway has not asked for, to two fifths of the announced rates. It is
// safe for concurrent use.
type pace struct {
	mu       sync.Mutex
	interval time.Duration
	burst    time.Duration // how far ahead of an even pace frames may be
	next     time.Time     // when the next frame would be due at an even pace
}

// limit sets the rates that the gateway announced.
func (p *pace) limit(l limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interval = 5 * time.Second / 2 / time.Duration(cmp.Or(l.PerSecond, defaultPerSecond))
	frames := min(max(cmp.Or(l.Burst, defaultBurst)/5, 1), maxBurst)
	p.burst = time.Duration(frames-1) * p.interval
}

// reserve reserves one frame and returns how long to wait before sending it. With tryOnly it reserves only if no wait
// is needed.
func (p *pace) reserve(now time.Time, tryOnly bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now) - p.burst
	if wait <= 0 || !tryOnly {
		p.next = p.next.Add(p.interval)
	}
	return max(wait, 0)
}

func (p *pace) wait(ctx context.Context) error {
	if d := p.reserve(time.Now(), false); d > 0 {
		return sleep(ctx, d)
	}
	return ctx.Err()
}
