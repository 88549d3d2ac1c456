// Package redisconn has the connection to the servers of a fleet that the store and the bus share. It reads the URL,
// dials, checks the servers, loads scripts, and sends commands in pipelines. It knows neither sessions nor messages.
//
// It imports registry for the errors that leave the package, and no other package of Farhand. Start at Dial in
// client.go, then read Pipeline in pipeline.go: every command of the store and of the bus goes through one.
package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/farhand/farhand/registry"
)

// DefaultTimeout bounds dialling, one read, one write, and the wait for a connection of a pool, unless Options.Timeout
// is set. It is how long a caller waits for a Redis that does not answer.
const DefaultTimeout = 800 * time.Millisecond

// pool is how many connections a client has per server, how long a command waits for one, and how large their buffers
// are. Commands, sessions and blocking reads never share a pool. A blocked connection would be missing for commands,
// and many devices that connect at the same time would delay calls.
type pool struct {
	size   int
	wait   time.Duration // if longer than the timeout of the servers
	buffer int           // bytes; 0: the default of the client library
}

// The pools of a Conn: for commands, and for opening, changing and releasing sessions. Many devices may come and go at
// the same time, so their commands may wait longer.
var (
	commandPool = pool{size: 64}
	sessionPool = pool{size: 16, wait: 3 * time.Second}
)

// blockingPool is for connections that mostly wait, and need only small buffers.
func blockingPool(size int) pool { return pool{size: size, buffer: 8 << 10} }

// reloadInterval is the age at which a client reloads which member of a Cluster owns which slots. The library's default
// is a minute. A redirection makes it reload immediately, but a replica that was a master takes part of the commands
// without one.
const reloadInterval = 5 * time.Second

// newClient builds a client for the servers at a. It does not dial yet. The client library never sends a command a
// second time, because the command might run twice.
func newClient(a address, p pool) redis.UniversalClient {
	options := &redis.UniversalOptions{
		Addrs: a.hosts, IsClusterMode: a.topology == topologyCluster, MasterName: a.master, DB: a.db,
		Username: a.username, Password: a.password, Dialer: newDialer(a.tlsConfig(), a.timeout),
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: a.timeout, DialerRetries: 1, ReadTimeout: a.timeout, WriteTimeout: a.timeout,
		PoolSize: p.size, PoolTimeout: max(p.wait, a.timeout), PipelinePoolSize: -1,
		ReadBufferSize: p.buffer, WriteBufferSize: p.buffer,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if a.topology == topologyCluster {
		return newClusterClient(options.Cluster())
	}
	return redis.NewUniversalClient(options)
}

// tlsConfig returns the configuration of the servers' TLS, nil without TLS.
func (a address) tlsConfig() *tls.Config {
	if !a.tls {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.roots, GetClientCertificate: a.certificate()}
}

// newClusterClient builds a client that reloads the slot owners whenever a member cannot be reached. Without that, the
// library would keep dialling a dead member after its replica has taken over.
func newClusterClient(options *redis.ClusterOptions) *redis.ClusterClient {
	var client atomic.Pointer[redis.ClusterClient]
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if c := client.Load(); err != nil && c != nil {
			c.ReloadState(ctx) // in the background; concurrent reloads become one
		}
		return conn, err
	}
	options.ClusterStateReloadInterval = reloadInterval
	c := redis.NewClusterClient(options)
	client.Store(c)
	return c
}

// clientLog routes the client library's own messages to Options.Log, at debug level. Everything important is also
// returned as an error.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis client", "detail", fmt.Sprintf(format, v...))
	}
}

// Options configures a Conn.
type Options struct {
	URL    string // see CheckURL
	CAFile string // PEM file of the authorities that may sign the servers' certificates; default: the system's
	// PEM files of this client's certificate and of its private key, read at each connection; default: none
	CertFile, KeyFile string

	Hook redis.Hook   // of the clients for commands and for sessions; default: none
	Log  *slog.Logger // default: discard

	Timeout time.Duration // of dialling, of one read and of one write; default DefaultTimeout

	Replicas int // how many replicas Conn.Confirm waits for; default: none
}

