// Package registry is the domain of Farhand: sessions, the tools they offer, the calls made to them, and the contracts
// of a store and a bus. It has types, tables and interfaces, and starts no goroutines.
//
// The packages below it do the work:
//
//	registry/routing       routes calls, waits for answers, keeps the leases of this pod's sessions
//	registry/memory        the store and the bus of a single process
//	registry/registrytest  tests that every store and every bus must pass
//	registry/textsafe       text that is safe to show to people and models
//
// Start with session.go (devices), call.go (calls), state.go (the states of a call) and store.go (the shared data of
// the fleet). bus.go has the messages between pods.
//
// Imports: only internal packages and registry/textsafe. No transport and no storage.
package registry

import (
	"cmp"
	"context"
	"time"
)

// Entry is a session with the tools it offers, ordered by name.
type Entry struct {
	Session Session
	Tools   []ToolSpec
	Pulse   Pulse // zero: unknown, as after a claim, or if the pod's release writes none
}

// Claim is the outcome of claiming a session.
type Claim struct {
	Session  Session  // as stored: pod, new generation, heirs and the store's time filled in
	Previous *Session // the claim this one replaced; nil if there was none

	// Before is Previous or, while it is remembered, the claim that was released last. A released claim has only its
	// device, capabilities and proofs.
	Before *Session

	// Formers are at most MaxFormers pods that held the session within the last FormerTerm, the latest first. Callers
	// may wait there for the device's answers. The claiming pod may be among them.
	Formers []string
}

// SessionStore records which pod owns a session and which tools it offers.
//
// Every write after Claim is fenced: it takes effect only while its claim is the current one. If there is, or was, a
// newer claim, it fails with ErrNotOwner, so a late write can never change a successor. If the store merely lost the
// session, it fails with CodeStoreUnavailable, and the caller restores the session.
type SessionStore interface {
	// Claim makes s.Pod the owner, whatever pod owned the session before, under a new, higher generation. It removes
	// the tools of the previous claim: the new connection registers its own. Until then, and within RegisterWait,
	// Directory.Awaited returns the previous tools.
	//
	// A claim that must be asked first (see Session.AskFirst) is replaced only if s.Generation is its generation, or
	// AnyHolder. Otherwise the error is a *Held, and nothing has changed. A session of another user or device (see
	// Session.BelongsTo) fails with ErrForeignSession, also while it is only remembered.
	Claim(ctx context.Context, s Session) (Claim, error)

	// Restore writes a session whose socket this pod still holds, after the store lost it. It works like Claim with
	// tools and pulse, but fails with ErrNotOwner if another pod owns the session now. It returns the session with its
	// generation.
	Restore(ctx context.Context, e Entry) (Session, error)

	// Update replaces the attributes (names, device, labels, capabilities) of a claimed session.
	Update(ctx context.Context, s Session) error

	// SetTools replaces all tools of a claim. Their names must be unique. The tools of the previous claim are expected
	// for at most SettleWait from then on.
	SetTools(ctx context.Context, s Session, tools []ToolSpec) error

	// Refresh extends the life of the given claims, which all belong to one pod, and stores their pulses, except zero
	// ones. It returns the claims that the store no longer has (missing: restore them) and those that have another
	// owner (lost: close their sockets).
	Refresh(ctx context.Context, entries []Entry) (missing, lost []Key, err error)

	// Release removes a claim, its tools and its index entries. It reports whether the claim was current. The session
	// stays known as disconnected for one session TTL. back, at most a session TTL, is how long the device is expected
	// to reconnect; meanwhile Directory.Awaited returns its tools. Zero: it is not expected. Release may be repeated
	// after an error; after an *UnfinishedError, its Finish must be called instead.
	Release(ctx context.Context, s Session, back time.Duration) (bool, error)

	// Forget returns a function that removes the index entries of a claim that has ended, and leaves those of a newer
	// one. Call it after a repeated Release: the first one may have ended the claim, and its answer was lost. The
	// function holds little memory, and can be called again.
	Forget(e Entry) (forget func(ctx context.Context) error)
}

// Awaited is a session that is expected to offer its former tools again shortly: its device is away and expected back,
// or has reconnected and not yet registered all its tools.
type Awaited struct {
	Session Session       // while it is away: only the key, user, device and labels, and no pod
	Tools   []ToolSpec    // its former tools, ordered by name
	Left    time.Duration // how much longer it is expected
}

// Away reports whether the session has no connection.
func (a Awaited) Away() bool { return a.Session.Pod == "" }

