package registry

import "context"

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
