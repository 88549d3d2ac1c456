package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/redisstore/bus"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/internal/signed"
	"github.com/farhand/farhand/registry"
)

// source is where a query finds its sessions: one index, or the indexes of the sets that offer a tool, read as if they
// were one.
type source struct {
	indexes []string

	tenant, tool string // set if the indexes are those of sets
	spec         string // the requested specification; empty: any
}

// place is an entry of an index.
type place struct {
	registry.Cursor
	index string
}

// sessionsAt returns the sessions at places of a tenant.
func sessionsAt(tenant string, places []place) []registry.Key {
	keys := make([]registry.Key, len(places))
	for i, p := range places {
		keys[i] = registry.Key{Tenant: tenant, Session: p.Session}
	}
	return keys
}

// sizes returns how many entries each index has.
func (s *Store) sizes(ctx context.Context, indexes []string) ([]int64, error) {
	pipe := s.conn.Pipeline()
	counts := make([]*redisconn.Command, len(indexes))
	for i, index := range indexes {
		counts[i] = pipe.Do("ZCARD", index)
	}
	err := pipe.Exec(ctx)
	sizes := make([]int64, len(indexes))
	for i, c := range counts {
		sizes[i] = c.Int()
	}
	return sizes, err
}

// smallestSource returns the source with the fewest entries among those that hold every match.
func (s *Store) smallestSource(ctx context.Context, q registry.Query) (source, error) {
	best, size := source{indexes: []string{sessionsIndex(q.Tenant)}}, int64(math.MaxInt64)
	if q.Tool != "" {
		from, sessions, ok, err := s.toolSource(ctx, q)
		if err != nil {
			return source{}, err
		}
		if ok {
			best, size = from, sessions
		}
	}
	candidates := candidateIndexes(q)
	if len(candidates) == 1 && q.Tool == "" {
		return source{indexes: candidates[0]}, nil
	}
	sizes, err := s.sizes(ctx, slices.Concat(candidates...))
	if err != nil {
		return source{}, err
	}
	for _, indexes := range candidates {
		n := int64(0)
		for range indexes {
			n, sizes = n+sizes[0], sizes[1:]
		}
		if n < size {
			best, size = source{indexes: indexes}, n
		}
	}
	return best, nil
}

// candidateIndexes returns groups of indexes, each of which holds every match. It omits the index of all sessions,
// which is never smaller than another.
func candidateIndexes(q registry.Query) (candidates [][]string) {
	if q.DeviceID != "" {
		candidates = append(candidates, []string{deviceIndex(q.Tenant, q.DeviceID)})
	}
	switch {
	case q.UserID != "":
		candidates = append(candidates, []string{userIndex(q.Tenant, q.UserID)})
	case q.Viewer != "":
		candidates = append(candidates, []string{userIndex(q.Tenant, q.Viewer), userIndex(q.Tenant, "")})
	}
	for k, v := range q.Labels {
		candidates = append(candidates, []string{labelIndex(q.Tenant, k, v)})
	}
	return candidates
}

// maxRereads bounds how often a page is read again because a tool entered another set meanwhile.
const maxRereads = 3

// readPlaces returns up to limit places after the cursor, in order. A session that changes its set meanwhile enters the
// index of the new set, and the new set the offers, before the session leaves the index of the old set. So if the
// offers name a further set after the indexes were read, readPlaces reads the indexes again with that set.
func (s *Store) readPlaces(
	ctx context.Context, from *source, after registry.Cursor, limit int, newest bool,
) ([]place, error) {
	direction := "up"
	if newest {
		direction = "down"
	}
	low, high := offersRange(from.tool, from.spec)
	for try := 0; ; try++ {
		pipe := s.conn.Pipeline()
		pages := make([]*redisconn.Command, len(from.indexes))
		for i, index := range from.indexes {
			pages[i] = pipe.Eval(scriptPage, []string{index},
				direction, decimal(after.Generation), after.Session, limit)
		}
		var again *redisconn.Command
		if from.tool != "" {
			pipe.Then()
			again = pipe.Do("ZRANGEBYLEX", offersIndex(from.tenant), low, high, "LIMIT", 0, maxMerge)
		}
		if err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		if again != nil && try < maxRereads && from.widen(parseOffers(again.Strings())) {
			continue
		}
		return merge(from.indexes, pages, limit, newest), nil
	}
}

// widen adds the indexes of sets that the source does not have yet, and reports whether there were any.
func (f *source) widen(offers []offer) bool {
	before := len(f.indexes)
	for _, index := range setIndexes(f.tenant, offers) {
		if !slices.Contains(f.indexes[:before], index) {
			f.indexes = append(f.indexes, index)
		}
	}
	return len(f.indexes) > before
}

