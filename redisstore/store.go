// Package redisstore keeps the registry of a fleet in Redis and carries the messages between its pods. Store implements
// registry.Store, Bus implements registry.Bus. It runs on Redis 7.0 or later and on Valkey, as a single server, as a
// Cluster, or behind Sentinel.
//
//	conn, err := redisstore.Dial(ctx, redisstore.Options{URL: "redis://localhost:6379"})
//	store, bus := conn.Store(), conn.Bus()
//	...
//	bus.Close(ctx) // after the pod has been closed
//	conn.Close()
//
// # Keys
//
// docs/architecture.md lists every key with its type, its content and its lifetime. keys.go builds the keys, except
// those of messages, which bus/bus.go builds. A session is one hash. The scripts that decide who owns it touch only
// keys in its slot. Sessions are found through sorted sets, the indexes, which lie in other slots and are written
// afterwards.
//
// The score of a member of an index is the generation of the session: a clock reading in microseconds that grows with
// every claim. It orders pages by connection time, finds the newest session, and fences: a member is removed only up to
// the generation that the remover knows. The next reader removes a member whose session is gone.
//
// # Tool sets
//
// Devices of a kind offer the same tools, so a set of tools is stored once, under the hash of its content. A session
// names its set and is in one index for it, however many tools the set has. The sessions of a tool are the sessions of
// the sets it is in. They are counted as the sum of index sizes, and listed by merging the indexes of the sets. A
// session that changes its set enters the new index, and the new set the offers, before the session leaves the old
// index. See docs/decisions/0006-tool-sets.md.
//
// # Calls
//
// Only scripts change the record of a call. Each script gets its allowed moves as arguments, so registry.State is the
// only state machine. Texts from devices and callers are opaque in the hash. An idempotency key is written after its
// record. If the record expires before the key, the next call with the key takes the key over.
//
// # Conversations
//
// One turn at a time writes to a conversation. Only the clock of Redis decides whether its lease has lapsed. Every
// script that writes first compares the fence of its turn with the current one, so a paused pod cannot write after its
// successor. Fences are clock readings in microseconds, like generations, so they grow even if the conversation was
// forgotten in between.
//
// # Documents
//
// Approvals, grants, blobs, credentials and pairings are written seldom. Their logic is in packages below registry, over
// documents.go: three scripts read, list and write documents and indexes of one slot. See
// docs/decisions/0064-documents.md.
//
// # Consistency
//
// An index may lag behind the hashes for a moment; the hashes decide. A pod that adds members to indexes then checks
// that its claim is still current, and removes them if it is not. So either the newer claim sees what it replaces and
// removes it, or this check does. Three times per session TTL, Refresh compares each session in Redis with the session
// of its pod, member by member. The pod restores what a failover, an eviction or a failed write lost. Everything is
// written with a TTL, so a fleet that dies leaves nothing behind.
package redisstore

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/blobs"
	"github.com/farhand/farhand/registry/credentials"
	"github.com/farhand/farhand/registry/pairings"
)

// Store is a registry.Store on Redis. It is safe for concurrent use.
type Store struct {
	// Entities on documents.
	registry.ApprovalStore
	registry.BlobStore
	registry.CredentialStore
	registry.PairingStore

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
}

var _ registry.Store = (*Store)(nil)

// Store returns a store on the connection. Each store has its own caches.
func (c *Conn) Store() *Store {
	s := &Store{
		conn: c.conn, follow: c.follow, log: c.opts.Log,
		activityTTL: millis(c.opts.ActivityTTL),
		sessionTTL:  millis(c.opts.SessionTTL),
		indexTTL:    millis(2 * c.opts.SessionTTL),
		podsTTL:     millis(2 * max(c.opts.SessionTTL, c.opts.PodLease)),
		// PodLease is a promise to users: the tools of a killed pod leave the listing within it. So the stored lease
		// lapses after four fifths of it. In the last fifth the other pods clean up; they look for lapsed leases every
		// tenth.
		lease:     max(1, millis(c.opts.PodLease)*4/5),
		retention: millis(c.opts.Retention), idemTTL: millis(c.opts.IdempotencyTTL), activities: c.opts.ActivityCap,
		feedBytes:  c.opts.ActivityBytes,
		historyTTL: millis(c.opts.HistoryTTL), historyCap: c.opts.HistoryCap,
		placeTTL:  millis(c.opts.PlaceTTL),
		changeTTL: millis(c.opts.ChangeTTL), revocations: c.opts.Revocations,
		auditTTL: millis(c.opts.AuditTTL), auditCap: c.opts.AuditCap, auditBytes: c.opts.AuditBytes,
		usageTTL: millis(c.opts.UsageTTL), usageRows: c.opts.UsageRows, limits: newLimits(c.conn),
		specs: cache.New[string, registry.ToolSpec](cacheBytes/2, 0), sets: cache.New[string, toolSet](cacheBytes/2, 0),
		written:    newWrittenSets(2 * c.opts.SessionTTL),
		staleCheck: throttle{every: staleCheckInterval}, reads: share.New(share.Turns(maxReads)),
	}
	docs := s.Documents()
	s.ApprovalStore, s.BlobStore, s.PairingStore = approvals.New(docs, s.log), blobs.New(docs), pairings.New(docs)
	s.CredentialStore = credentials.New(docs, s, c.opts.Credentials, s.log)
	s.live = newLiveSet(s.Live, min(liveSetAge, c.opts.PodLease/20))
	return s
}

