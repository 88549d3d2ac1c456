package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/gorilla/websocket"
)

type config struct {
	token, session, name           string
	deviceID, deviceName, platform string
	credential                     Credential
	journal                        string // file; empty: none
	labels                         map[string]string

	tools    []offer
	fallback Handler
	approver Approver
	wake     func(WakeOffer) *Wake
	onState  func(State)

	parallelism                     int
	writeLimit                      int // zero: what the gateway announces
	readLimit                       int64
	minBackoff, maxBackoff, silence time.Duration
	serverWait                      time.Duration // time for an MCP server to read one message

	tls *tls.Config
	log *slog.Logger
}

type offer struct {
	tool    Tool
	handler Handler // nil: the fallback
}

func (c *config) validate() error {
	switch {
	case c.parallelism < 1:
		return errors.New("client: the parallelism must be at least 1")
	case c.minBackoff <= 0 || c.maxBackoff < c.minBackoff:
		return fmt.Errorf("client: the back-off must grow from a positive delay: %v to %v", c.minBackoff, c.maxBackoff)
	case c.silence <= 0 || c.readLimit <= 0 || c.writeLimit < 0:
		return errors.New("client: limits must be positive")
	}
	if c.credential.Token != "" { // WithDevice does not override it
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

// WithToken sets the bearer token. The client sends it in the Authorization header.
func WithToken(token string) Option { return func(c *config) { c.token = token } }

// WithCredential makes the client the paired device of a credential from Pair. It sets the token and the device id. If
// the credential has a key, the client also signs each connection. It replaces WithToken.
func WithCredential(cr Credential) Option {
	return func(c *config) { c.credential, c.token, c.deviceID = cr, cr.Token, cr.DeviceID }
}

// WithSession requests a session id, to resume the same session after a restart. Without it the gateway chooses one,
// which the client keeps across reconnects.
func WithSession(id string) Option { return func(c *config) { c.session = id } }

// WithJournal keeps the session, its resume token, and the calls with their answers in a file, so that a restart of the
// program forgets nothing: it has the same session, sends unacknowledged answers again, and runs no call twice. A call
// is written down, on the disk, before its handler runs. If the program ends during it, the next one answers it with an
// error. Only the file's user can read it; one Client may use it at a time. Run fails if it cannot be opened. It does
// not apply to RunMCP.
func WithJournal(path string) Option { return func(c *config) { c.journal = path } }

// WithName sets the label people see for the session.
func WithName(name string) Option { return func(c *config) { c.name = name } }

// WithDevice identifies the device: a stable id, a display name, and a platform. Empty values are not sent.
func WithDevice(id, name, platform string) Option {
	return func(c *config) { c.deviceID, c.deviceName, c.platform = id, name, platform }
}

// WithLabels sets the labels by which callers can select the device.
func WithLabels(labels map[string]string) Option {
	labels = maps.Clone(labels)
	return func(c *config) { c.labels = labels }
}

// WithTool offers a tool. If the handler is nil, the handler of WithHandler answers its calls.
func WithTool(t Tool, h Handler) Option {
	return func(c *config) { c.tools = append(c.tools, offer{t, h}) }
}

// WithHandler sets the handler for tools offered without one.
func WithHandler(h Handler) Option { return func(c *config) { c.fallback = h } }

// WithApprover sets the function that asks the person at the device about calls that need approval. Without it, only
// other approvers are asked.
func WithApprover(a Approver) Option { return func(c *config) { c.approver = a } }

// WithParallelism sets how many handlers run at once. Further calls wait. Default: 16.
func WithParallelism(n int) Option { return func(c *config) { c.parallelism = n } }

// WithBackoff sets the bounds of the delay before a reconnect. The first delay is a random time up to minimum. The
// upper bound doubles after each failure, up to maximum. Defaults: 500 ms and 30 s.
func WithBackoff(minimum, maximum time.Duration) Option {
	return func(c *config) { c.minBackoff, c.maxBackoff = minimum, maximum }
}

// WithSilence sets how long the gateway may send nothing, not even a ping, before the connection counts as dead. It
// must be longer than the gateway's ping interval. Default: 60 s.
func WithSilence(d time.Duration) Option { return func(c *config) { c.silence = d } }

// WithFrameLimits sets the largest received and sent frames, in bytes. A larger output fails the call, because the
// gateway would close the connection over it. Write zero for what the gateway announces, which is the default: its
// largest frame, and its largest output for answers; 1 MiB if it announces nothing. The default of read is 4 MiB.
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

// Errors with which Run returns before its context ends, because reconnecting would not help.
var (
	// ErrEnded means that the gateway ended the session for good.
	ErrEnded = errors.New("client: the gateway ended the session")
	// ErrRefused means that the gateway rejects the token or the parameters. The error is a *RefusedError.
	ErrRefused = errors.New("client: the gateway refused the connection")
	// ErrServer means that the MCP server of RunMCP ended, or does not speak MCP correctly.
	ErrServer = errors.New("client: the MCP server ended or violated MCP")
	// ErrUnpaired means that the client has no token, and the gateway pairs devices. Use Pair.
	ErrUnpaired = errors.New("client: the device has no token; get a credential with Pair")
)

// Values of State.Err when another connection has the session. The client then reconnects with growing delays. Without
// a resume token, Run returns them.
var (
	// ErrReplaced means that a newer connection took over the session.
	ErrReplaced = errors.New("client: a newer connection took over the session")
	// ErrHeld means that another device is connected, and this one cannot prove to be the same.
	ErrHeld = errors.New("client: the session belongs to another connected device")
)

// RefusedError means that the gateway answered a request with an HTTP error.
type RefusedError struct {
	Status int    // of the response
	Code   string // the gateway's error code; empty if the answer is not from a gateway
	Detail string // for people

	retryAfter time.Duration
}

// Error implements error.
func (e *RefusedError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%v: HTTP status %d", ErrRefused, e.Status)
	}
	return fmt.Sprintf("%v: HTTP status %d, %s: %s", ErrRefused, e.Status, e.Code, e.Detail)
}

// Is makes errors.Is(err, ErrRefused) hold.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// final returns the error with which Run ends after err, nil if it should reconnect.
func final(err error) error {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		switch refused.Status {
		case 400, 401, 403: // the same request would be rejected again
			return refused
		}
		return nil
	}
	closed, ok := errors.AsType[*websocket.CloseError](err)
	switch {
	case !ok || rival(err) != nil:
		return nil
	case closed.Code == websocket.CloseProtocolError && closed.Text == "mcp_failed":
		return ErrServer
	case closed.Code != websocket.CloseNormalClosure:
		return nil
	case closed.Text == "pairing_required":
		return ErrUnpaired
	}
	return fmt.Errorf("%w: %s", ErrEnded, closed.Text)
}

// rival returns ErrReplaced or ErrHeld if err means that another connection has the session, else nil.
func rival(err error) error {
	closed, ok := errors.AsType[*websocket.CloseError](err)
	switch {
	case !ok || closed.Code != websocket.CloseNormalClosure:
		return nil
	case closed.Text == "session_replaced":
		return ErrReplaced
	case closed.Text == "session_owner_mismatch":
		return ErrHeld
	}
	return nil
}
