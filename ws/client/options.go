package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"
)

// Defaults.
const (
	DefaultParallelism = 16
	DefaultMinBackoff  = 500 * time.Millisecond
	DefaultMaxBackoff  = 30 * time.Second
	DefaultSilence     = 60 * time.Second
	DefaultReadLimit   = 4 << 20
	DefaultWriteLimit  = 1 << 20
)

type config struct {
	token       string
	credential  Credential
	session     string
	name        string
	deviceID    string
	deviceName  string
	platform    string
	labels      map[string]string
	tools       []offer
	fallback    Handler
	approver    Approver
	parallelism int
	minBackoff  time.Duration
	maxBackoff  time.Duration
	silence     time.Duration
	serverWait  time.Duration // for an MCP server to read one message
	readLimit   int64
	writeLimit  int
	tls         *tls.Config
	onState     func(State)
	log         *slog.Logger
}

// offer is a tool with its handler.
type offer struct {
	tool    Tool
	handler Handler // nil: the fallback
}

func defaults() config {
	return config{
		parallelism: DefaultParallelism, minBackoff: DefaultMinBackoff, maxBackoff: DefaultMaxBackoff,
		silence: DefaultSilence, serverWait: serverWriteTimeout,
		readLimit: DefaultReadLimit, writeLimit: DefaultWriteLimit,
		onState: func(State) {}, log: slog.New(slog.DiscardHandler),
	}
}

func (c *config) validate() error {
	switch {
	case c.parallelism < 1:
		return errors.New("client: the parallelism must be at least 1")
	case c.minBackoff <= 0 || c.maxBackoff < c.minBackoff:
		return fmt.Errorf("client: the back-off must grow from a positive delay: %v to %v", c.minBackoff, c.maxBackoff)
	case c.silence <= 0 || c.readLimit <= 0 || c.writeLimit <= 0:
		return errors.New("client: limits must be positive")
	}
	if c.credential.Token != "" { // whatever WithDevice says
		c.deviceID = c.credential.DeviceID
	}
	for _, o := range c.tools {
		if err := o.tool.validate(); err != nil {
			return err
		}
	}
	return nil
}

// Option configures a Client.
type Option func(*config)

// WithToken sets the bearer token. It travels in the Authorization header.
func WithToken(token string) Option { return func(c *config) { c.token = token } }

// WithCredential has the client be the paired device of a credential, as Pair returns it: the token, the device id and,
// if there is a key, a signature for each connection. It takes the place of WithToken.
func WithCredential(cr Credential) Option {
	return func(c *config) { c.credential, c.token, c.deviceID = cr, cr.Token, cr.DeviceID }
}

// WithSession asks for a session id, to come back to the same session after a restart. Without it the gateway
// chooses one, which the client keeps over reconnects.
func WithSession(id string) Option { return func(c *config) { c.session = id } }

// WithName sets the label people see for the session.
func WithName(name string) Option { return func(c *config) { c.name = name } }

// WithDevice says which device this is: a stable id, a name for people, and a platform. Empty values are not sent.
func WithDevice(id, name, platform string) Option {
	return func(c *config) { c.deviceID, c.deviceName, c.platform = id, name, platform }
}

// WithLabels sets the labels callers can address the device by.
func WithLabels(labels map[string]string) Option {
	labels = maps.Clone(labels)
	return func(c *config) { c.labels = labels }
}

// WithTool offers a tool. A nil handler leaves its calls to the handler of WithHandler.
func WithTool(t Tool, h Handler) Option {
	return func(c *config) { c.tools = append(c.tools, offer{t, h}) }
}

// WithHandler sets the handler of the tools that were offered without one.
func WithHandler(h Handler) Option { return func(c *config) { c.fallback = h } }

// WithApprover has the person at the device be asked about calls that somebody must approve. Without it they are asked
// elsewhere only.
func WithApprover(a Approver) Option { return func(c *config) { c.approver = a } }

// WithParallelism sets how many handlers run at once; further calls wait their turn. Default 16.
func WithParallelism(n int) Option { return func(c *config) { c.parallelism = n } }

// WithBackoff sets the bounds of the delay before a reconnect: a random time up to minimum at first, up to twice as
// much after each failure, never more than maximum. Defaults: 500 ms and 30 s.
func WithBackoff(minimum, maximum time.Duration) Option {
	return func(c *config) { c.minBackoff, c.maxBackoff = minimum, maximum }
}

// WithSilence sets how long the gateway may send nothing, not even a ping, before the connection counts as dead.
// It must be longer than the gateway's ping interval. Default 60 s.
func WithSilence(d time.Duration) Option { return func(c *config) { c.silence = d } }

// WithFrameLimits sets the largest frame accepted and the largest one sent, in bytes. An output that is too large is
// answered as a failure, because the gateway would drop the connection over it. Defaults: 4 MiB and 1 MiB.
func WithFrameLimits(read int64, write int) Option {
	return func(c *config) { c.readLimit, c.writeLimit = read, write }
}

// WithTLS sets the TLS configuration for wss and https addresses.
func WithTLS(t *tls.Config) Option { return func(c *config) { c.tls = t } }

// WithState sets a function that Run's goroutine calls with every change of the connection, in order. It must return
// quickly and must not call Run.
func WithState(f func(State)) Option { return func(c *config) { c.onState = f } }

// WithLogger sets the logger. Default: discard.
func WithLogger(l *slog.Logger) Option { return func(c *config) { c.log = l } }
