// Package memory is the store of a single gateway: no Redis, and no data survives a restart. It behaves like a shared
// store, so several pods of one process may share one Store, each with its own Bus.
//
// Start with store.go, then sessions.go. The other files are named after the contracts of package registry that they
// implement. shared.go has the map that most of them use. documents.go keeps what approvals, blobs, credentials and
// pairings consist of.
//
// Imports: only registry and the packages of those entities below it, of the packages of this module.
package memory

import (
	"context"
	"crypto/rand"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/blobs"
	"github.com/farhand/farhand/registry/credentials"
	"github.com/farhand/farhand/registry/pairings"
)

// Options configures a Store.
type Options struct {
	registry.Limits
	Now func() time.Time // the store's clock; default time.Now
}

// Store implements registry.Store, whose interfaces document the methods. It is safe for concurrent use.
type Store struct {
	// Entities on documents.
	registry.ApprovalStore
	registry.BlobStore
	registry.CredentialStore
	registry.PairingStore

	opts Options

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
	conversations conversations
	changeLog     changeLog

	continuations table[registry.ContinuationOwner, *holder]
	audits        table[string, *auditLog]    // by tenant
	budgets       table[tenantKey, *budget]   // those that are not full
	windows       table[windowKey, *window]   // those that have a charge
	usage         table[tenantKey, *usageDay] // by tenant and day

	buses sync.Map // pod → *Bus
}

var _ registry.Store = (*Store)(nil)

// New returns an empty store.
func New(o Options) *Store {
	o.Limits = o.WithDefaults()
	if o.Now == nil {
		o.Now = time.Now
	}
	m := &Store{
		opts:      o,
		sessions:  newShared[registry.Key, *storedSession]("sessions", math.MaxInt, 0),
		gone:      newShared[registry.Key, *goneSession]("sessions", maxGone, 0),
		goneLists: newShared[listID, *goneList]("tools of sessions", maxGoneLists, 0),
		expecting: make(map[string]map[registry.Key]struct{}),
		left:      make(map[string]time.Time),
		formers:   make(map[registry.Key][]former),
		pods:      make(map[string]time.Time),
		boot:      rand.Text(),
		feeds:     make(map[string]*feed),
		documents: newDocuments(o.Now),
		calls: calls{
			records: newShared[string, *storedCall]("calls", maxCalls, 0),
			logs:    newShared[string, *callLog]("logs of calls", maxLogs, 0),
			keys:    make(expiring[tenantKey, *keyHolder]),
		},
		conversations: conversations{
			all:    newShared[string, *conversation]("conversations", maxConversations, 0),
			places: places{shared: newShared[registry.PlaceKey, *place]("places", maxPlaces, maxTenantPlaces)},
		},
		changeLog: changeLog{revoked: make(map[revokedKey]map[string]time.Time)},
	}
	m.ApprovalStore = approvals.New(m.documents, slog.New(slog.DiscardHandler))
	m.BlobStore = blobs.New(m.documents)
	m.CredentialStore = credentials.New(m.documents, m, m.opts.Credentials, slog.New(slog.DiscardHandler))
	m.PairingStore = pairings.New(m.documents)
	m.gone.weigh, m.goneLists.weigh = (*goneSession).size, (*goneList).size
	return m
}

func (m *Store) Ping(context.Context) error { return nil }

const defaultPage = 100 // page size without a limit

func pageSize(limit int) int {
	if limit <= 0 {
		return defaultPage
	}
	return limit
}
