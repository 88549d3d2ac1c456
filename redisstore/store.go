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
// docs/architecture.md lists every key with its type, its content and its lifetime; keys.go builds them, bus/bus.go
// those of messages. A session is one hash, and the scripts that decide who owns it touch only keys in its slot.
// Sessions are found through sorted sets, the indexes, which lie in other slots and are written afterwards.
//
// The score of a member of an index is the generation of the session: a clock reading in microseconds that grows with
// every claim. It orders pages by connection time, finds the newest session, and fences: a member is removed only up to
// the generation that the remover knows. The next reader removes a member whose session is gone.
//
// A set of tools is stored once, under the hash of its content, because devices of a kind offer the same. A session
// names its set and is in one index for it, however many tools the set has (docs/decisions/0006-tool-sets.md).
//
// Only scripts change the record of a call. Each gets its allowed moves as arguments, so registry.State is the only
// state machine. Scripts that write to a conversation first compare the fence of their turn with the current one, so a
// paused pod cannot write after its successor. Approvals, grants, blobs, credentials, pairings and memories of tools
// are documents (docs/decisions/0064-documents.md).
//
// # Consistency
//
// An index may lag behind the hashes for a moment; the hashes decide. A pod that adds members to indexes then checks
// that its claim is still current, and removes them if it is not. So either the newer claim sees what it replaces and
// removes it, or this check does. Three times per session TTL, Refresh compares each session in Redis with the session
// of its pod, member by member. The pod restores what a failover, an eviction or a failed write lost. Everything is
// written with a TTL, so a dead fleet leaves no data behind.
package redisstore

import (
	"context"
	"crypto/x509"
	"embed"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/internal/signed"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/blobs"
	"github.com/farhand/farhand/registry/credentials"
	"github.com/farhand/farhand/registry/defaults"
	"github.com/farhand/farhand/registry/pairings"
	"github.com/farhand/farhand/registry/sleeping"
	"github.com/farhand/farhand/registry/toolmemory"
	"github.com/farhand/farhand/registry/wakes"
)

// Store is a registry.Store on Redis. It is safe for concurrent use. Its methods are documented at the interfaces of
// package registry; comments here describe only the use of Redis.
type Store struct {
	// Entities on documents.
	registry.ApprovalStore
	registry.BlobStore
	registry.CredentialStore
	registry.PairingStore
	registry.SleepingStore
	registry.ToolMemoryStore
	registry.WakeStore
	registry.DefaultStore
	tenantStore

	conn   *redisconn.Conn
	swept  atomic.Int64 // tenants with queues that DueQueued skips: it has read them
	follow *follower
	signer *signed.Signer
	log    *slog.Logger

	opts       registry.Limits
	sessionTTL int64 // in ms, as the other lives
	indexTTL   int64 // of indexes and specifications: outlives a session by a whole TTL
	lease      int64
	retention  int64
	historyTTL int64

	lines  sync.Pool // of *bytes.Buffer: each AppendActivity writes its lines into one
	limits *redisconn.Together[*taking]

	specs      *cache.Cache[string, registry.ToolSpec]
	sets       *cache.Cache[string, toolSet]
	written    *writtenSets
	refreshers sync.Pool // of *refresher
	live       *liveSet
	reads      *share.Pool // turns to read a record
	own        ownLease
	staleCheck throttle
	offers     *cache.Cache[string, *atomic.Int64] // entries written since collectOffers, by tenant
}

var _ registry.Store = (*Store)(nil)

