// Package redisconn is what the store and the bus share: one connection to the servers of a fleet. It reads the URL,
// dials, checks the servers, loads scripts, and sends commands in pipelines. It knows neither sessions nor messages.
//
// It imports registry, for the errors that leave the package, and nothing else of ours. Start at Dial in client.go,
// then read Pipeline in pipeline.go: every command of the store and of the bus goes through one.
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

// DefaultTimeout bounds dialling, one read, one write, and the wait for a connection of a pool where Options.Timeout
// says nothing: what a caller waits for a Redis that does not answer.
const DefaultTimeout = 800 * time.Millisecond

// pool is how many connections a client has per server, how long a command waits for one, and how large their buffers
// are. Commands, sessions, and whatever blocks a connection never share a pool: a blocked connection would be missing
// for commands, and devices that come in great numbers would keep calls waiting.
type pool struct {
	size   int
	wait   time.Duration // if that is longer than the timeout of the servers
	buffer int           // bytes; 0: the default of the client library
}

// The pools of a Conn: for commands, and for opening, changing and releasing sessions. Many devices may come and go at
// once, and wait longer.
var (
	commandPool = pool{size: 64}
	sessionPool = pool{size: 16, wait: 3 * time.Second}
)

// blockingPool is for connections that mostly wait, and need no large buffers.
func blockingPool(size int) pool { return pool{size: size, buffer: 8 << 10} }

// reloadInterval is the age at which a client reads again which member of a Cluster owns what. The library's default is
// a minute. Redirections make it read at once, but a replica that was a master takes part of the commands without one.
const reloadInterval = 5 * time.Second

// newClient builds a client for the servers at a. Nothing is dialled yet. No command is ever sent a second time by the
// client library: it might be carried out twice.
func newClient(a address, p pool) redis.UniversalClient {
	var config *tls.Config
	if a.tls {
		config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.roots}
	}
	options := &redis.UniversalOptions{
		Addrs: a.hosts, IsClusterMode: a.topology == topologyCluster, MasterName: a.master, DB: a.db,
		Username: a.username, Password: a.password, Dialer: newDialer(config, a.timeout),
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

// newClusterClient builds a client that asks the members who owns what whenever one of them cannot be reached. The
// library would go on dialling a member that is dead, after its replica has taken its place.
func newClusterClient(options *redis.ClusterOptions) *redis.ClusterClient {
	var client atomic.Pointer[redis.ClusterClient]
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if c := client.Load(); err != nil && c != nil {
			c.ReloadState(ctx) // in the background; several at once become one
		}
		return conn, err
	}
	options.ClusterStateReloadInterval = reloadInterval
	c := redis.NewClusterClient(options)
	client.Store(c)
	return c
}

// clientLog routes what the client library prints about itself to our log. It is detail: whatever matters also
// comes back as an error.
type clientLog struct{ log *slog.Logger }

// Printf implements the library's logging interface.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.DebugContext(ctx, "redis client", "detail", fmt.Sprintf(format, v...))
	}
}

// Options configures a Conn.
type Options struct {
	URL    string       // see CheckURL
	CAFile string       // PEM file of the authorities that may sign the servers' certificates; default: the system's
	Hook   redis.Hook   // of the clients for commands and for sessions; default: none
	Log    *slog.Logger // default: discard

	Timeout time.Duration // of dialling, of one read and of one write; default DefaultTimeout
}

// Conn is a connection to the servers of a fleet: a pool for commands, another for sessions that come and go, and the
// means to open further ones. It is safe for concurrent use.
type Conn struct {
	addr     address
	client   redis.UniversalClient
	sessions redis.UniversalClient
	opening  sender // over sessions
	warnings []string
	close    func() error
}

// Dial is what redisstore.Dial says.
func Dial(ctx context.Context, o Options, scripts ...*Scripts) (*Conn, error) {
	addr, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if err := addr.trust(o.CAFile); err != nil {
		return nil, err
	}
	addr.timeout = o.Timeout
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	redis.SetLogger(clientLog{o.Log})
	c := newConn(addr)
	if o.Hook != nil {
		c.client.AddHook(o.Hook)
		c.sessions.AddHook(o.Hook)
	}
	if err := errors.Join(c.prepare(ctx, scripts), ctx.Err()); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("redis: %w", err)
	}
	return c, nil
}

// newConn returns a connection that has not been dialled.
func newConn(addr address) *Conn {
	addr.timeout = cmp.Or(addr.timeout, DefaultTimeout)
	c := &Conn{addr: addr, client: newClient(addr, commandPool), sessions: newClient(addr, sessionPool)}
	c.opening = alone(c.sessions)
	if !c.IsCluster() { // in a cluster, a member that hangs would hold up what goes to the others
		c.opening = newTogether(alone(c.sessions)).exec
	}
	c.close = sync.OnceValue(func() error { return errors.Join(c.client.Close(), c.sessions.Close()) })
	return c
}

// prepare checks the servers and gives them the scripts.
func (c *Conn) prepare(ctx context.Context, scripts []*Scripts) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	for _, s := range scripts {
		if err := s.load(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Warnings returns what Dial found that will hurt one day, in sentences for an operator.
func (c *Conn) Warnings() []string { return c.warnings }

// Close ends the connections. Clients of NewBlockingClient have to be closed before.
func (c *Conn) Close() error { return c.close() }

// IsCluster reports whether the servers are a Redis Cluster.
func (c *Conn) IsCluster() bool { return c.addr.topology == topologyCluster }

// Timeout bounds dialling the servers, one read and one write.
func (c *Conn) Timeout() time.Duration { return c.addr.timeout }

// Client returns the client that sends the commands, for what a Pipeline cannot do.
func (c *Conn) Client() redis.UniversalClient { return c.client }

// Pools returns statistics of the pools of connections: for commands, and for sessions that come and go.
func (c *Conn) Pools() (commands, sessions *redis.PoolStats) {
	return c.client.PoolStats(), c.sessions.PoolStats()
}

// NewBlockingClient returns a client of its own for at most size connections per server that wait for something to
// happen. Its owner closes it; that ends whatever is blocked.
func (c *Conn) NewBlockingClient(size int) redis.UniversalClient {
	return newClient(c.addr, blockingPool(size))
}

// EachMaster calls fn for every server that takes writes, for several at the same time.
func (c *Conn) EachMaster(ctx context.Context, fn func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := c.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return fn(ctx, c) })
	}
	return fn(ctx, c.client)
}

// Unavailable translates an error of the client library: no such error leaves the store or the bus. It keeps errors
// that are translated already, and nil.
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
