// Package registry is the domain of Farhand: sessions, the tools they offer, the calls made to them, and the contracts
// a store and a bus must keep. It holds types, tables and interfaces; nothing in it runs by itself.
//
// The packages below it do the work:
//
//	registry/routing       routes calls, waits for answers, keeps the leases of this pod's sessions
//	registry/memory        the store and the bus of a single process
//	registry/registrytest  what every store and every bus must pass
//	registry/legible       text that people and models may be shown
//
// Start with session.go (who a device is), call.go (what is asked of it), state.go (how a call moves on) and store.go
// (what the fleet shares). bus.go has the messages between pods.
//
// Imports: only internal packages and registry/legible. No transport and no storage.
package registry

import (
	"context"
	"time"
)

// Entry is a session with the tools it offers, ordered by name.
type Entry struct {
	Session Session
	Tools   []ToolSpec
	Pulse   Pulse // zero: not known, as after a claim, or if the pod is of a release that writes none
}

// Claim is the outcome of claiming a session.
type Claim struct {
	Session  Session  // as stored: pod, new generation, heirs and the store's time filled in
	Previous *Session // the claim this one replaced, nil when there was none

	// Before is Previous or, as long as it is remembered, the claim that was released last. Of a released claim only
	// the device, the capabilities and the proofs are set.
	Before *Session

	// Formers are the pods that held the session within the last FormerTerm, the latest first and at most MaxFormers.
	// Callers may wait there for answers of its device. The pod that claims the session may be among them.
	Formers []string
}

// SessionStore keeps which pod owns a session and which tools it offers. All methods are safe for concurrent use and
// honour their context. A failure of the store itself is an *Error with CodeStoreUnavailable.
//
// Every write after Claim is fenced: it takes effect only while the claim it belongs to is the current one. It answers
// ErrNotOwner once there is, or was, a newer claim, so a late write can never touch a successor; and
// CodeStoreUnavailable if the store merely lost the session, which is then to be restored.
type SessionStore interface {
	// Claim makes s.Pod the owner, whoever owned the session before, under a new, higher generation. Tools of the
	// previous claim are gone afterwards: the new connection registers its own, and until it has, within RegisterWait,
	// Directory.Awaited knows what the previous one offered. A claim that has to be asked first (see
	// Session.AskFirst) is replaced only if s.Generation is its generation, or AnyHolder; else the error is a *Held,
	// and nothing has changed. A session that belongs to another user or device (see Session.BelongsTo) is refused
	// with ErrForeignSession, also while it is only remembered.
	Claim(ctx context.Context, s Session) (Claim, error)

	// Restore writes a session this pod still holds the socket of, after the store lost it: like Claim with tools and
	// pulse, but ErrNotOwner if another pod owns the session now. It returns the session with its generation.
	Restore(ctx context.Context, e Entry) (Session, error)

	// Update replaces the attributes (names, device, labels, capabilities) of a claimed session.
	Update(ctx context.Context, s Session) error

	// SetTools replaces all tools of a claim. No two of them may have the same name. What the previous claim offered
	// is expected for at most SettleWait from then on.
	SetTools(ctx context.Context, s Session, tools []ToolSpec) error

	// Refresh extends the life of the given claims, which all belong to one pod, and keeps their pulses, but for zero
	// ones. It reports which of them the store no longer has (missing: to be restored) and which belong to somebody
	// else (lost: their sockets must be closed).
	Refresh(ctx context.Context, entries []Entry) (missing, lost []Key, err error)

	// Release removes a claim, its tools and its traces in every index. It reports whether the claim was current.
	// The session stays known as disconnected for one session TTL. For as long as back, at most a session TTL, its
	// device is expected to connect again, and Directory.Awaited knows what it offered; zero: it is not expected.
	Release(ctx context.Context, s Session, back time.Duration) (bool, error)
}

// Awaited is a session that is expected to offer tools in a moment, because it did just now: its device is away and
// expected back, or it has connected again and has not registered all its tools yet.
type Awaited struct {
	Session Session       // of one that is away only the key, the user, the device and the labels, and no pod
	Tools   []ToolSpec    // what it offered, ordered by name
	Left    time.Duration // for how much longer it is expected
}

// Away reports whether the session has no connection.
func (a *Awaited) Away() bool { return a.Session.Pod == "" }

// Query selects sessions. Empty fields do not restrict. What a query with a Viewer costs grows with the sessions that
// exist for the viewer, and not with those of the tenant.
type Query struct {
	Tenant string
	Target
	Tool   string // sessions offering a tool of this name
	Spec   string // of those, the ones that define it so: the hash of a specification
	After  Cursor // start after this place
	Limit  int    // at most this many entries; zero means 100
	Newest bool   // newest first instead of oldest first; the zero After is then the end
}

