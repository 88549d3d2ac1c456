package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	auditBlock = 64 // lines in one entry of the stream: an entry costs Redis about as much as a line
	auditRead  = 32 // maximum entries per read
)

// AppendAudit implements registry.AuditStore.
func (s *Store) AppendAudit(ctx context.Context, entries []registry.AuditEntry) error {
	logs := make(map[string][]registry.AuditEntry)
	for _, e := range entries {
		logs[e.Tenant] = append(logs[e.Tenant], e)
	}
	pipe := s.conn.Pipeline()
	for tenant, lines := range logs {
		for some := range slices.Chunk(lines, auditBlock*auditRead) { // a script blocks the server
			args := []any{s.auditTTL, s.auditCap, s.auditBytes}
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
	return redisconn.Unavailable("append to the audit log", pipe.Exec(ctx))
}

// encodeAudit writes lines as JSON, one per line.
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

// ReadAudit implements registry.AuditStore.
func (s *Store) ReadAudit(ctx context.Context, q registry.AuditQuery) ([]registry.AuditEntry, string, error) {
	scan := auditScan{query: q, limit: pageSize(q.Limit)}
	end, start := "+", "-"
	if !q.To.IsZero() {
		end = "(" + strconv.FormatInt(q.To.UnixMilli(), 10) + "-0"
	}
	if q.Before != "" {
		before, err := registry.ParseAuditID(q.Before)
		if err != nil {
			return nil, "", err
		}
		if to := q.To; to.IsZero() || before.Milli < to.UnixMilli() {
			scan.before, end = &before, before.FeedID.String()
		}
	}
	if !q.From.IsZero() {
		start = strconv.FormatInt(q.From.UnixMilli(), 10)
	}
	// An entry has up to auditBlock lines, and all of them are decoded, so a short page should read few entries.
	for count := 1; ; count = min(2*count, auditRead) {
		c, err := s.conn.Do(ctx, "XREVRANGE", auditKeys(q.Tenant)[0], end, start, "COUNT", count)
		if err != nil {
			return nil, "", redisconn.Unavailable("read the audit log", err)
		}
		blocks, last := parseEntries(s, c, parseAudit(q.Tenant))
		for _, lines := range blocks {
			if next, full := scan.add(lines); full {
				return scan.page, next, nil
			}
		}
		if last == "" {
			return scan.page, "", nil
		}
		end = "(" + last
	}
}

// auditScan reads a page of an audit log, from the newest line on.
type auditScan struct {
	query  registry.AuditQuery
	limit  int
	before *registry.AuditID // only lines before this one; nil: all

	page    []registry.AuditEntry
	scanned int
	oldest  string // the id of the line visited last
}

// add visits lines that were written together. If the page is full before their end, add returns the cursor of the next
// page.
func (a *auditScan) add(lines []registry.AuditEntry) (next string, full bool) {
	for _, e := range slices.Backward(lines) {
		if a.before != nil {
			if id, _ := registry.ParseAuditID(e.ID); id.FeedID == a.before.FeedID && id.Line >= a.before.Line {
				continue
			}
		}
		if len(a.page) == a.limit || a.scanned >= registry.AuditScan {
			return a.oldest, true
		}
		a.scanned, a.oldest = a.scanned+1, e.ID
		if a.query.Matches(e) {
			a.page = append(a.page, e)
		}
	}
	return "", false
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
	rows := make(map[string]registry.UsageRow) // a scan may return a row twice
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
