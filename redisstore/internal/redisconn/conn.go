package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

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
