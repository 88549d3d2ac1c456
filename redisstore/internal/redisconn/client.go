package redisconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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