// Cursor is a place in the order of sessions: by generation, which is the order of connecting, then by id.
// The zero value is the beginning.
type Cursor struct {
	Generation int64
	Session    string
}

// OfferedTool is one definition of a tool, with the number of sessions that offer the tool so defined.
type OfferedTool struct {
	Spec     ToolSpec
	Sessions int
}

// OfferedToolQuery selects offered tools of one tenant, in order of name. Empty fields do not restrict.
type OfferedToolQuery struct {
	Tenant string
	Name   string
	After  string // the cursor a page before returned
	Limit  int    // at most this many; zero means 100
}

// MaxDefinitions is how many different definitions of one tool are told apart by their age.
const MaxDefinitions = 32

// Directory answers which sessions are connected and what they offer. Sessions whose pod's lease has lapsed are not
// listed. All methods are safe for concurrent use; a failure of the store is an *Error with CodeStoreUnavailable.
type Directory interface {
	// Entry returns one session with its tools: CodeSessionNotFound if it is unknown, CodeNotConnected if it was
	// connected less than one session TTL ago. In the second case the entry says whose it is: user and device.
	Entry(ctx context.Context, key Key) (Entry, error)

	// List returns a page of sessions in order, and the cursor of the next page, nil on the last. A page may hold
	// fewer entries than the limit, even none, and still have a next one.
	List(ctx context.Context, q Query) ([]Entry, *Cursor, error)

	// Awaited returns sessions that are expected to offer the query's tool and match its target, by what they were
	// before: up to the query's limit of them, in no order and no pages. A query must name a tool, a session, a device
	// or a user. Among more than some thousands that match another part of the query, not all are found.
	Awaited(ctx context.Context, q Query) ([]Awaited, error)

	// OfferedTools returns a page of the definitions of tools, and the cursor of the next page, empty on the last.
	OfferedTools(ctx context.Context, q OfferedToolQuery) ([]OfferedTool, string, error)

	// Definitions returns under which specifications a tool is offered, as their hashes: first the one that is offered
	// by the session whose device has had it for longest, at most MaxDefinitions. One whose last session has just gone
	// may be among them.
	Definitions(ctx context.Context, tenant, tool string) ([]string, error)

	// OnlineDevices returns of each of these devices the newest connected session that proved to be it (Session.Bound),
	// by device id and without tools. It looks at the newest few sessions of each device.
	OnlineDevices(ctx context.Context, tenant string, deviceIDs []string) (map[string]Entry, error)

	// Version returns a value that changes whenever the methods above may return something new for the tenant, but for
	// pulses, which change all the time. A value never comes back for other content. Version is cheap, so that a caller
	// that polls can poll it instead. A listing read after it is at least as new.
	Version(ctx context.Context, tenant string) (string, error)
}

// PodStore keeps the leases of the pods.
type PodStore interface {
	// Heartbeat takes or renews the lease of a pod for the configured lease time. known reports whether the store still
	// had an unlapsed lease: false on the first heartbeat, after a pause longer than the lease, and after the store was
	// emptied. The pod then announces its sessions again at once.
	Heartbeat(ctx context.Context, pod string) (known bool, err error)

	// Live returns the pods whose lease has not lapsed.
	Live(ctx context.Context) ([]string, error)

	// Whole returns nil unless the store may lack sessions that pods hold, because it was emptied and they have not
	// announced all of them again: then the error is CodeStoreUnavailable, as is that of Directory.Entry instead of
	// CodeSessionNotFound.
	Whole(ctx context.Context) error

	// Sweep releases what lapsed pods left behind, in bounded steps, and returns the pods it saw lapsed. Any pod
	// may sweep at any time; two sweeping at once do no harm.
	Sweep(ctx context.Context) ([]string, error)

	// Leave gives up the lease of a pod whose sessions have been released.
	Leave(ctx context.Context, pod string) error
}

// Defaults of stores and pods.
const (
	DefaultSessionTTL = 60 * time.Second // life of a session's keys between refreshes
	DefaultPodLease   = 10 * time.Second // how soon a dead pod is noticed
)

// Store is everything a fleet shares. Package registry/memory implements it for one process, package redisstore for
// many.
type Store interface {
	SessionStore
	Directory
	PodStore
	CallStore
	ActivityStore
	ConversationStore
	PlaceStore
	ContinuationStore
	BudgetStore
	CredentialStore
	PairingStore
	ApprovalStore
	AuditStore
	LimitStore
	UsageStore
	BlobStore

	// Ping reports whether the store can be read and written now.
	Ping(ctx context.Context) error
}

// ErrNotOwner is returned by fenced writes of a claim that is no longer the current one.
var ErrNotOwner = Errorf(CodeNotOwner, "The session belongs to a newer connection.")