// merge merges the pages of several indexes into one page.
func merge(indexes []string, pages []*redisconn.Command, limit int, newest bool) []place {
	var places []place
	for n, page := range pages {
		flat := page.Strings()
		for i := 0; i+1 < len(flat); i += 2 {
			at := registry.Cursor{Generation: redisconn.Int(flat[i+1]), Session: flat[i]}
			places = append(places, place{at, indexes[n]})
		}
	}
	if len(indexes) == 1 {
		return places
	}
	slices.SortFunc(places, func(a, b place) int {
		if newest {
			return b.Compare(a.Cursor)
		}
		return a.Compare(b.Cursor)
	})
	places = slices.CompactFunc(places, func(a, b place) bool { return a.Cursor == b.Cursor })
	return places[:min(limit, len(places))]
}

// Options configures a Conn.
type Options struct {
	// URL names the servers: redis://[user:password@]host:port[/db], with several hosts or ?cluster=true for a Cluster,
	// redis+sentinel://h1:p1,h2:p2/master for a master behind Sentinel; rediss and rediss+sentinel use TLS.
	URL string
	// CAFile is a PEM file with the certificates of the authorities that may have signed the servers' certificates.
	// Empty: the system's authorities. Dial reads the file, and fails if it is set and the URL does not use TLS.
	CAFile string
	// CertFile and KeyFile are PEM files of the certificate by which the servers identify this client, and of its
	// private key. Each connection reads them, so they may be replaced. Empty: no certificate.
	CertFile, KeyFile string

	registry.Limits

	// Secrets sign what pods send each other: the first signs, all are accepted. With UnsignedToo, messages without a
	// signature are also accepted, until all pods have a secret. None: nothing is signed or checked.
	Secrets     []string
	UnsignedToo bool

	// Replicas is how many replicas must have a durable call, a decision about it, or a document, before its writer
	// gets an answer, and a device its call. A failover to one of them then loses and repeats no call. Default: 0.
	Replicas int

	Timeout       time.Duration // of dialling, of one read and of one write; default 800 ms
	ProbeInterval time.Duration // silence after which a bus probes its subscription; default 2 s
	Meter         Meter         // is notified of every round trip; default: none
	Log           *slog.Logger  // default: discard
}

// servers returns the options of the connection.
func (o Options) servers() redisconn.Options {
	return redisconn.Options{
		URL: o.URL, CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, Timeout: o.Timeout, Log: o.Log,
		Replicas: o.Replicas,
	}
}

// CheckURL returns an error if a URL is invalid. It does not connect, and does not repeat the password.
func CheckURL(raw string) error { return redisconn.CheckURL(raw) }

// CheckCA returns an error if the file of authorities cannot be used for the servers of a URL. It does not connect.
func CheckCA(raw, file string) error { return redisconn.CheckCA(raw, file) }

// CheckClientCertificate returns an error if the files of certificate and key cannot be used for the servers of a URL.
// It does not connect.
func CheckClientCertificate(raw, certFile, keyFile string) error {
	return redisconn.CheckClientCertificate(raw, certFile, keyFile)
}

// Conn is a connection to the servers of a fleet. Its stores and buses share its connections for commands and for
// waiting. A bus also has its own connections. It is safe for concurrent use.
type Conn struct {
	opts   Options
	conn   *redisconn.Conn
	follow *follower
	signer *signed.Signer
	close  func() error
}

// Dial connects, loads the scripts, and checks the servers. It fails if they cannot be reached, are older than Redis
// 7.0, or are arranged differently from the URL. ctx bounds the dialling.
//
// The client library has one log for the whole process; Dial points it at o.Log.
func Dial(ctx context.Context, o Options) (*Conn, error) {
	o.Limits = o.WithDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	servers := o.servers()
	if o.Meter != nil {
		servers.Hook = newMeterHook(o.Meter)
	}
	conn, err := redisconn.Dial(ctx, servers, scripts, bus.Scripts())
	if err != nil {
		return nil, err
	}
	follow := newFollower(conn)
	shut := sync.OnceValue(func() error { return errors.Join(conn.Close(), follow.close()) })
	signer := signed.New(signed.Options{Secrets: o.Secrets, Optional: o.UnsignedToo, Log: o.Log})
	return &Conn{opts: o, conn: conn, follow: follow, signer: signer, close: shut}, nil
}

// BusStats has the queue lengths of a bus, and its counters since it was created.
type BusStats = bus.Stats

// Bus returns a bus on the connection, for one pod.
func (c *Conn) Bus() *bus.Bus {
	return bus.New(c.conn, bus.Options{ProbeInterval: c.opts.ProbeInterval, Signer: c.signer, Log: c.opts.Log})
}

// Warnings returns the problems that Dial found but that do not stop it, in sentences for an operator.
func (c *Conn) Warnings() []string { return c.conn.Warnings() }

// Close ends the connections for commands and for waiting. Close the buses first.
func (c *Conn) Close() error { return c.close() }
