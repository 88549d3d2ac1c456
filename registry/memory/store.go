// Package memory is the store of a single gateway, without Redis. It behaves like a shared store, so several pods of
// one process may share one Store, each with its own Bus.
//
// Start with store.go, then sessions.go. The other files are named after the contracts of package registry that they
// implement. shared.go has the map that most of them use. documents.go keeps what approvals, blobs, credentials,
// pairings and memories of tools consist of.
//
// With a Journal (journal.go), a store keeps beyond its process: documents, conversations, places, continuations, audit
// logs, usage, changes of credentials and the charges of rate limits. keeper.go writes them. Sessions, tool sets,
// calls, activity, byte budgets, turns and the loop guard's trails are of the process.
//
// Imports: only registry and the packages of those entities below it, of the packages of this module.
package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/blobs"
	"github.com/farhand/farhand/registry/credentials"
	"github.com/farhand/farhand/registry/defaults"
	"github.com/farhand/farhand/registry/pairings"
	"github.com/farhand/farhand/registry/sleeping"
	"github.com/farhand/farhand/registry/tenants"
	"github.com/farhand/farhand/registry/toolmemory"
	"github.com/farhand/farhand/registry/wakes"
)

// Options configures a Store.
type Options struct {
	registry.Limits
	Now func() time.Time // the store's clock; default time.Now
	Log *slog.Logger     // gets failures of the journal; default: discard
}

// Store implements registry.Store, whose interfaces document the methods. It is safe for concurrent use.
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
	tenants.Listing
	tenants.Spending

	opts   Options
	keeper *keeper // nil without a journal

	mu         sync.RWMutex // guards sessions and pods
	sessions   shared[registry.Key, *storedSession]
	gone       shared[registry.Key, *goneSession]
	goneLists  shared[listID, *goneList]
	expecting  map[string]map[registry.Key]struct{} // each tenant's sessions with expected tools
	left       map[string]time.Time                 // pods that left, while there may be sessions of theirs
	formers    map[registry.Key][]former
	pods       map[string]time.Time // when the lease of each lapses
	generation int64
	boot       string // different for each Store
	changes    int64  // count of changes to sessions

	feedsMu sync.Mutex
	feeds   map[string]*feed // by tenant

	documents     *documentStore
	calls         calls
	queues        queues
	conversations conversations
	changeLog     changeLog

	continuations table[registry.ContinuationOwner, *holder]
	audits        table[string, *auditLog]    // by tenant
	budgets       table[tenantKey, *budget]   // those that are not full
	windows       table[windowKey, *window]   // those that have a charge
	unwritten     map[windowKey]struct{}      // charged since the journal got them; guarded by the lock of windows
	usage         table[tenantKey, *usageDay] // by tenant and day

	buses sync.Map // pod → *Bus
}

var _ registry.Store = (*Store)(nil)

// New returns an empty store, which forgets everything when the process ends.
func New(o Options) *Store { return newStore(o, nil) }

