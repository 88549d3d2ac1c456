package registry

import (
	"context"
	"encoding/json"
	"time"
)

// Limits of the memories of local tools.
const (
	MaxToolMemory    = 64 << 10 // bytes of the keys and values of one memory
	MaxToolMemoryKey = 128      // bytes of a key

	// ToolMemoryShare is the divisor of a tenant's quota that gives the quota of one user and of one conversation.
	ToolMemoryShare = 64
)

// ToolMemoryKey identifies the key-value memory of local tools for one agent session: for a user in a conversation or,
// outside of conversations, for an identity.
type ToolMemoryKey struct {
	Tenant    string
	Session   string // the conversation; empty: none
	Identity  string // the user or, without a conversation, the identity's storage key
	Sandboxed bool
}

// ToolMemoryUse is one use of a memory.
type ToolMemoryUse struct {
	Key   ToolMemoryKey
	User  string        // charged for the memory; empty: none
	Fence int64         // of the turn that uses the memory; zero: none
	Bytes int64         // quota of the tenant
	Life  time.Duration // of the memory from now on
}

// ToolMemoryStore keeps small JSON values that local tools set. Each memory counts against the quotas of its tenant,
// its user and its conversation, as 1, 8 or 64 KiB: the smallest that its keys and values fit in.
//
// A turn that began before its conversation was erased fails with ErrErased.
type ToolMemoryStore interface {
	// ReadToolMemory returns the values by key; none: an empty map. It extends the memory's life when more than a tenth
	// of it has passed.
	ReadToolMemory(ctx context.Context, u ToolMemoryUse) (map[string]json.RawMessage, error)

	// ChangeToolMemory stores the values as change leaves them. If others change the memory meanwhile, it calls change
	// again with the new values. An error of change ends it and is returned. Without values the memory is deleted. It
	// fails with CodePayloadTooLarge beyond MaxToolMemory, and with CodeRateLimited beyond a quota.
	ChangeToolMemory(
		ctx context.Context, u ToolMemoryUse, change func(values map[string]json.RawMessage) error,
	) error

	// EraseToolMemories deletes the memories of a conversation. For life, turns that began earlier cannot use any;
	// turns that begin once it has returned can. If it fails, some may be readable still.
	EraseToolMemories(ctx context.Context, conversation Key, life time.Duration) error
}

// ErrManyToolMemories is the error of a ToolMemoryStore if a quota is used up.
var ErrManyToolMemories = Errorf(CodeRateLimited, "The memories of tools use up the quota of this tenant, user or "+
	"conversation. Delete values, or raise FARHAND_TOOL_MEMORY_BYTES.")