// Conn is a connection to the servers of a fleet: a pool for commands, a pool for sessions, and a way to open further
// connections. It is safe for concurrent use.
type Conn struct {
	addr     address
	client   redis.UniversalClient
	sessions redis.UniversalClient
	opening  sender // over sessions
	forms    *Forms
	replicas int // see Confirm
	confirms *Together[*confirmation]
	warnings []string
	close    func() error
}

// Dial is documented at redisstore.Dial.
func Dial(ctx context.Context, o Options, scripts ...*Scripts) (*Conn, error) {
	addr, err := o.address()
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(clientLog{o.Log})
	c := newConn(addr)
	c.forms, c.replicas = NewForms(o.Log), o.Replicas
	if o.Hook != nil {
		c.client.AddHook(o.Hook)
		c.sessions.AddHook(o.Hook)
	}
	err = c.check(ctx)
	for i := 0; i < len(scripts) && err == nil; i++ {
		err = scripts[i].load(ctx, c)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("redis: %w", err)
	}
	return c, nil
}

// address returns the servers that the options name.
func (o Options) address() (address, error) {
	addr, err := parseURL(o.URL)
	if err != nil {
		return addr, err
	}
	addr.timeout = cmp.Or(o.Timeout, DefaultTimeout)
	return addr, errors.Join(addr.trust(o.CAFile), addr.identify(o.CertFile, o.KeyFile))
}

// newConn returns a connection that has not been dialled.
func newConn(addr address) *Conn {
	addr.timeout = cmp.Or(addr.timeout, DefaultTimeout)
	c := &Conn{
		addr: addr, client: newClient(addr, commandPool), sessions: newClient(addr, sessionPool),
		forms: NewForms(slog.New(slog.DiscardHandler)),
	}
	c.confirms = c.newConfirms()
	c.opening = alone(c.sessions)
	if !c.IsCluster() { // in a cluster, a member that hangs would delay commands for the others
		c.opening = newTogether(alone(c.sessions)).exec
	}
	c.close = sync.OnceValue(func() error { return errors.Join(c.client.Close(), c.sessions.Close()) })
	return c
}

// Warnings returns the problems that Dial found but that do not stop it, in sentences for an operator.
func (c *Conn) Warnings() []string { return c.warnings }

// Forms refuses what a newer release wrote.
func (c *Conn) Forms() *Forms { return c.forms }

// Close ends the connections. Close the clients of NewBlockingClient first.
func (c *Conn) Close() error { return c.close() }

// IsCluster reports whether the servers are a Redis Cluster.
func (c *Conn) IsCluster() bool { return c.addr.topology == topologyCluster }

// Timeout bounds dialling the servers, one read and one write.
func (c *Conn) Timeout() time.Duration { return c.addr.timeout }

// Client returns the client that sends the commands, for operations that Pipeline does not support.
func (c *Conn) Client() redis.UniversalClient { return c.client }

// Pools returns statistics of the pools of connections: for commands, and for sessions.
func (c *Conn) Pools() (commands, sessions *redis.PoolStats) {
	return c.client.PoolStats(), c.sessions.PoolStats()
}

// NewBlockingClient returns a separate client for blocking commands, with at most size connections per server. The
// caller closes it, which also ends blocked commands.
func (c *Conn) NewBlockingClient(size int) redis.UniversalClient {
	return newClient(c.addr, blockingPool(size))
}

// EachMaster calls fn for every server that takes writes, for several concurrently.
func (c *Conn) EachMaster(ctx context.Context, fn func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return fn(ctx, c) })
	}
	return fn(ctx, c.client)
}

// Unavailable translates an error of the client library, so that no such error leaves the store or the bus. It returns
// nil and translated errors unchanged.
func Unavailable(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *registry.Error
	if errors.As(err, &known) {
		return err
	}
	return registry.StoreUnavailable(op, err)
}

// Escape makes a part of a key. It keeps letters, digits, '.', '_' and '-', and percent-encodes every other byte. So no
// text of a device or a caller can end a hash tag, reach another key, or look like a separator.
func Escape(s string) string {
	plain := 0
	for plain < len(s) && isPlain(s[plain]) {
		plain++
	}
	if plain == len(s) {
		return s
	}
	const digits = "0123456789ABCDEF"
	b := []byte(s[:plain])
	for _, c := range []byte(s[plain:]) {
		if isPlain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
}
