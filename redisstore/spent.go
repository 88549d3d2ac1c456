package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/tenants"
)

// spenderTTL is longer than the day of the sums of identities.
const spenderTTL = 48 * time.Hour

// tenantStore implements registry.TenantStore and registry.SpendingStore.
type tenantStore struct {
	tenants.Listing
	conn *redisconn.Conn
	ttl  time.Duration
	most int // identities with a sum of their own
}

func newTenantStore(docs documents.Store, conn *redisconn.Conn, limits registry.Limits) tenantStore {
	return tenantStore{tenants.New(docs), conn, limits.UsageTTL, limits.UsageRows}
}

// AddSpent implements registry.SpendingStore. The sums of a tenant are in one slot.
func (s tenantStore) AddSpent(ctx context.Context, charges ...registry.TenantCharge) []registry.Charged {
	days := int64(s.ttl/(24*time.Hour)) + 1
	pipe, scripts := s.conn.Pipeline(), make([]*redisconn.Command, len(charges))
	for i, t := range charges {
		args := []any{
			millis(s.ttl), millis(spenderTTL), days, s.most, registry.SpenderOther, flag(t.Take),
		}
		for _, c := range t.Charges {
			numbers := strings.Trim(fmt.Sprint(c.Amounts()), "[]")
			args = append(args, c.Identity, numbers, c.MaxCalls)
		}
		scripts[i] = pipe.Eval(scriptSpent, spentKeys(t.Tenant), args...)
	}
	_ = pipe.Exec(ctx) // each script has its own error
	done := make([]registry.Charged, len(charges))
	for i, c := range scripts {
		answer := c.Strings()
		if err := c.Err(); err != nil {
			done[i].Error = redisconn.Unavailable("add to budgets", err)
			continue
		}
		const before = 3 // of the sums
		if len(answer) != before+len(charges[i].Charges) {
			done[i].Error = redisconn.Unavailable("add to budgets", c.ErrShape())
			continue
		}
		done[i] = registry.Charged{
			Day:  registry.UsageDay(time.Unix(redisconn.Int(answer[0])*daySeconds, 0)),
			Left: time.Duration(redisconn.Int(answer[1])) * time.Millisecond, Full: answer[2] == "1",
		}
		for _, text := range answer[before:] {
			done[i].Sums = append(done[i].Sums, parseSpent(text))
		}
	}
	return done
}

const daySeconds = 24 * 60 * 60

// ReadSpent implements registry.SpendingStore.
func (s tenantStore) ReadSpent(ctx context.Context, days ...registry.SpentDay) ([]registry.Spent, error) {
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(days))
	for i, d := range days {
		day, err := time.Parse(time.DateOnly, d.Day)
		if err != nil {
			return nil, registry.Internal(err)
		}
		commands[i] = pipe.Do("HGET", spentKeys(d.Tenant)[0], day.Unix()/daySeconds)
	}
	sums := make([]registry.Spent, len(days))
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for i, c := range commands {
		text, _ := c.Text()
		sums[i] = parseSpent(text)
	}
	return sums, nil
}

// parseSpent reads numbers. Those of another release may be more or fewer.
func parseSpent(text string) registry.Spent {
	var amounts [len(registry.SpentKinds)]int64
	for i, number := range strings.Fields(text) {
		if i < len(amounts) {
			amounts[i] = redisconn.Int(number)
		}
	}
	return registry.SpentOf(amounts)
}

// CountSessions implements registry.TenantStore. The index may have sessions that have just ended.
func (s tenantStore) CountSessions(ctx context.Context, names ...string) ([]int64, error) {
	pipe, commands := s.conn.Pipeline(), make([]*redisconn.Command, len(names))
	for i, tenant := range names {
		commands[i] = pipe.Do("ZCARD", sessionsIndex(tenant))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	counts := make([]int64, len(names))
	for i, c := range commands {
		counts[i] = c.Int()
	}
	return counts, nil
}
