package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	auditBlock = 64 // lines in one entry of the stream: an entry costs Redis about as much as a line
	auditRead  = 32 // maximum entries per read
)

func (s *Store) AppendAudit(ctx context.Context, entries []registry.AuditEntry) error {
	logs := make(map[string][]registry.AuditEntry)
	for _, e := range entries {
		logs[e.Tenant] = append(logs[e.Tenant], e)
	}
	pipe := s.conn.Pipeline()
	for tenant, lines := range logs {
		for some := range slices.Chunk(lines, auditBlock*auditRead) { // a script blocks the server
			args := []any{millis(s.opts.AuditTTL), s.opts.AuditCap, s.opts.AuditBytes}
			for block := range slices.Chunk(some, auditBlock) {
				text, err := encodeAudit(block)
				if err != nil {
					return registry.AsError(err)
				}
				args = append(args, text, len(block), len(text))
			}
			pipe.Eval(scriptAudit, auditKeys(tenant), args...)
		}
	}
	return pipe.Exec(ctx)
}

func encodeAudit(lines []registry.AuditEntry) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for i := range lines {
		lines[i].DigestArgs()
		if err := enc.Encode(&lines[i]); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func (s *Store) ReadAudit(
	ctx context.Context, q registry.AuditQuery,
) (page []registry.AuditEntry, next string, err error) {
	end, start := "+", "-"
	if !q.From.IsZero() {
		start = decimal(q.From.UnixMilli())
	}
	if !q.To.IsZero() {
		end = "(" + decimal(q.To.UnixMilli()) + "-0"
	}
	var before registry.AuditID
	if q.Before != "" {
		if before, err = registry.ParseAuditID(q.Before); err != nil {
			return nil, "", err
		}
		if q.To.IsZero() || before.Milli < q.To.UnixMilli() {
			end = before.FeedID.String()
		}
	}
	// An entry has up to auditBlock lines, and all of them are decoded, so a short page should read few entries.
	scanned, oldest := 0, ""
	for count := 1; ; count = min(2*count, auditRead) {
		c, err := s.conn.Do(ctx, "XREVRANGE", auditKeys(q.Tenant)[0], end, start, "COUNT", count)
		if err != nil {
			return nil, "", err
		}
		blocks, last := parseEntries(s, redisconn.FormAudit, c, parseAudit(q.Tenant))
		slices.Reverse(blocks) // the oldest first, as the lines of each
		for _, e := range slices.Backward(slices.Concat(blocks...)) {
			if id, _ := registry.ParseAuditID(e.ID); id.FeedID == before.FeedID && id.Line >= before.Line {
				continue
			}
			if len(page) == pageSize(q.Limit) || scanned >= registry.AuditScan {
				return page, oldest, nil
			}
			scanned, oldest = scanned+1, e.ID
			if q.Matches(e) {
				page = append(page, e)
			}
		}
		if last == "" {
			return page, "", nil
		}
		end = "(" + last
	}
}

// parseAudit reads an entry of a log. Unreadable lines are left out, and keep their numbers.
func parseAudit(tenant string) func(text []byte, id string) ([]registry.AuditEntry, error) {
	return func(text []byte, id string) ([]registry.AuditEntry, error) {
		var lines []registry.AuditEntry
		number := -1
		for raw := range bytes.Lines(text) {
			number++
			var e registry.AuditEntry
			if err := json.Unmarshal(raw, &e); err != nil {
				continue
			}
			e.ID, e.Tenant = fmt.Sprintf("%s.%d", id, number), tenant
			lines = append(lines, e)
		}
		return lines, nil
	}
}

const (
	usageChunk = 200  // rows per script, because a script blocks the server
	usageRead  = 1000 // rows requested at a time
)

// usageSeparator separates the user from the tool in the name of a row. If a row has a key and no user, the separator
// is before and after the key. No tool name contains it.
const usageSeparator = "\x00"

func usageField(r registry.UsageRow) string {
	who := r.User
	if r.Key != "" {
		who = usageSeparator + r.Key
	}
	return who + usageSeparator + r.Tool
}

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
			args := append([]any{millis(s.opts.UsageTTL), s.opts.UsageRows, other}, some...)
			pipe.Eval(scriptUsage, []string{key}, args...)
		}
	}
	return pipe.ExecEach(ctx)
}

func (s *Store) ReadUsage(ctx context.Context, tenant, day string) ([]registry.UsageRow, error) {
	rows := make(map[string]registry.UsageRow) // a scan may return a row twice
	for cursor := "0"; ; {
		c, err := s.conn.Do(ctx, "HSCAN", usageKey(tenant, day), cursor, "COUNT", usageRead)
		if err != nil {
			return nil, err
		}
		answer := c.List()
		if len(answer) != 2 {
			return nil, c.ErrShape()
		}
		for field, numbers := range redisconn.Map(answer[1]) {
			if field == redisconn.FormField { // no row has this name
				if err := s.conn.Forms().Check(redisconn.FormUsage, numbers); err != nil {
					return nil, err
				}
			}
			if r, ok := parseUsage(field, numbers); ok {
				r.Tenant, r.Day = tenant, day
				rows[field] = r
			}
		}
		if cursor = redisconn.Text(answer[0]); cursor == "0" || cursor == "" {
			return slices.Collect(maps.Values(rows)), nil
		}
	}
}

// parseUsage reads a row. A row of another release may have more or fewer numbers.
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
