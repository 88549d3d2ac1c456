package memory

import (
	"context"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/approvals"
	"github.com/farhand/farhand/registry/defaults"
	"github.com/farhand/farhand/registry/toolmemory"
	"github.com/farhand/farhand/registry/wakes"
)

// EraseOf implements registry.EraseStore.
func (m *Store) EraseOf(ctx context.Context, tenant, user string, kind registry.PersonalKind) (int, error) {
	switch kind {
	case registry.PersonalApprovals:
		return approvals.Erase(ctx, m.Documents(), tenant, user)
	case registry.PersonalDefault:
		return defaults.Erase(ctx, m.Documents(), tenant, user)
	case registry.PersonalMemories:
		return toolmemory.Erase(ctx, m.Documents(), tenant, user)
	case registry.PersonalWakes:
		return wakes.Erase(ctx, m.Documents(), tenant, user)
	case registry.PersonalCalls:
		return m.eraseCalls(tenant, user), nil
	case registry.PersonalUsage:
		return m.eraseUsage(ctx, tenant, user)
	default:
		return m.eraseContinuations(ctx, registry.ContinuationsOf(tenant, user))
	}
}

func (m *Store) eraseCalls(tenant, user string) (removed int) {
	c := &m.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, stored := range c.records.byTenant[tenant] {
		if stored.record.UserID != user {
			continue
		}
		removed++
		c.records.remove(tenant, id)
		c.logs.remove(tenant, id)
		if key := (tenantKey{tenant, stored.record.IdempotencyKey}); c.keys[key] != nil && c.keys[key].callID == id {
			delete(c.keys, key)
		}
	}
	return removed
}

func (m *Store) eraseUsage(ctx context.Context, tenant, user string) (removed int, err error) {
	err = m.keeper.write(ctx, func(tx *change) error {
		s := &m.usage
		s.lock(m.opts.Now, tx)
		defer tx.unlock(&s.mu)
		for at, day := range s.all {
			for key := range day.rows {
				if at.tenant == tenant && key.user == user {
					removed++
					delete(day.rows, key)
					tx.drop(kindUsage, key.record(at))
				}
			}
		}
		return nil
	})
	return removed, err
}

func (m *Store) eraseContinuations(ctx context.Context, o registry.ContinuationOwner) (removed int, err error) {
	err = m.keeper.write(ctx, func(tx *change) error {
		s := &m.continuations
		s.lock(m.opts.Now, tx)
		defer tx.unlock(&s.mu)
		if h := s.all[o]; h != nil {
			removed = 1
			for id := range h.kept {
				h.drop(tx, o, id)
			}
			delete(s.all, o)
		}
		return nil
	})
	return removed, err
}