// Open returns a store with what a journal keeps. It takes over the journal, also if it fails. Close it.
func Open(o Options, j Journal) (*Store, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	k := newKeeper(j, o.Log)
	m := newStore(o, k)
	k.load, k.expire, k.flush = m.loaders(), m.expire, m.writeWindows
	m.audits.erase = func(tx *change, tenant string, l *auditLog) { l.erase(tx, tenant) }
	m.usage.erase = func(tx *change, at tenantKey, day *usageDay) { day.erase(tx, at) }
	m.continuations.erase = func(tx *change, o registry.ContinuationOwner, h *holder) { h.erase(tx, o) }
	m.windows.erase = func(tx *change, key windowKey, _ *window) { tx.drop(kindWindow, key.record()) }
	err := j.Load(func(r Record) error {
		if err := k.load[r.Kind](r); err != nil {
			return fmt.Errorf("%s record %q: %w", r.Kind, r.Key, err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	go k.run()
	m.expire()
	return m, nil
}

// Close writes what waits and closes the journal, within ctx. Later writes of what the journal keeps fail. A store
// without a journal need not be closed.
func (m *Store) Close(ctx context.Context) error {
	if m.keeper == nil {
		return nil
	}
	return m.keeper.close(ctx)
}

// expire removes what has expired of what the journal keeps.
func (m *Store) expire() {
	c, err := m.keeper.begin()
	if err != nil {
		return // a later one does it
	}
	defer c.end()
	now := m.documents.lock()
	m.documents.purge(c, now)
	c.unlock(&m.documents.mu)
	m.conversations.mu.Lock()
	m.conversations.purge(c, m.opts.Now())
	c.unlock(&m.conversations.mu)
	m.continuations.lock(m.opts.Now, c)
	c.unlock(&m.continuations.mu)
	m.audits.lock(m.opts.Now, c)
	c.unlock(&m.audits.mu)
	m.usage.lock(m.opts.Now, c)
	c.unlock(&m.usage.mu)
	m.windows.lock(m.opts.Now, c)
	c.unlock(&m.windows.mu)
	m.changeLog.mu.Lock()
	for key := range m.changeLog.revoked {
		m.changeLog.purge(c, m, key, m.opts.Now())
	}
	m.changeLog.purgeLog(c, m, m.opts.Now())
	c.unlock(&m.changeLog.mu)
}

func newStore(o Options, k *keeper) *Store {
	o.Limits = o.WithDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Store{
		opts:      o,
		keeper:    k,
		sessions:  newShared[registry.Key, *storedSession]("sessions", math.MaxInt, 0),
		gone:      newShared[registry.Key, *goneSession]("sessions", maxGone, 0),
		goneLists: newShared[listID, *goneList]("tools of sessions", maxGoneLists, 0),
		expecting: make(map[string]map[registry.Key]struct{}),
		left:      make(map[string]time.Time),
		formers:   make(map[registry.Key][]former),
		pods:      make(map[string]time.Time),
		boot:      rand.Text(),
		feeds:     make(map[string]*feed),
		documents: newDocuments(o.Now, k),
		calls: calls{
			records: newShared[string, *storedCall]("calls", maxCalls, 0),
			logs:    newShared[string, *callLog]("logs of calls", maxLogs, 0),
			keys:    make(expiring[tenantKey, *keyHolder]),
		},
		conversations: conversations{
			all:    newShared[registry.Key, *conversation]("conversations", maxConversations, 0),
			places: places{shared: newShared[registry.PlaceKey, *place]("places", maxPlaces, maxTenantPlaces)},
		},
		changeLog: changeLog{revoked: make(map[revokedKey]map[string]time.Time)},
	}
	m.ApprovalStore = approvals.New(m.documents, slog.New(slog.DiscardHandler))
	m.BlobStore = blobs.New(m.documents)
	m.CredentialStore = credentials.New(m.documents, m, m.opts.Credentials, slog.New(slog.DiscardHandler))
	m.PairingStore = pairings.New(m.documents)
	m.ToolMemoryStore, m.SleepingStore = toolmemory.New(m.documents), sleeping.New(m.documents)
	m.WakeStore, m.DefaultStore = wakes.New(m.documents), defaults.New(m.documents)
	m.Listing, m.Spending = tenants.New(m.documents), tenants.NewSpending(m.documents, m.opts.Limits)
	m.gone.weigh, m.goneLists.weigh = (*goneSession).size, (*goneList).size
	return m
}

// Ping implements registry.Store. After a failure of the journal it tries to write.
func (m *Store) Ping(ctx context.Context) error {
	if m.keeper == nil || m.keeper.works() {
		return nil
	}
	return m.keeper.write(ctx, func(c *change) error {
		c.put(kindProbe, "probe", []byte{})
		c.queue()
		return nil
	})
}

const defaultPage = 100 // page size without a limit

func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return limit
}
