package redisconn

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// commands are those that the store and the bus send, themselves or in scripts, each with arguments for a key, k, and
// a channel, c, that no other program uses. The first makes the key a text that expires, so that those that write to
// other types change nothing; the last two remove it. Subscriptions are tried beside them.
var commands = strings.Split(strings.TrimSpace(`
SET k x PX 10000
EXISTS k
GET k
INCR k
PEXPIRE k 10000
PTTL k
MEMORY USAGE k
HDEL k f
HEXISTS k f
HGET k f
HGETALL k
HINCRBY k f 1
HMGET k f
HSCAN k 0
HSET k f v
HSETNX k f v
HSTRLEN k f
LLEN k
LPOP k
LRANGE k 0 0
LTRIM k 0 0
RPUSH k v
XADD k NOMKSTREAM * f v
XRANGE k - + COUNT 1
XREAD COUNT 1 STREAMS k 0
XREVRANGE k + - COUNT 1
XTRIM k MAXLEN 1
ZADD k XX 1 m
ZCARD k
ZCOUNT k 0 0
ZMSCORE k m
ZRANDMEMBER k
ZRANGE k 0 0
ZRANGEBYLEX k - +
ZRANGEBYSCORE k 0 0
ZRANK k m
ZREM k m
ZREMRANGEBYRANK k 0 0
ZREMRANGEBYSCORE k 0 0
ZREVRANGE k 0 0
ZREVRANGEBYSCORE k 0 0
ZSCORE k m
PUBSUB NUMSUB c
PUBLISH c x
SPUBLISH c x
SCRIPT LOAD return
EVAL return 1 k
EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 k
TIME
PING
INFO server
CLUSTER SLOTS
CLUSTER SHARDS
CLUSTER NODES
UNLINK k
WAIT 0 1
DEL k
`), "\n")

// doer is a client of one server.
type doer interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
	SSubscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Missing tries every command that the store and the bus send, and returns what the servers refuse to this user, in
// their words. It runs no script of theirs and changes no key of a fleet: each command is for a key that it removes.
// The error is that of a server that does not answer.
func Missing(ctx context.Context, o Options) (refused []string, err error) {
	var mu sync.Mutex
	err = o.visit(ctx, func(ctx context.Context, server doer, cluster bool) error {
		found, err := missing(ctx, server, cluster)
		mu.Lock()
		defer mu.Unlock()
		if len(found) > len(refused) { // users are alike on all members, or should be
			refused = found
		}
		return err
	})
	return refused, err
}

func missing(ctx context.Context, server doer, cluster bool) (refused []string, err error) {
	name := "fh:doctor:" + rand.Text()
	for i, line := range commands {
		words := strings.Fields(line)
		if words[0] == "CLUSTER" && !cluster {
			continue
		}
		args := make([]any, len(words))
		for n, w := range words {
			if args[n] = w; n > 0 && (w == "k" || w == "c") {
				args[n] = name
			}
		}
		if words[0] == "EVAL" {
			args = []any{"EVAL", "return 1", 1, name}
		}
		switch err := server.Do(ctx, args...).Err(); {
		case redis.HasErrorPrefix(err, "NOPERM"):
			refused = append(refused, err.Error())
			if i == 0 { // the key would have no end
				return refused, nil
			}
		case unanswered(err):
			return refused, err
		}
	}
	for _, subscribe := range []func(context.Context, ...string) *redis.PubSub{server.Subscribe, server.SSubscribe} {
		sub := subscribe(ctx, name)
		_, err := sub.Receive(ctx)
		_ = sub.Close()
		if redis.HasErrorPrefix(err, "NOPERM") {
			refused = append(refused, err.Error())
		}
	}
	return refused, nil
}

// unanswered reports whether an error is none that a server answered.
func unanswered(err error) bool {
	_, answered := err.(redis.Error) //nolint:errorlint // the client library wraps none
	return err != nil && !answered
}

// Skew returns by how much the clock of a server is ahead of this machine's, of all servers that take writes the one
// that is furthest off. Half of the round trip is its error.
func Skew(ctx context.Context, o Options) (worst time.Duration, err error) {
	var mu sync.Mutex
	err = o.visit(ctx, func(ctx context.Context, server doer, _ bool) error {
		sent := time.Now()
		at, err := server.Time(ctx).Result()
		ahead := at.Sub(sent.Add(time.Since(sent) / 2))
		mu.Lock()
		defer mu.Unlock()
		if err == nil && ahead.Abs() > worst.Abs() {
			worst = ahead
		}
		return err
	})
	return worst, err
}

// visit calls fn for every server that takes writes. Unlike Dial it needs no right at the servers.
func (o Options) visit(ctx context.Context, fn func(ctx context.Context, server doer, cluster bool) error) error {
	addr, err := o.address()
	if err != nil {
		return err
	}
	c := newConn(addr)
	defer c.Close() //nolint:errcheck // nothing is in flight
	err = c.EachMaster(ctx, func(ctx context.Context, server redis.Cmdable) error {
		one, ok := server.(doer)
		if !ok {
			return fmt.Errorf("a client of type %T", server)
		}
		return fn(ctx, one, c.IsCluster())
	})
	if err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// Certificates returns the certificates of the servers in the URL, or of the sentinels, by their addresses. It verifies
// them as the store does. Without TLS there are none.
func Certificates(ctx context.Context, o Options) (map[string]*x509.Certificate, error) {
	addr, err := o.address()
	if err != nil || !addr.tls {
		return nil, err
	}
	found, dial := make(map[string]*x509.Certificate), newDialer(addr.tlsConfig(), addr.timeout)
	for _, host := range addr.hosts {
		conn, err := dial(ctx, "tcp", host)
		if err != nil {
			return found, err
		}
		if secure, ok := conn.(*tls.Conn); ok {
			found[host] = secure.ConnectionState().PeerCertificates[0]
		}
		_ = conn.Close()
	}
	return found, nil
}
