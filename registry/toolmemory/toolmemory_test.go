package toolmemory_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/toolmemory"
)

// readOnly is a store that can fail to write, or to list members.
type readOnly struct {
	documents.Store
	writes, members error
}

func (s *readOnly) Write(ctx context.Context, writes ...documents.Write) ([]documents.Written, error) {
	if s.writes != nil {
		return nil, s.writes
	}
	return s.Store.Write(ctx, writes...)
}

func (s *readOnly) Members(ctx context.Context, queries ...documents.Query) ([][]string, error) {
	if s.members != nil {
		return nil, s.members
	}
	return s.Store.Members(ctx, queries...)
}

// A memory is readable while the store does not write, and erased as soon as the erasure is written.
func TestMemoriesOfAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := &readOnly{Store: memory.New(memory.Options{}).Documents()}
		store := toolmemory.New(docs)
		u := registry.ToolMemoryUse{
			Key: registry.ToolMemoryKey{Tenant: "t", Session: "c", Identity: "ann"}, Bytes: 64 << 20, Life: time.Hour,
		}
		err := store.ChangeToolMemory(t.Context(), u, func(values map[string]json.RawMessage) error {
			values["a"] = json.RawMessage(`1`)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		conversation := registry.Key{Tenant: "t", Session: "c"}
		docs.writes = errors.New("read only")
		time.Sleep(u.Life / 2) // the next read extends its life
		if values, err := store.ReadToolMemory(t.Context(), u); err != nil || string(values["a"]) != "1" {
			t.Errorf("while nothing can be written: %s, %v", values, err)
		}
		if err := store.EraseToolMemories(t.Context(), conversation, u.Life); !errors.Is(err, docs.writes) {
			t.Errorf("an erasure that is not written: %v", err)
		}
		docs.writes, docs.members = nil, errors.New("no members")
		time.Sleep(u.Life / 4)
		if values, err := store.ReadToolMemory(t.Context(), u); err != nil || len(values) != 1 {
			t.Errorf("once it can be: %s, %v", values, err)
		}
		time.Sleep(u.Life * 3 / 4) // it has expired, unless the read has extended it
		if values, err := store.ReadToolMemory(t.Context(), u); err != nil || len(values) != 1 {
			t.Errorf("later: %s, %v", values, err)
		}
		if err := store.EraseToolMemories(t.Context(), conversation, u.Life); err != nil {
			t.Errorf("an erasure whose memories cannot be freed: %v", err)
		}
		if values, err := store.ReadToolMemory(t.Context(), u); err != nil || len(values) != 0 {
			t.Errorf("after the erasure: %s, %v", values, err)
		}
	})
}