func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// Ping implements registry.Store. It writes: a Redis that is out of memory still answers reads.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.conn.Do(ctx, "SET", pingKey, "1", "PX", s.sessionTTL)
	return redisconn.Unavailable("ping", err)
}

// errMissing is the cause when a fenced write finds that the store lost the session and no other pod owns it. The write
// fails as if the store were unavailable, and the next Refresh restores everything.
var errMissing = errors.New("the store lost the session; it is restored with the next refresh")

// fenced translates the first element of a fenced script's answer.
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

//go:embed lua/*.lua
var scriptFiles embed.FS

// scripts are the scripts of the store; Dial loads them all.
var scripts = redisconn.NewScripts(scriptFiles)

// The scripts, read once and never changed. Each file begins with its KEYS, its ARGV and what it returns.
var (
	scriptClaim      = scripts.Must("expect_base", "claim")
	scriptRestore    = scripts.Must("restore")
	scriptUpdate     = scripts.Must("session_base", "update")
	scriptSetTools   = scripts.Must("session_base", "set_tools")
	scriptRefresh    = scripts.Must("refresh")
	scriptRelease    = scripts.Must("expect_base", "release")
	scriptEntry      = scripts.Must("entry")
	scriptLabelsAdd  = scripts.Must("labels_add")
	scriptIndexLeave = scripts.Must("mirror_base", "index_leave")
	scriptMirror     = scripts.Must("mirror_base", "mirror")

	scriptDefinitionsAdd = scripts.Must("definitions_add")
	scriptOffersMissing  = scripts.Must("offers_missing")

	scriptZRemIf      = scripts.Must("zrem_if")
	scriptPage        = scripts.Must("page")
	scriptHeartbeat   = scripts.Must("heartbeat")
	scriptLeases      = scripts.Must("leases")
	scriptLeaseRemove = scripts.Must("lease_remove")
	scriptFeed        = scripts.Must("feed_append")
	scriptSpend       = scripts.Must("spend")
	scriptSetIf       = scripts.Must("set_if")
	scriptDelIf       = scripts.Must("del_if")

	scriptDocsRead  = scripts.Must("docs_read")
	scriptDocsList  = scripts.Must("docs_list")
	scriptDocsWrite = scripts.Must("docs_write")

	scriptPlaceClaim   = scripts.Must("place_claim")
	scriptPlaceRefresh = scripts.Must("place_refresh")
	scriptPlaceRelease = scripts.Must("place_release")

	scriptCallCreate = scripts.Must("call_base", "call_create")
	scriptCallBegin  = scripts.Must("call_base", "call_begin")
	scriptCallMove   = scripts.Must("call_base", "call_move")
	scriptCallRead   = scripts.Must("call_base", "call_read")
	scriptCallKeep   = scripts.Must("call_base", "call_keep")
	scriptCallLog    = scripts.Must("call_base", "call_log")

	scriptChatBegin    = scripts.Must("chat_base", "chat_begin")
	scriptChatRenew    = scripts.Must("chat_base", "chat_renew")
	scriptChatEnd      = scripts.Must("chat_base", "chat_end")
	scriptChatAppend   = scripts.Must("chat_base", "chat_append")
	scriptChatDraft    = scripts.Must("chat_base", "chat_draft")
	scriptChatTruncate = scripts.Must("chat_base", "chat_truncate")
	scriptChatTitle    = scripts.Must("chat_base", "chat_title")
	scriptChatTrail    = scripts.Must("chat_base", "chat_trail")
	scriptChatRead     = scripts.Must("chat_base", "chat_read")
	scriptChatOwner    = scripts.Must("chat_base", "chat_owner")
	scriptChatName     = scripts.Must("chat_base", "chat_name")
	scriptChatErase    = scripts.Must("chat_base", "chat_erase")
	scriptChatInfo     = scripts.Must("chat_base", "chat_info")

	scriptChatsTouch   = scripts.Must("chats_base", "chats_touch")
	scriptChatsForget  = scripts.Must("chats_base", "chats_forget")
	scriptChatsVersion = scripts.Must("chats_base", "chats_version")
	scriptChatsPrune   = scripts.Must("chats_base", "chats_prune")

	scriptAudit = scripts.Must("audit_append")
	scriptTake  = scripts.Must("take")
	scriptUsage = scripts.Must("usage_add")

	scriptContinuationKeep = scripts.Must("continuation_keep")
	scriptContinuationRead = scripts.Must("continuation_read")

	scriptChangeAppend   = scripts.Must("change_append")
	scriptRevocationMark = scripts.Must("revocation_mark")
)
