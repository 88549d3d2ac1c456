package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Store is a registry.Store on Redis. It is safe for concurrent use.
type Store struct {
	conn   *redisconn.Conn
	follow *follower
	log    *slog.Logger

	sessionTTL int64 // all TTLs in ms
	indexTTL   int64 // of indexes and specifications: outlives a session by a whole TTL
	podsTTL    int64
	lease      int64
	retention  int64
	idemTTL    int64

	activityTTL int64
	activities  int // lines of a feed
	feedBytes   int // of all its lines, about
	lines       lineBuffers

	credentials int   // of a tenant
	changeTTL   int64 // of the log of their changes, and of revocations
	revocations int   // of a tenant and kind

	historyTTL int64
	historyCap int // messages of a conversation
	placeTTL   int64

	auditTTL   int64
	auditCap   int // lines of an audit log
	auditBytes int // of all its lines, about
	usageTTL   int64
	usageRows  int
	limits     *redisconn.Together[*taking]

	specs      *cache.Cache[string, registry.ToolSpec]
	sets       *cache.Cache[string, toolSet]
	written    *writtenSets
	refreshers sync.Pool // of *refresher
	live       *liveSet
	reads      *share.Pool // turns to read a record
	own        ownLease
	staleCheck throttle

	dueSkipped atomic.Int64 // tenants that DueApprovals looked at lately
}

var _ registry.Store = (*Store)(nil)

// Store returns a store on the connection. Each has caches of its own.
func (c *Conn) Store() *Store {
	s := &Store{
		conn: c.conn, follow: c.follow, log: c.opts.Log,
		activityTTL: millis(c.opts.ActivityTTL),
		sessionTTL:  millis(c.opts.SessionTTL),
		indexTTL:    millis(2 * c.opts.SessionTTL),
		podsTTL:     millis(2 * max(c.opts.SessionTTL, c.opts.PodLease)),
		// The configured lease is a promise to users: tools of a killed pod are out of the listing by then. So the
		// stored lease lapses after four fifths of it. In the last fifth the other pods clean up; they look for lapsed
		// leases every tenth.
		lease:     max(1, millis(c.opts.PodLease)*4/5),
		retention: millis(c.opts.Retention), idemTTL: millis(c.opts.IdempotencyTTL), activities: c.opts.ActivityCap,
		feedBytes:  c.opts.ActivityBytes,
		historyTTL: millis(c.opts.HistoryTTL), historyCap: c.opts.HistoryCap,
		placeTTL:    millis(c.opts.PlaceTTL),
		credentials: c.opts.Credentials, changeTTL: millis(c.opts.ChangeTTL), revocations: c.opts.Revocations,
		auditTTL: millis(c.opts.AuditTTL), auditCap: c.opts.AuditCap, auditBytes: c.opts.AuditBytes,
		usageTTL: millis(c.opts.UsageTTL), usageRows: c.opts.UsageRows, limits: newLimits(c.conn),
		specs: cache.New[string, registry.ToolSpec](cacheBytes/2, 0), sets: cache.New[string, toolSet](cacheBytes/2, 0),
		written:    newWrittenSets(2 * c.opts.SessionTTL),
		staleCheck: throttle{every: staleCheckInterval}, reads: share.New(share.Turns(maxReads)),
	}
	s.live = newLiveSet(s.Live, min(liveSetAge, c.opts.PodLease/20))
	return s
}

func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// Ping implements registry.Store. It writes: a Redis that is out of memory still answers reads.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.conn.Do(ctx, "SET", pingKey, "1", "PX", s.sessionTTL)
	return redisconn.Unavailable("ping", err)
}

// errMissing is the cause when a fenced write finds that the store lost the session and nobody else has it. The write
// then fails as one to a store that is away does, and the next Refresh restores everything.
var errMissing = errors.New("the store lost the session; it is restored with the next refresh")

// fenced translates the first element of what the fenced scripts return.
func fenced(op string, verdict int64) error {
	switch verdict {
	case 1:
		return nil
	case 0:
		return registry.ErrNotOwner
	default:
		return registry.StoreUnavailable(op, errMissing)
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
