package memory

import (
	"context"
	"slices"

	"github.com/farhand/farhand/registry"
)

// auditLog is the audit log of one tenant, in order.
type auditLog struct {
	life
	capped[registry.AuditEntry]
}

func (m *Store) AppendAudit(_ context.Context, entries []registry.AuditEntry) error {
	s := &m.audits
	now := s.lock(m.opts.Now)
	defer s.mu.Unlock()
	for _, e := range entries {
		log := s.all.get(e.Tenant, now)
		if log == nil {
			log = new(auditLog)
			s.all[e.Tenant] = log
		}
		e.DigestArgs()
		e.Actor.Roles = slices.Clone(e.Actor.Roles)
		id := log.last.Next(now)
		e.ID = registry.AuditID{FeedID: id}.String()
		log.add(id, e, e.MemorySize())
		log.expires = now.Add(m.opts.AuditTTL)
		for log.isOver(m.opts.AuditCap, m.opts.AuditBytes) {
			log.dropFirst()
		}
	}
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

type usageDay struct {
	life
	rows map[usageKey]registry.Usage
}

type usageKey struct{ user, key, tool string }

func (m *Store) AddUsage(_ context.Context, rows []registry.UsageRow) error {
	s := &m.usage
	now := s.lock(m.opts.Now)
	defer s.mu.Unlock()
	for _, r := range rows {
		r.Trim()
		day := s.all.get(tenantKey{r.Tenant, r.Day}, now)
		if day == nil {
			day = &usageDay{rows: make(map[usageKey]registry.Usage)}
			s.all[tenantKey{r.Tenant, r.Day}] = day
		}
		key := usageKey{r.User, r.Key, r.Tool}
		if _, known := day.rows[key]; !known && len(day.rows) >= m.opts.UsageRows {
			key = usageKey{user: registry.UsageOther, tool: registry.UsageOther}
		}
		day.rows[key] = day.rows[key].Plus(r.Usage)
		day.expires = now.Add(m.opts.UsageTTL)
	}
	return nil
}

func (m *Store) ReadUsage(_ context.Context, tenant, day string) ([]registry.UsageRow, error) {
	s := &m.usage
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.all.get(tenantKey{tenant, day}, m.opts.Now())
	if known == nil {
		return nil, nil
	}
	var rows []registry.UsageRow
	for key, u := range known.rows {
		rows = append(rows, registry.UsageRow{
			Tenant: tenant, Day: day, User: key.user, Key: key.key, Tool: key.tool, Usage: u,
		})
	}
	return rows, nil
}
