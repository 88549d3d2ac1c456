package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// Options configures a Conn.
type Options struct {
	// URL names the servers:
	//
	//	redis://[user:password@]host:port[/db]                           one server
	//	redis://[user:password@]h1:p1,h2:p2,h3:p3                        a Cluster, from several seeds
	//	redis://[user:password@]host:port?cluster=true                   a Cluster, from one seed
	//	redis+sentinel://[user:password@]h1:p1,h2:p2/master-name[/db]    a master behind Sentinel
	//
	// With rediss and rediss+sentinel all connections use TLS.
	URL string
	// CAFile is a PEM file with the certificates of the authorities that may have signed the servers' certificates.
	// Empty: the system's authorities. It is read by Dial, and means nothing without TLS.
	CAFile string

	SessionTTL    time.Duration // life of a session between refreshes; default 60 s
	PodLease      time.Duration // how soon the tools of a dead pod are out of the listing; default 10 s
	ProbeInterval time.Duration // silence after which a bus probes its subscription; default 2 s
	Meter         Meter         // hears of every round trip; default: nobody
	Log           *slog.Logger  // default: discard

	Retention      time.Duration // life of a call's record after its last change; default 15 min
	IdempotencyTTL time.Duration // life of idempotency keys; default 24 h
	ActivityTTL    time.Duration // life of a feed nothing is added to; default 24 h
	ActivityCap    int           // lines kept in the feed of a tenant, roughly; default 10,000
	ActivityBytes  int           // bytes of those lines, roughly; default 16 MiB
	HistoryTTL     time.Duration // life of a conversation after its last change; default 24 h
	HistoryCap     int           // messages kept of a conversation; default 1,000
}

func (o *Options) setDefaults() {
	if o.SessionTTL <= 0 {
		o.SessionTTL = registry.DefaultSessionTTL
	}
	if o.PodLease <= 0 {
		o.PodLease = registry.DefaultPodLease
	}
	if o.ProbeInterval <= 0 {
		o.ProbeInterval = 2 * time.Second
	}
	if o.Retention <= 0 {
		o.Retention = registry.DefaultRetention
	}
	if o.IdempotencyTTL <= 0 {
		o.IdempotencyTTL = registry.DefaultIdempotencyTTL
	}
	if o.ActivityTTL <= 0 {
		o.ActivityTTL = registry.DefaultActivityTTL
	}
	if o.ActivityCap <= 0 {
		o.ActivityCap = registry.DefaultActivityCap
	}
	if o.ActivityBytes <= 0 {
		o.ActivityBytes = registry.DefaultActivityBytes
	}
	if o.HistoryTTL <= 0 {
		o.HistoryTTL = registry.DefaultHistoryTTL
	}
	if o.HistoryCap <= 0 {
		o.HistoryCap = registry.DefaultHistoryCap
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Conn is a connection to the servers of a fleet. Stores and buses made from it share its pool of connections for
// commands, and another for waiting; a bus has further ones of its own. It is safe for concurrent use.
type Conn struct {
	opts     Options
	addr     address
	client   redis.UniversalClient
	sessions redis.UniversalClient // for what devices that come and go cost
	follow   *follower
	warnings []string
	close    func() error
}

// Dial connects, loads the scripts, and checks that the servers can do what is needed. It fails when they cannot be
// reached, are older than Redis 7.0, or are arranged differently from what the URL says. ctx bounds the dialling.
//
// The client library has one log for the whole process; Dial points it at o.Log.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	o.setDefaults()
	addr, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if err := addr.trust(o.CAFile); err != nil {
		return nil, err
	}
	redis.SetLogger(clientLog{o.Log})
	c := &Conn{opts: o, addr: addr, client: newClient(addr, roleCommands), sessions: newClient(addr, roleSessions), follow: newFollower(addr)}
	if o.Meter != nil {
		hook := newMeterHook(o.Meter)
		c.client.AddHook(hook)
		c.sessions.AddHook(hook)
	}
	c.close = sync.OnceValue(func() error { return errors.Join(c.client.Close(), c.sessions.Close(), c.follow.close()) })
	if err := errors.Join(c.check(ctx), ctx.Err()); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("redis: %w", err)
	}
	return c, nil
}

// Warnings returns what Dial found that will hurt one day, in sentences for an operator.
func (c *Conn) Warnings() []string { return c.warnings }

// Close ends the connections for commands and for waiting. Buses must be closed before.
func (c *Conn) Close() error { return c.close() }

func (c *Conn) cluster() bool { return c.addr.topology == topologyCluster }

// check looks at every server that takes writes.
func (c *Conn) check(ctx context.Context) error {
	var mu sync.Mutex
	seen := make(map[string]bool)
	err := eachMaster(ctx, c.client, func(ctx context.Context, server redis.Cmdable) error {
		info, err := serverInfo(ctx, server)
		if err != nil {
			return err
		}
		if err := checkServer(info, c.cluster()); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, w := range serverWarnings(info) {
			if !seen[w] {
				seen[w] = true
				c.warnings = append(c.warnings, w)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return loadScripts(ctx, c.client)
}

// serverInfo reads what a server says about itself; an empty map when it does not let us ask.
func serverInfo(ctx context.Context, server redis.Cmdable) (map[string]string, error) {
	info := make(map[string]string)
	for _, section := range []string{"server", "memory"} {
		text, err := server.Info(ctx, section).Result()
		if redis.HasErrorPrefix(err, "NOPERM") {
			return info, nil
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
	}
	return info, nil
}

// checkServer refuses servers that cannot work at all.
func checkServer(info map[string]string, cluster bool) error {
	if version := info["redis_version"]; version != "" {
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err != nil || n < 7 {
			return fmt.Errorf("the server is version %s; 7.0 or later is needed", version)
		}
	}
	if info["redis_mode"] == "cluster" && !cluster {
		return errors.New("the server is a member of a cluster: add ?cluster=true to the URL, or name several members")
	}
	return nil
}

// serverWarnings finds settings that lose data under memory pressure.
func serverWarnings(info map[string]string) []string {
	if len(info) == 0 {
		return []string{"Redis does not let this user read INFO: its version and its eviction policy were not checked."}
	}
	limit, policy := info["maxmemory"], info["maxmemory_policy"]
	if limit != "" && limit != "0" && policy != "" && policy != "noeviction" {
		return []string{fmt.Sprintf(
			"Redis has a memory limit and maxmemory-policy %s: it may evict live sessions. Set it to noeviction.", policy)}
	}
	return nil
}
