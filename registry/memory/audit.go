package memory

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/farhand/farhand/registry"
)

// auditLog is the audit log of one tenant, in order.
type auditLog struct {
	life
	capped[registry.AuditEntry]
}

func (m *Store) AppendAudit(ctx context.Context, entries []registry.AuditEntry) error {
	return m.keeper.write(ctx, func(tx *change) error {
		s := &m.audits
		now := s.lock(m.opts.Now, tx)
		defer tx.unlock(&s.mu)
		for _, e := range entries {
			log := s.all.get(e.Tenant, now)
			if log == nil {
				s.forget(tx, e.Tenant)
				log = new(auditLog)
				s.all[e.Tenant] = log
			}
			e.DigestArgs()
			e.Actor.Roles = slices.Clone(e.Actor.Roles)
			id := log.last.Next(now)
			e.ID = registry.AuditID{FeedID: id}.String()
			log.add(id, e, e.MemorySize())
			log.expires = now.Add(m.opts.AuditTTL)
			keepLine(tx, id, e)
			for log.isOver(m.opts.AuditCap, m.opts.AuditBytes) {
				tx.drop(kindAudit, auditKey(e.Tenant, log.dropFirst().id))
			}
		}
		return nil
	})
}

func auditKey(tenant string, id registry.FeedID) string {
	return key(tenant, ordered(id.Milli, id.Seq))
}

// keepLine records a line.
func keepLine(tx *change, id registry.FeedID, e registry.AuditEntry) {
	if tx.kept() {
		value, _ := json.Marshal(e) // cannot fail
		tx.put(kindAudit, auditKey(e.Tenant, id), value)
	}
}

// erase removes the records of a log.
func (l *auditLog) erase(tx *change, tenant string) {
	for _, line := range l.lines {
		tx.drop(kindAudit, auditKey(tenant, line.id))
	}
}

// loadAudit takes a line into memory, or out of it.
func (m *Store) loadAudit(r Record) error {
	var tenant, part string
	var id registry.FeedID
	err := split(r.Key, &tenant, &part)
	if err == nil {
		err = numbers(part, &id.Milli, &id.Seq)
	}
	if err != nil {
		return err
	}
	s := &m.audits
	s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
	log := s.all[tenant]
	if r.Value == nil {
		if log != nil {
			log.remove(id)
		}
		return nil
	}
	e := registry.AuditEntry{Tenant: tenant, ID: registry.AuditID{FeedID: id}.String()}
	if err := json.Unmarshal(r.Value, &e); err != nil {
		return err
	}
	if log == nil {
		log = new(auditLog)
		s.all[tenant] = log
	}
	log.insert(id, e, e.MemorySize())
	log.expires = time.UnixMilli(log.last.Milli).Add(m.opts.AuditTTL)
	return nil
}

func (m *Store) ReadAudit(_ context.Context, q registry.AuditQuery) ([]registry.AuditEntry, string, error) {
	var before registry.AuditID
	if q.Before != "" {
		var err error
		if before, err = registry.ParseAuditID(q.Before); err != nil {
			return nil, "", err
		}
	}
	s := &m.audits
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.all.get(q.Tenant, m.opts.Now())
	if log == nil {
		return nil, "", nil
	}
	n := len(log.lines)
	if q.Before != "" {
		n = log.from(before.FeedID)
	}
	if !q.To.IsZero() {
		n = min(n, log.from(registry.FeedID{Milli: q.To.UnixMilli()}))
	}
	first := 0
	if !q.From.IsZero() {
		first = log.from(registry.FeedID{Milli: q.From.UnixMilli()})
	}
	var page []registry.AuditEntry
	for scanned := 0; n > first; scanned++ {
		if len(page) == pageSize(q.Limit) || scanned == registry.AuditScan {
			return page, log.lines[n].entry.ID, nil
		}
		n--
		if e := log.lines[n].entry; q.Matches(e) {
			e.Actor.Roles = slices.Clone(e.Actor.Roles)
			page = append(page, e)
		}
	}
	return page, "", nil
}