// Store returns a store on the connection. Each store has its own caches.
func (c *Conn) Store() *Store {
	s := &Store{
		conn: c.conn, follow: c.follow, signer: c.signer, log: c.opts.Log, opts: c.opts.Limits,
		sessionTTL: millis(c.opts.SessionTTL),
		indexTTL:   millis(2 * c.opts.SessionTTL),
		// PodLease is a promise to users: the tools of a killed pod leave the listing within it. So the stored lease
		// expires after four fifths of it. In the last fifth the other pods clean up; they look for expired leases
		// every tenth.
		lease:      max(1, millis(c.opts.PodLease)*4/5),
		retention:  millis(c.opts.Retention),
		historyTTL: millis(c.opts.HistoryTTL),
		limits:     newLimits(c.conn),
		specs:      cache.New[string, registry.ToolSpec](cacheBytes/2, 0),
		sets:       cache.New[string, toolSet](cacheBytes/2, 0),
		written:    newWrittenSets(2 * c.opts.SessionTTL),
		staleCheck: throttle{every: staleCheckInterval}, reads: share.New(share.Turns(maxReads)),
		offers: cache.New[string, *atomic.Int64](maxOfferTenants, 0),
	}
	docs := s.Documents()
	s.ApprovalStore, s.BlobStore, s.PairingStore = approvals.New(docs, s.log), blobs.New(docs), pairings.New(docs)
	s.ToolMemoryStore, s.SleepingStore = toolmemory.New(docs), sleeping.New(docs)
	s.WakeStore, s.DefaultStore = wakes.New(docs), defaults.New(docs)
	s.CredentialStore = credentials.New(docs, s, c.opts.Credentials, s.log)
	s.tenantStore = newTenantStore(docs, s.conn, c.opts.Limits)
	s.live = newLiveSet(s.Live, min(liveSetAge, c.opts.PodLease/20))
	return s
}

func millis(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// Ping implements registry.Store. It writes: a Redis that is out of memory still answers reads.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.conn.Do(ctx, "SET", pingKey, "1", "PX", s.sessionTTL)
	return err
}

// errMissing is the cause when a fenced write finds that the store lost the session and no other pod owns it. The write
// fails as if the store were unavailable, and the next Refresh restores everything.
var errMissing = errors.New("the store lost the session; the next refresh restores it")

