package memory

import (
	"context"
	"encoding/json"
	"time"

	"github.com/farhand/farhand/registry"
)

// usageDay is the usage of a tenant on one day.
type usageDay struct {
	life // from the last addition
	rows map[usageKey]usageRow
}

type usageKey struct{ user, key, tool string }

// usageRow is also what a journal keeps of a row.
type usageRow struct {
	registry.Usage
	At time.Time `json:"at"` // of the last addition
}

func (m *Store) AddUsage(ctx context.Context, rows []registry.UsageRow) error {
	return m.keeper.write(ctx, func(tx *change) error {
		s := &m.usage
		now := s.lock(m.opts.Now, tx)
		defer tx.unlock(&s.mu)
		for _, r := range rows {
			r.Trim()
			at := tenantKey{r.Tenant, r.Day}
			day := s.all.get(at, now)
			if day == nil {
				s.forget(tx, at)
				day = &usageDay{rows: make(map[usageKey]usageRow)}
				s.all[at] = day
			}
			key := usageKey{r.User, r.Key, r.Tool}
			if _, known := day.rows[key]; !known && len(day.rows) >= m.opts.UsageRows {
				key = usageKey{user: registry.UsageOther, tool: registry.UsageOther}
			}
			row := usageRow{day.rows[key].Plus(r.Usage), now.UTC().Round(0)}
			day.rows[key] = row
			day.expires = now.Add(m.opts.UsageTTL)
			row.keep(tx, key, at)
		}
		return nil
	})
}

// keep records a row.
func (r usageRow) keep(tx *change, key usageKey, day tenantKey) {
	if tx.kept() {
		value, _ := json.Marshal(r) // cannot fail
		tx.put(kindUsage, key.record(day), value)
	}
}

// record returns the key of a row's record.
func (k usageKey) record(day tenantKey) string { return key(day.tenant, day.id, k.user, k.key, k.tool) }

// erase removes the records of a day.
func (d *usageDay) erase(tx *change, day tenantKey) {
	for key := range d.rows {
		tx.drop(kindUsage, key.record(day))
	}
}

// loadUsage takes a row into memory, or out of it.
func (m *Store) loadUsage(r Record) error {
	var at tenantKey
	var key usageKey
	if err := split(r.Key, &at.tenant, &at.id, &key.user, &key.key, &key.tool); err != nil {
		return err
	}
	s := &m.usage
	s.lock(m.opts.Now, nil)
	defer s.mu.Unlock()
	day := s.all[at]
	if r.Value == nil {
		if day != nil {
			delete(day.rows, key)
		}
		return nil
	}
	var row usageRow
	if err := json.Unmarshal(r.Value, &row); err != nil {
		return err
	}
	if day == nil {
		day = &usageDay{rows: make(map[usageKey]usageRow)}
		s.all[at] = day
	}
	day.rows[key], day.expires = row, latest(day.expires, row.At.Add(m.opts.UsageTTL))
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
	for key, row := range known.rows {
		rows = append(rows, registry.UsageRow{
			Tenant: tenant, Day: day, User: key.user, Key: key.key, Tool: key.tool, Usage: row.Usage,
		})
	}
	return rows, nil
}
