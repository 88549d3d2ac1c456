package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/documents"
	"github.com/farhand/farhand/registry/tenants"
)

// takeChunk is how many calls one script decides, because a script blocks the server.
const takeChunk = 64

// taking is a call that charges its windows, with the result.
type taking struct {
	tenant  string
	windows []registry.Window
	wait    time.Duration
	full    int
	err     error
}

// newLimits returns the Together that charges windows. One script decides calls that come at the same time, one after
// the other. Most of a script's cost for Redis is to begin it, and most of a round trip is not the script.
func newLimits(conn *redisconn.Conn) *redisconn.Together[*taking] {
	return redisconn.NewTogether(
		func(ctx context.Context, all []*taking) { takeAll(ctx, conn, all) },
		func(all []*taking, err error) {
			for _, t := range all {
				t.err = err
			}
		})
}

func (s *Store) Take(
	ctx context.Context, tenant string, windows []registry.Window,
) (wait time.Duration, full int, err error) {
	if err := registry.CheckWindows(windows); err != nil || len(windows) == 0 {
		return 0, 0, err
	}
	t := &taking{tenant: tenant, windows: windows}
	if s.conn.IsCluster() { // a member that hangs would delay calls to the others
		takeAll(ctx, s.conn, []*taking{t})
	} else {
		s.limits.Exec(ctx, t)
	}
	return t.wait, t.full, redisconn.Unavailable("check rate limits", t.err)
}

// takeAll decides calls. The windows of one tenant are in one slot.
func takeAll(ctx context.Context, conn *redisconn.Conn, all []*taking) {
	tenants := make(map[string][]*taking, 1)
	for _, t := range all {
		tenants[t.tenant] = append(tenants[t.tenant], t)
	}
	pipe, scripts := conn.Pipeline(), make(map[*redisconn.Command][]*taking)
	for _, list := range tenants {
		for some := range slices.Chunk(list, takeChunk) {
			scripts[takeScript(pipe, some)] = some
		}
	}
	_ = pipe.Exec(ctx) // each script has its own error
	for c, some := range scripts {
		answers, err := c.List(), c.Err()
		if err == nil && len(answers) != 2*len(some) {
			err = c.ErrShape()
		}
		for i, t := range some {
			if t.err = err; err == nil {
				t.wait = time.Duration(redisconn.Int(answers[2*i])) * time.Microsecond
				t.full = int(redisconn.Int(answers[2*i+1]))
			}
		}
	}
}

func takeScript(pipe *redisconn.Pipeline, some []*taking) *redisconn.Command {
	var keys []string
	var args []any
	for _, t := range some {
		args = append(args, len(t.windows))
		for _, w := range t.windows {
			keys = append(keys, windowKey(t.tenant, w))
			args = append(args, w.Limit, w.Period.Milliseconds())
		}
	}
	return pipe.Eval(scriptTake, keys, args...)
}

func (s *Store) Spend(
	ctx context.Context, tenant, name string, n int64, budget registry.Budget,
) (time.Duration, error) {
	return s.spend(ctx, tenant, name, n, budget, 0)
}

func (s *Store) Overdraw(ctx context.Context, tenant, name string, n int64, budget registry.Budget) error {
	_, err := s.spend(ctx, tenant, name, n, budget, 1)
	return err
}

func (s *Store) spend(
	ctx context.Context, tenant, name string, n int64, budget registry.Budget, overdraw int,
) (time.Duration, error) {
	c, err := s.conn.Eval(ctx, scriptSpend, []string{budgetKey(tenant, name)},
		min(n, budget.Burst()), budget.Burst(), millis(budget.Over), overdraw)
	return time.Duration(c.Int()) * time.Millisecond, err
}

func (s *Store) KeepContinuation(
	ctx context.Context, o registry.ContinuationOwner, id string, data []byte, ttl time.Duration,
) error {
	if len(data) > registry.MaxContinuation {
		return registry.ErrContinuationTooLarge
	}
	_, err := s.conn.Eval(ctx, scriptContinuationKeep, continuationKeys(o),
		id, data, millis(ttl), registry.MaxHeldContinuations, registry.ContinuationOverhead)
	return err
}

func (s *Store) Continuations(
	ctx context.Context, o registry.ContinuationOwner, limit int, ids ...string,
) (map[string][]byte, error) {
	found := make(map[string][]byte)
	if len(ids) == 0 {
		return found, nil
	}
	args := []any{limit}
	for _, id := range ids {
		args = append(args, id)
	}
	c, err := s.conn.Eval(ctx, scriptContinuationRead, continuationKeys(o), args...)
	if err != nil {
		return nil, err
	}
	answer := c.Strings()
	for i := 0; i+1 < len(answer); i += 2 {
		if err := s.conn.Forms().CheckText(redisconn.FormContinuation, answer[i+1]); err != nil {
			return nil, err
		}
		found[answer[i]] = []byte(answer[i+1])
	}
	return found, nil
}

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