// fenced reads the answer of a fenced script: an error, or the data that the script has read.
func fenced(op string, c *redisconn.Command) (any, error) {
	answer := c.List()
	switch {
	case len(answer) == 2:
		return answer[1], nil
	case len(answer) != 1:
		return nil, c.ErrShape()
	case redisconn.Int(answer[0]) == 0:
		return nil, registry.ErrNotOwner
	default:
		return nil, registry.StoreUnavailable(op, errMissing)
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

//go:embed lua/*.lua
var scriptFiles embed.FS

// scripts are the scripts of the store; Dial loads them all.
var scripts = redisconn.NewScripts(scriptFiles)

// The scripts, read once and never changed. Each file begins with its KEYS, its ARGV and what it returns.
var (
	scriptClaim      = scripts.Must(KindSessions, "form_base", "expect_base", "claim")
	scriptRestore    = scripts.Must(KindSessions, "form_base", "restore")
	scriptUpdate     = scripts.Must(KindSessions, "form_base", "session_base", "update")
	scriptSetTools   = scripts.Must(KindSessions, "form_base", "session_base", "set_tools")
	scriptRefresh    = scripts.Must(KindSessions, "refresh")
	scriptRelease    = scripts.Must(KindSessions, "form_base", "expect_base", "release")
	scriptEntry      = scripts.Must(KindListing, "entry")
	scriptLabelsAdd  = scripts.Must(KindSessions, "labels_add")
	scriptIndexLeave = scripts.Must(KindSessions, "mirror_base", "index_leave")
	scriptMirror     = scripts.Must(KindSessions, "mirror_base", "mirror")

	scriptDefinitionsAdd = scripts.Must(KindSessions, "definitions_add")
	scriptOffersMissing  = scripts.Must(KindSessions, "offers_missing")

	scriptZRemIf      = scripts.Must(KindSessions, "zrem_if")
	scriptPage        = scripts.Must(KindListing, "page")
	scriptHeartbeat   = scripts.Must(KindPods, "heartbeat")
	scriptLeases      = scripts.Must(KindPods, "leases")
	scriptLeaseRemove = scripts.Must(KindPods, "lease_remove")
	scriptFeed        = scripts.Must(KindActivity, "feed_append")
	scriptSpend       = scripts.Must(KindBudgets, "spend")
	scriptSetIf       = scripts.Must(KindCalls, "set_if")
	scriptDelIf       = scripts.Must(KindCalls, "del_if")

	scriptDocsRead  = scripts.Must(kindDocuments, "docs_read")
	scriptDocsList  = scripts.Must(kindDocuments, "docs_list")
	scriptDocsWrite = scripts.Must(kindDocuments, "form_base", "docs_write")

	scriptPlaceClaim   = scripts.Must(KindSessions, "form_base", "place_claim")
	scriptPlaceRefresh = scripts.Must(KindSessions, "form_base", "place_refresh")
	scriptPlaceRelease = scripts.Must(KindSessions, "form_base", "place_release")

	scriptCallCreate = scripts.Must(KindCalls, "form_base", "call_base", "call_create")
	scriptCallBegin  = scripts.Must(KindCalls, "form_base", "call_base", "call_begin")
	scriptCallMove   = scripts.Must(KindCalls, "form_base", "call_base", "call_move")
	scriptCallRead   = scripts.Must(KindCalls, "form_base", "call_base", "call_read")
	scriptCallKeep   = scripts.Must(KindCalls, "form_base", "call_base", "call_keep")
	scriptCallLog    = scripts.Must(KindCalls, "form_base", "call_base", "call_log")

	scriptQueueAdd    = scripts.Must(KindCalls, "queue_base", "queue_add")
	scriptQueueRemove = scripts.Must(KindCalls, "queue_base", "queue_remove")
	scriptQueueHead   = scripts.Must(KindCalls, "queue_base", "queue_head")
	scriptQueueDue    = scripts.Must(KindCalls, "queue_base", "queue_due")
	scriptQueueScan   = scripts.Must(KindCalls, "queue_base", "queue_scan")

	scriptChatBegin    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_begin")
	scriptChatRenew    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_renew")
	scriptChatEnd      = scripts.Must(KindConversations, "form_base", "chat_base", "chat_end")
	scriptChatAppend   = scripts.Must(KindConversations, "form_base", "chat_base", "chat_append")
	scriptChatDraft    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_draft")
	scriptChatTruncate = scripts.Must(KindConversations, "form_base", "chat_base", "chat_truncate")
	scriptChatTitle    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_title")
	scriptChatTrail    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_trail")
	scriptChatRead     = scripts.Must(KindConversations, "form_base", "chat_base", "chat_read")
	scriptChatOwner    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_owner")
	scriptChatName     = scripts.Must(KindConversations, "form_base", "chat_base", "chat_name")
	scriptChatErase    = scripts.Must(KindConversations, "form_base", "chat_base", "chat_erase")
	scriptChatInfo     = scripts.Must(KindConversations, "form_base", "chat_base", "chat_info")

	scriptChatsTouch   = scripts.Must(KindConversations, "chats_base", "chats_touch")
	scriptChatsForget  = scripts.Must(KindConversations, "chats_base", "chats_forget")
	scriptChatsVersion = scripts.Must(KindConversations, "chats_base", "chats_version")
	scriptChatsPrune   = scripts.Must(KindConversations, "chats_base", "chats_prune")

	scriptAudit = scripts.Must(KindAudit, "audit_append")
	scriptTake  = scripts.Must(KindLimits, "take")
	scriptUsage = scripts.Must(KindAudit, "form_base", "usage_add")
	scriptSpent = scripts.Must(KindBudgets, "spent_add")

	scriptContinuationKeep = scripts.Must(KindConversations, "form_base", "continuation_keep")
	scriptContinuationRead = scripts.Must(KindConversations, "continuation_read")

	scriptChangeAppend   = scripts.Must(KindCredentials, "change_append")
	scriptRevocationMark = scripts.Must(KindCredentials, "revocation_mark")

	scriptImportWhole  = scripts.Must(KindOther, "import_whole")
	scriptImportMerge  = scripts.Must(KindOther, "import_merge")
	scriptImportStream = scripts.Must(KindOther, "import_stream")
)

// Missing returns which of the commands that a pod sends the servers refuse to the user of o.URL, in their words. It
// tries each on a key and a channel of its own, which it removes. Unlike Dial it needs no right. ctx bounds it.
func Missing(ctx context.Context, o Options) ([]string, error) {
	return redisconn.Missing(ctx, o.servers())
}

// Skew returns by how much the clock of the servers is ahead of this machine's, of several the one furthest off. It is
// exact to half of a round trip.
func Skew(ctx context.Context, o Options) (time.Duration, error) {
	return redisconn.Skew(ctx, o.servers())
}

// Certificates returns the certificates of the servers that o.URL names, by host and port; none without TLS. An error
// says which server cannot be reached, or why its certificate is not accepted.
func Certificates(ctx context.Context, o Options) (map[string]*x509.Certificate, error) {
	return redisconn.Certificates(ctx, o.servers())
}