// Query selects sessions. Empty fields do not restrict. The cost of a query with a Viewer grows with the sessions that
// the viewer can see, not with those of the tenant.
type Query struct {
	Tenant string
	Target
	Tool   string // sessions that offer a tool of this name
	Spec   string // of those, the ones with this definition: the hash of a specification
	After  Cursor // start after this position
	Limit  int    // at most this many entries; zero means 100
	Newest bool   // newest first instead of oldest first; the zero After is then the end
}

// Cursor is a position in the order of sessions: by generation, which is the order of connecting, then by id. The zero
// value is the beginning.
type Cursor struct {
	Generation int64
	Session    string
}

// Compare orders positions by generation, then by id.
func (c Cursor) Compare(other Cursor) int {
	return cmp.Or(cmp.Compare(c.Generation, other.Generation), cmp.Compare(c.Session, other.Session))
}

// CursorOf returns the position of a session.
func CursorOf(s *Session) Cursor { return Cursor{s.Generation, s.Key.Session} }

// Before returns a position from which a list begins with the session at c. The tilde sorts after all characters of an
// id.
func (c Cursor) Before() Cursor { return Cursor{c.Generation - 1, "~"} }

// CoversTool reports whether a tool of a session comes at or before a position in a list of tools, which has the
// sessions in their order and their tools by name: that of the tool last of the session at c. If last is empty, all
// tools of that session come before.
func (c Cursor) CoversTool(last string, s *Session, tool string) bool {
	order := CursorOf(s).Compare(c)
	return order < 0 || order == 0 && (last == "" || tool <= last)
}

