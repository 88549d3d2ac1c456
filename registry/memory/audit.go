package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// audits are the audit logs, by tenant.
type audits struct {
	mu     sync.Mutex
	logs   expiring[string, *auditLog]
	purges throttle
}

// auditLog is the audit log of one tenant, in order.
type auditLog struct {
	life
	lines []auditLine
	bytes int
	last  registry.FeedID
}

type auditLine struct {
	at    registry.FeedID
	entry registry.AuditEntry
}

// AppendAudit implements registry.AuditStore.
func (m *Store) AppendAudit(_ context.Context, entries []registry.AuditEntry) error {
	s := &m.audits
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	if s.purges.due(now, time.Minute) {
		s.logs.purge(now)
	}
	for _, e := range entries {
		log := s.logs.get(e.Tenant, now)
		if log == nil {
			log = new(auditLog)
			s.logs[e.Tenant] = log
		}
		e.DigestArgs()
		e.Actor.Roles = slices.Clone(e.Actor.Roles)
		log.last = log.last.Next(now)
		e.ID = registry.AuditID{FeedID: log.last}.String()
		log.lines = append(log.lines, auditLine{log.last, e})
		log.bytes += e.MemorySize()
		log.expires = now.Add(m.opts.AuditTTL)
		for len(log.lines) > m.opts.AuditCap || log.bytes > m.opts.AuditBytes && len(log.lines) > 1 {
			log.bytes -= log.lines[0].entry.MemorySize()
			log.lines[0] = auditLine{} // the array stays in memory for a while
			log.lines = log.lines[1:]
		}
	}
	return nil
}

// ReadAudit implements registry.AuditStore.
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
	log := s.logs.get(q.Tenant, m.opts.Now())
	if log == nil {
		return nil, "", nil
	}
	n := len(log.lines)
	if q.Before != "" {
		n = log.firstFrom(before.FeedID)
	}
	if !q.To.IsZero() {
		n = min(n, log.firstFrom(registry.FeedID{Milli: q.To.UnixMilli()}))
	}
	first := 0
	if !q.From.IsZero() {
		first = log.firstFrom(registry.FeedID{Milli: q.From.UnixMilli()})
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

// firstFrom returns the index of the first line with this id or a later one.
func (l *auditLog) firstFrom(id registry.FeedID) int {
	i, _ := slices.BinarySearchFunc(l.lines, id, func(line auditLine, id registry.FeedID) int {
		return line.at.Compare(id)
	})
	return i
}

// usage is the usage by tenant and day.
type usage struct {
	mu     sync.Mutex
	days   expiring[tenantKey, *usageDay]
	purges throttle
}

type usageDay struct {
	life
	rows map[usageKey]registry.Usage
}

type usageKey struct{ user, key, tool string }

// AddUsage implements registry.UsageStore.
func (m *Store) AddUsage(_ context.Context, rows []registry.UsageRow) error {
	s := &m.usage
	s.mu.Lock()
	defer s.mu.Unlock()
	now := m.opts.Now()
	if s.purges.due(now, time.Minute) {
		s.days.purge(now)
	}
	for _, r := range rows {
		r.Trim()
		day := s.days.get(tenantKey{r.Tenant, r.Day}, now)
		if day == nil {
			day = &usageDay{rows: make(map[usageKey]registry.Usage)}
			s.days[tenantKey{r.Tenant, r.Day}] = day
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

// ReadUsage implements registry.UsageStore.
func (m *Store) ReadUsage(_ context.Context, tenant, day string) ([]registry.UsageRow, error) {
	s := &m.usage
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.days.get(tenantKey{tenant, day}, m.opts.Now())
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
