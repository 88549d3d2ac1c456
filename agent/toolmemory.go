package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
)

// Memory keeps small values for the tools of one agent session: for a user in a conversation or, outside of
// conversations, for all calls of an identity. All tools of the session share it, on every pod. Values are JSON. Keys
// have 1 to registry.MaxToolMemoryKey bytes of UTF-8. Together they have at most registry.MaxToolMemory bytes.
//
// The memory expires after its last use, as a conversation does (Config.HistoryTTL), and ends with its conversation. It
// is safe for concurrent use. ctx bounds the requests to the store; pass that of Execute. Methods fail with
// registry.CodeStoreUnavailable if the store is not available, and with registry.ErrErased if the conversation was
// deleted since the turn began.
type Memory interface {
	// Get decodes the value of key, as encoding/json does. It reports whether there is one.
	Get(ctx context.Context, key string, value any) (found bool, err error)

	// Keys returns all keys, sorted.
	Keys(ctx context.Context) ([]string, error)

	// Set replaces the value of key. It fails with registry.CodePayloadTooLarge if the memory would be too large, and
	// with registry.ErrManyToolMemories if the memories of the conversation, user or tenant would be.
	Set(ctx context.Context, key string, value any) error

	// Delete removes values. Keys without a value are ignored.
	Delete(ctx context.Context, keys ...string) error

	// Update changes several values at one moment, or a value that depends on the one before. If another call changes
	// the memory meanwhile, Update calls change again with the new values. An error of change changes nothing and is
	// returned. The other errors are those of Set.
	Update(ctx context.Context, change func(values map[string]json.RawMessage) error) error
}

// memoryOf returns the memory of an agent session.
func (sc SessionContext) memoryOf(s Setting) Memory {
	if s.Memories == nil {
		return noMemory{}
	}
	id := sc.ID()
	return storedMemory{s.Memories, registry.ToolMemoryUse{
		Key: registry.ToolMemoryKey{
			Tenant: id.Tenant, Session: id.Conversation, Identity: id.Identity, Sandboxed: id.Sandboxed,
		},
		User: sc.Caller.User, Fence: sc.Fence, Bytes: s.MemoryBytes, Life: s.MemoryLife,
	}}
}

// storedMemory implements Memory.
type storedMemory struct {
	store registry.ToolMemoryStore
	use   registry.ToolMemoryUse
}

func (m storedMemory) Get(ctx context.Context, key string, value any) (bool, error) {
	values, err := m.store.ReadToolMemory(ctx, m.use)
	raw, found := values[key]
	if err != nil || !found {
		return false, err
	}
	if err := json.Unmarshal(raw, value); err != nil {
		return true, fmt.Errorf("agent: the value of %q in the memory: %w", key, err)
	}
	return true, nil
}

func (m storedMemory) Keys(ctx context.Context) ([]string, error) {
	values, err := m.store.ReadToolMemory(ctx, m.use)
	return slices.Sorted(maps.Keys(values)), err
}

func (m storedMemory) Set(ctx context.Context, key string, value any) error {
	text, err := strictjson.Encode(value)
	if err != nil {
		return fmt.Errorf("agent: the value of %q for the memory: %w", key, err)
	}
	return m.Update(ctx, func(values map[string]json.RawMessage) error {
		values[key] = text
		return nil
	})
}

func (m storedMemory) Delete(ctx context.Context, keys ...string) error {
	return m.Update(ctx, func(values map[string]json.RawMessage) error {
		for _, key := range keys {
			delete(values, key)
		}
		return nil
	})
}

func (m storedMemory) Update(ctx context.Context, change func(values map[string]json.RawMessage) error) error {
	return m.store.ChangeToolMemory(ctx, m.use, func(values map[string]json.RawMessage) error {
		if err := change(values); err != nil {
			return err
		}
		for key, value := range values {
			if key == "" || len(key) > registry.MaxToolMemoryKey || !utf8.ValidString(key) {
				return fmt.Errorf("agent: the memory's key %.200q must have 1 to %d bytes of UTF-8", key,
					registry.MaxToolMemoryKey)
			}
			if !json.Valid(value) {
				return fmt.Errorf("agent: the value of %q for the memory is not JSON", key)
			}
		}
		return nil
	})
}

// noMemory is the memory of gateways without a store of memories.
type noMemory struct{}

var errNoMemory = errors.New("agent: there is no store of memories")

func (noMemory) Get(context.Context, string, any) (bool, error) { return false, errNoMemory }
func (noMemory) Keys(context.Context) ([]string, error)         { return nil, errNoMemory }
func (noMemory) Set(context.Context, string, any) error         { return errNoMemory }
func (noMemory) Delete(context.Context, ...string) error        { return errNoMemory }

func (noMemory) Update(context.Context, func(map[string]json.RawMessage) error) error {
	return errNoMemory
}