// Compare orders positions as the query lists them.
func (q Query) Compare(a, b Cursor) int {
	if q.Newest {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// Reaches reports whether a position comes after q.After.
func (q Query) Reaches(c Cursor) bool { return q.After == Cursor{} || q.Compare(c, q.After) > 0 }

// OfferedTool is one definition of a tool, with the number of sessions that offer it.
type OfferedTool struct {
	Spec     ToolSpec
	Sessions int
}

// OfferedToolQuery selects offered tools of one tenant, in order of name. Empty fields do not restrict.
type OfferedToolQuery struct {
	Tenant string
	Name   string
	After  string // the cursor that the previous page returned
	Limit  int    // at most this many; zero means 100
}

// MaxDefinitions is how many definitions of one tool are ordered by age.
const MaxDefinitions = 32

// Directory lists connected sessions and their tools. Sessions whose pod's lease has lapsed are not listed.
type Directory interface {
	// Entry returns one session with its tools. It fails with CodeSessionNotFound if the session is unknown, and with
	// CodeNotConnected if it was connected less than one session TTL ago. In the second case the entry has the
	// session's user and device.
	Entry(ctx context.Context, key Key) (Entry, error)

	// List returns a page of sessions in order, and the cursor of the next page, nil on the last. A page may have fewer
	// entries than the limit, even none, and still have a next one.
	List(ctx context.Context, q Query) ([]Entry, *Cursor, error)

	// Awaited returns sessions that are expected to offer the query's tool and match its target, by their former data.
	// It returns up to the query's limit, in no order and without pages. A query must name a tool, a session, a device
	// or a user. If some thousands match one part of the query, not all of them are found.
	Awaited(ctx context.Context, q Query) ([]Awaited, error)

	// OfferedTools returns a page of the definitions of tools, and the cursor of the next page, empty on the last.
	OfferedTools(ctx context.Context, q OfferedToolQuery) ([]OfferedTool, string, error)

	// Definitions returns the hashes of the specifications under which a tool is offered, at most MaxDefinitions. The
	// first belongs to the session whose device has had it for longest. A definition whose last session has just gone
	// may be among them.
	Definitions(ctx context.Context, tenant, tool string) ([]string, error)

	// OnlineDevices returns, for each of these devices, the newest connected session that proved to be it
	// (Session.Bound), by device id and without tools. It checks only the newest few sessions of each device.
	OnlineDevices(ctx context.Context, tenant string, deviceIDs []string) (map[string]Entry, error)

	// Version returns a value that changes whenever the methods above may return new data for the tenant, except
	// pulses, which change all the time. A value never returns for other content. Version is cheap: poll it instead of
	// a listing. A listing read after it is at least as new.
	Version(ctx context.Context, tenant string) (string, error)
}

// PodStore keeps the leases of the pods.
type PodStore interface {
	// Heartbeat takes or renews a pod's lease for the configured time. known reports whether the store still had an
	// unlapsed lease. It is false on the first heartbeat, after a pause longer than the lease, and after the store was
	// emptied. The pod then announces its sessions again immediately.
	Heartbeat(ctx context.Context, pod string) (known bool, err error)

	// Live returns the pods with an unlapsed lease.
	Live(ctx context.Context) ([]string, error)

	// Whole returns CodeStoreUnavailable while the store may lack sessions that pods hold: it was emptied, and the pods
	// have not announced all of them again. Directory.Entry then returns the same code instead of CodeSessionNotFound.
	Whole(ctx context.Context) error

	// Sweep releases what lapsed pods left behind, in bounded steps, and returns the pods that it saw lapsed, also with
	// an error. Any pod may sweep at any time; concurrent sweeps are safe, and each returns the tenants of the sessions
	// that it released.
	Sweep(ctx context.Context) ([]DeadPod, error)

	// Leave gives up a pod's lease after its sessions were released.
	Leave(ctx context.Context, pod string) error
}

// DeadPod is a pod whose lease lapsed.
type DeadPod struct {
	Pod     string
	Tenants []string // of sessions that it left behind, each once, in any order
}

// Store is the shared data of a fleet. Package registry/memory implements it for one process, package redisstore for
// several. All methods of its parts are safe for concurrent use and honour their context. They do not keep slices
// passed to them, except lists of tools. A failure of the store itself is an *Error with CodeStoreUnavailable.
type Store interface {
	SessionStore
	Directory
	PodStore
	CallStore
	QueueStore
	SleepingStore
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
	SpendingStore
	TenantStore
	BlobStore
	ToolMemoryStore
	WakeStore
	DefaultStore
	EraseStore

	// Ping reports whether the store can be read and written now.
	Ping(ctx context.Context) error
}

// ErrNotOwner is returned for fenced writes of a claim that is no longer current.
var ErrNotOwner = Errorf(CodeNotOwner, "The session belongs to a newer connection.")

// PersonalKind is a kind of data about a user that an EraseStore can find.
type PersonalKind string

// The kinds.
const (
	PersonalApprovals     PersonalKind = "approvals"     // asked by the user, or for the user's devices
	PersonalCalls         PersonalKind = "calls"         // records, logs and idempotency keys of the user's calls
	PersonalContinuations PersonalKind = "continuations" // owners of continuations
	PersonalDefault       PersonalKind = "default_device"
	PersonalMemories      PersonalKind = "tool_memories" // of local tools, for the user
	PersonalUsage         PersonalKind = "usage"         // rows of all days
	PersonalWakes         PersonalKind = "wakes"         // how the user's devices are woken
)

// PersonalKinds returns all kinds.
func PersonalKinds() []PersonalKind {
	return []PersonalKind{
		PersonalApprovals, PersonalCalls, PersonalContinuations, PersonalDefault, PersonalMemories,
		PersonalUsage, PersonalWakes,
	}
}

// EraseStore removes what the store has about a user. What is not found by a user has methods of its own:
// credentials, grants, conversations.
type EraseStore interface {
	// EraseOf removes all data of a kind about a user of a tenant, page by page, and returns how much it removed. After
	// an error, some is removed; the next attempt removes the rest. It may be slow.
	EraseOf(ctx context.Context, tenant, user string, kind PersonalKind) (int, error)
}

// ContinuationsOf returns the owner of a user's continuations.
func ContinuationsOf(tenant, user string) ContinuationOwner {
	return ContinuationOwner{Tenant: tenant, User: "user:" + user}
}

// Bounds of default devices.
const (
	MaxDefaults = 100_000              // of a tenant
	DefaultLife = 365 * 24 * time.Hour // since the default was set, or used in the second half of its life
)

// DefaultStore keeps the default device of each user: the one that is called if several devices of the user match.
type DefaultStore interface {
	// DefaultDevice returns the device id of a user's default. It fails with ErrNoDefault if there is none.
	DefaultDevice(ctx context.Context, tenant, user string) (string, error)

	// SetDefaultDevice replaces the default. The device need not exist. It fails with ErrManyDefaults if the tenant has
	// MaxDefaults others.
	SetDefaultDevice(ctx context.Context, tenant, user, device string) error

	// DropDefaultDevice removes the default. It fails with ErrNoDefault if there is none.
	DropDefaultDevice(ctx context.Context, tenant, user string) error
}

// Errors of a DefaultStore.
var (
	ErrNoDefault    = Errorf(CodeNotFound, "The user has no default device.")
	ErrManyDefaults = Errorf(CodeRateLimited, "This tenant has %d default devices, the most that "+
		"are kept. Remove some.",
		MaxDefaults)
)
