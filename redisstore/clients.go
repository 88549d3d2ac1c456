package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts of all clients. They bound what a caller waits for a Redis that does not answer.
const (
	dialTimeout  = 800 * time.Millisecond
	ioTimeout    = 800 * time.Millisecond
	poolTimeout  = 800 * time.Millisecond
	sessionWait  = 3 * time.Second // for a connection of sessionPool: many devices may come and go at once
	commandPool  = 64              // connections for commands, per server
	sessionPool  = 16              // connections for opening, changing and releasing sessions, per server
	listenerPool = 2               // connections for blocking reads, per server
	followerPool = 32              // connections for waiting for activity, per server
	smallBuffer  = 8 << 10         // bytes; the clients that only listen do not need more
)

// role is what a client is used for. Commands, blocking reads and subscriptions never share a client: a blocked
// connection would be missing for commands, and closing one kind must not disturb another. Neither do sessions share one with
// calls, or devices that come in great numbers would keep calls waiting.
type role int

const (
	roleCommands role = iota
	roleSessions
	roleListener
	roleFollower
)

// newClient builds a client for the servers at a. Nothing is dialled yet.
func newClient(a address, r role) redis.UniversalClient {
	size, buffer := commandPool, 0
	wait := poolTimeout
	switch r {
	case roleSessions:
		size, wait = sessionPool, sessionWait
	case roleListener:
		size, buffer = listenerPool, smallBuffer
	case roleFollower:
		size, buffer = followerPool, smallBuffer
	}
	var config *tls.Config
	if a.tls {
		config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.roots}
	}
	dial := newDialer(config)
	switch a.topology {
	case topologyCluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: a.hosts, Username: a.username, Password: a.password, Dialer: dial,
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
			PoolSize: size, PoolTimeout: wait, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	case topologySentinel:
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: a.master, SentinelAddrs: a.hosts, DB: a.db,
			Username: a.username, Password: a.password, Dialer: dial,
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
			PoolSize: size, PoolTimeout: wait, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer,
		})
	default:
		return redis.NewClient(&redis.Options{
			Addr: a.hosts[0], DB: a.db, Username: a.username, Password: a.password, Dialer: dial,
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, ContextTimeoutEnabled: true,
			DialTimeout: dialTimeout, DialerRetries: 1, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
			PoolSize: size, PoolTimeout: wait, PipelinePoolSize: -1,
			ReadBufferSize: buffer, WriteBufferSize: buffer,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
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

// eachMaster calls fn for every server that takes writes.
func eachMaster(ctx context.Context, c redis.UniversalClient, fn func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := c.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return fn(ctx, c) })
	}
	return fn(ctx, c)
}
