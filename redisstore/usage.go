package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	usageChunk = 200  // rows that one script adds to: it holds up the server
	usageRead  = 1000 // rows that are asked for at a time
)

// usageSeparator stands between the user and the tool in the name of a row, and around the key where there is no user.
// No tool's name has it.
const usageSeparator = "\x00"

func usageField(r registry.UsageRow) string {
	who := r.User
	if r.Key != "" {
		who = usageSeparator + r.Key
	}
	return who + usageSeparator + r.Tool
}

// AddUsage implements registry.UsageStore.
func (s *Store) AddUsage(ctx context.Context, rows []registry.UsageRow) error {
	days := make(map[string][]any)
	for _, r := range rows {
		r.Trim()
		u := r.Usage
		numbers := fmt.Sprintf("%d %d %d %d %d %d %d", u.Calls, u.Failures, u.Milliseconds, u.BytesIn, u.BytesOut,
			u.InputTokens, u.OutputTokens)
		key := usageKey(r.Tenant, r.Day)
		days[key] = append(days[key], usageField(r), numbers)
	}
	other := usageField(registry.UsageRow{User: registry.UsageOther, Tool: registry.UsageOther})
	pipe := s.conn.Pipeline()
	for key, pairs := range days {
		for some := range slices.Chunk(pairs, 2*usageChunk) {
			pipe.Eval(scriptUsage, []string{key}, append([]any{s.usageTTL, s.usageRows, other}, some...)...)
		}
	}
	return redisconn.Unavailable("add usage", pipe.Exec(ctx))
}

// ReadUsage implements registry.UsageStore.
func (s *Store) ReadUsage(ctx context.Context, tenant, day string) ([]registry.UsageRow, error) {
	rows := make(map[string]registry.UsageRow) // a scan may find one twice
	for cursor := "0"; ; {
		c, err := s.conn.Do(ctx, "HSCAN", usageKey(tenant, day), cursor, "COUNT", usageRead)
		if err != nil {
			return nil, redisconn.Unavailable("read usage", err)
		}
		answer := c.List()
		if len(answer) != 2 {
			return nil, registry.AsError(c.ErrShape())
		}
		for field, numbers := range redisconn.Map(answer[1]) {
			if r, ok := parseUsage(field, numbers); ok {
				r.Tenant, r.Day = tenant, day
				rows[field] = r
			}
		}
		if cursor, _ = answer[0].(string); cursor == "0" || cursor == "" {
			break
		}
	}
	list := make([]registry.UsageRow, 0, len(rows))
	for _, r := range rows {
		list = append(list, r)
	}
	return list, nil
}

// parseUsage reads a row. One of another release may have more numbers, or fewer.
func parseUsage(field, numbers string) (r registry.UsageRow, ok bool) {
	i := strings.LastIndex(field, usageSeparator)
	if i < 0 {
		return r, false
	}
	r.User, r.Tool = field[:i], field[i+len(usageSeparator):]
	if key, ok := strings.CutPrefix(r.User, usageSeparator); ok {
		r.User, r.Key = "", key
	}
	sums := strings.Fields(numbers)
	for i, n := range []*int64{
		&r.Calls, &r.Failures, &r.Milliseconds, &r.BytesIn, &r.BytesOut, &r.InputTokens, &r.OutputTokens,
	} {
		if i < len(sums) {
			*n = redisconn.Int(sums[i])
		}
	}
	return r, true
}
