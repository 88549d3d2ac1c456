package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Options configures a Conn.
type Options struct {
	// URL names the servers: redis://[user:password@]host:port[/db], with several hosts or ?cluster=true for a Cluster,
	// redis+sentinel://h1:p1,h2:p2/master for a master behind Sentinel; rediss and rediss+sentinel use TLS.
	URL string
	// CAFile is a PEM file with the certificates of the authorities that may have signed the servers' certificates.
	// Empty: the system's authorities. It is read by Dial, and means nothing without TLS.
	CAFile string

	registry.Limits

	Timeout       time.Duration // of dialling, of one read and of one write; default 800 ms
	ProbeInterval time.Duration // silence after which a bus probes its subscription; default 2 s
	Meter         Meter         // is notified of every round trip; default: none
	Log           *slog.Logger  // default: discard
}

// CheckURL says what is wrong with a URL, without connecting and without repeating its password.
func CheckURL(raw string) error { return redisconn.CheckURL(raw) }

// CheckCA says what is wrong with the file of authorities for the servers of a URL, without connecting.
func CheckCA(raw, file string) error { return redisconn.CheckCA(raw, file) }

// Conn is a connection to the servers of a fleet. Stores and buses made from it share its pool of connections for
// commands, and another for waiting; a bus has further ones of its own. It is safe for concurrent use.
type Conn struct {
	opts   Options
	conn   *redisconn.Conn
	follow *follower
	close  func() error
}

// Dial connects, loads the scripts, and checks that the servers can do what is needed. It fails when they cannot be
// reached, are older than Redis 7.0, or are arranged differently from what the URL says. ctx bounds the dialling.
//
// The client library has one log for the whole process; Dial points it at o.Log.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	o.Limits = o.WithDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	servers := redisconn.Options{URL: o.URL, CAFile: o.CAFile, Timeout: o.Timeout, Log: o.Log}
	if o.Meter != nil {
		servers.Hook = newMeterHook(o.Meter)
	}
	conn, err := redisconn.Dial(ctx, servers, scripts, bus.Scripts())
	if err != nil {
		return nil, err
	}
	follow := newFollower(conn)
	shut := sync.OnceValue(func() error { return errors.Join(conn.Close(), follow.close()) })
	return &Conn{opts: o, conn: conn, follow: follow, close: shut}, nil
}

// BusStats says what waits in a bus, and counts what went wrong since it was made.
type BusStats = bus.Stats

// Bus returns a bus on the connection, for one pod.
func (c *Conn) Bus() *bus.Bus {
	return bus.New(c.conn, bus.Options{ProbeInterval: c.opts.ProbeInterval, Log: c.opts.Log})
}

// Warnings returns what Dial found that will hurt one day, in sentences for an operator.
func (c *Conn) Warnings() []string { return c.conn.Warnings() }

// Close ends the connections for commands and for waiting. Buses must be closed before.
func (c *Conn) Close() error { return c.close() }
