package registrytest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

var auditTests = []subtest{
	{name: "lines come back whole, newest first", run: func(f *fixture) {
		at := time.Date(2026, 11, 22, 11, 0, 0, 123_000_000, time.UTC)
		full := registry.AuditEntry{
			Tenant: f.tenant, At: at, Pod: "p1", Action: registry.AuditCall, Outcome: registry.AuditDenied,
			Actor: registry.AuditActor{User: "ünal", Credential: "key:1", Roles: []string{"caller"}, Source: "::1"},
			Code:  registry.CodePolicyDenied, Rule: "no-exec", Reason: "not <you>\n", Target: "t", Tool: "exec",
			SessionID: "s1", DeviceID: "d1", CallID: "c1", Turn: "u1", ArgsDigest: "abc", Omitted: 3,
		}
		f.must(f.store.AppendAudit(f.ctx, []registry.AuditEntry{{Tenant: f.tenant, At: at}, full}))
		page, next, err := f.store.ReadAudit(f.ctx, registry.AuditQuery{Tenant: f.tenant})
		f.must(err)
		if len(page) != 2 || next != "" {
			f.Fatalf("%d lines, next %q", len(page), next)
		}
		got := page[0]
		if _, err := registry.ParseAuditID(got.ID); err != nil {
			f.Errorf("id %q: %v", got.ID, err)
		}
		got.ID = ""
		if fmt.Sprint(got) != fmt.Sprint(full) {
			f.Errorf("got  %+v\nwant %+v", got, full)
		}
	}},
	{name: "arguments are kept as the digest of their text only", run: func(f *fixture) {
		for _, args := range []string{`{"a":"secret","b":1}`, `{"a":"secret","b":1}`, `{"a":"other","b":1}`} {
			e := registry.AuditEntry{Tenant: f.tenant, Args: registry.MustJSON(args)}
			f.must(f.store.AppendAudit(f.ctx, []registry.AuditEntry{e}))
		}
		page, _, err := f.store.ReadAudit(f.ctx, registry.AuditQuery{Tenant: f.tenant})
		f.must(err)
		if len(page) != 3 || page[1].ArgsDigest != page[2].ArgsDigest || page[0].ArgsDigest == page[1].ArgsDigest ||
			len(page[0].ArgsDigest) != 64 || !page[0].Args.IsZero() {
			f.Errorf("%+v", page)
		}
	}},
	{name: "pages neither repeat nor leave out a line", run: func(f *fixture) {
		const n = 200
		for i := 0; i < n; { // batches of all lengths
			var batch []registry.AuditEntry
			for range 1 + i%97 {
				if i < n {
					batch = append(batch, registry.AuditEntry{Tenant: f.tenant, Target: strconv.Itoa(i)})
					i++
				}
			}
			f.must(f.store.AppendAudit(f.ctx, batch))
		}
		for _, limit := range []int{1, 7, 64, 1000} {
			got := f.auditTargets(registry.AuditQuery{Limit: limit})
			for i, target := range got {
				if target != strconv.Itoa(n-1-i) {
					f.Fatalf("limit %d: line %d is %s", limit, i, target)
				}
			}
			if len(got) != n {
				f.Errorf("limit %d: %d lines", limit, len(got))
			}
		}
	}},
	{name: "a query finds what it names", run: func(f *fixture) {
		var batch []registry.AuditEntry
		for i := range 64 {
			pick := func(bit int) string { return strconv.Itoa(i >> bit & 1) }
			batch = append(batch, registry.AuditEntry{
				Tenant: f.tenant, Target: strconv.Itoa(i), Action: pick(0), Outcome: pick(1), Tool: pick(2),
				CallID: pick(3), SessionID: pick(4),
				Actor: registry.AuditActor{User: pick(5), Credential: "k" + pick(5)},
			})
		}
		f.must(f.store.AppendAudit(f.ctx, batch))
		for _, q := range []registry.AuditQuery{
			{Action: "1"}, {Outcome: "1"}, {Tool: "1"}, {CallID: "1"}, {SessionID: "1"}, {User: "1"},
			{Credential: "k1"},
		} {
			if n := len(f.auditTargets(q)); n != 32 {
				f.Errorf("%+v: %d lines", q, n)
			}
		}
		all := registry.AuditQuery{Action: "1", Outcome: "1", Tool: "1", CallID: "1", SessionID: "1", User: "1"}
		if got := f.auditTargets(all); !slices.Equal(got, []string{"63"}) {
			f.Errorf("%v", got)
		}
	}},
	{name: "a query by time", run: func(f *fixture) {
		note := func(target string) time.Time {
			f.must(f.store.AppendAudit(f.ctx, []registry.AuditEntry{{Tenant: f.tenant, Target: target}}))
			page, _, err := f.store.ReadAudit(f.ctx, registry.AuditQuery{Tenant: f.tenant, Limit: 1})
			f.must(err)
			id, err := registry.ParseAuditID(page[0].ID)
			f.must(err)
			return time.UnixMilli(id.Milli)
		}
		one := note("one")
		two := one
		for two.Equal(one) { // the store's clock must advance
			two = note("two")
		}
		if got := f.auditTargets(registry.AuditQuery{From: two}); len(got) != 1 || got[0] != "two" {
			f.Errorf("from then on: %v", got)
		}
		before := f.auditTargets(registry.AuditQuery{To: two})
		if slices.Index(before, "one") != len(before)-1 || len(before) < 1 {
			f.Errorf("until then: %v", before)
		}
		if got := f.auditTargets(registry.AuditQuery{From: two.Add(time.Hour)}); len(got) != 0 {
			f.Errorf("from the future on: %v", got)
		}
		if got := f.auditTargets(registry.AuditQuery{From: one, To: two, Limit: 1}); len(got) != len(before) {
			f.Errorf("line by line: %v, want %v", got, before)
		}
	}},
	{name: "the log is capped in lines", limits: registry.Limits{AuditCap: 300}, run: func(f *fixture) {
		f.audit(0, 5000, 100, "")
		got := f.auditTargets(registry.AuditQuery{Limit: 1000})
		if n := len(got); n < 100 || n > 7000 || got[0] != "4999" {
			f.Errorf("%d lines in a log of about 300, the newest %s", n, got[0])
		}
		f.audit(0, 20_000, 1000, "")
		if n := len(f.auditTargets(registry.AuditQuery{Limit: 1000})); n > 7000 {
			f.Errorf("%d lines in a log of about 300", n)
		}
	}},
	{name: "the log is capped in bytes", limits: registry.Limits{AuditBytes: 100_000}, run: func(f *fixture) {
		f.audit(0, 8000, 500, strings.Repeat("r", 500)) // 4 MB
		if n := len(f.auditTargets(registry.AuditQuery{Limit: 1000})); n < 10 || n > 7000 {
			f.Errorf("%d lines of half a kilobyte in a log of about 100 kB", n)
		}
	}},
	{name: "a log is forgotten", limits: registry.Limits{AuditTTL: 300 * time.Millisecond}, run: func(f *fixture) {
		f.audit(0, 1, 1, "")
		f.eventually("the log is gone", func() bool {
			return len(f.auditTargets(registry.AuditQuery{})) == 0
		})
	}},
	{name: "tenants have logs of their own", run: func(f *fixture) {
		f.must(f.store.AppendAudit(f.ctx, []registry.AuditEntry{
			{Tenant: f.tenant, Target: "a"}, {Tenant: f.tenant + "x", Target: "b"}, {Tenant: f.tenant, Target: "c"},
		}))
		if got := strings.Join(f.auditTargets(registry.AuditQuery{}), ""); got != "ca" {
			f.Errorf("saw %s", got)
		}
	}},
	{name: "many write at once", run: func(f *fixture) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { f.audit(100*i, 100*i+100, 10, "") })
		}
		wg.Wait()
		got := f.auditTargets(registry.AuditQuery{})
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != 800 {
			f.Errorf("%d of 800 lines", n)
		}
	}},
	{name: "what matches nothing is looked for page by page", run: func(f *fixture) {
		const n = 25_000
		f.audit(0, n, 2500, "")
		q, pages := registry.AuditQuery{Tenant: f.tenant, User: "nobody"}, 0
		for {
			page, next, err := f.store.ReadAudit(f.ctx, q)
			f.must(err)
			if pages++; len(page) != 0 || pages > n {
				f.Fatalf("page %d has %d lines", pages, len(page))
			}
			if next == "" {
				break
			}
			q.Before = next
		}
		if pages != 1+n/registry.AuditScan {
			f.Errorf("%d pages looked at %d lines", pages, n)
		}
	}},
	{name: "malformed places are refused", run: func(f *fixture) {
		for _, id := range []string{"x", "1-1", "1-1.", "1-1.x", ".1", "-", "1-1.1\n", "(1-1.1", "1-1.1234567"} {
			_, _, err := f.store.ReadAudit(f.ctx, registry.AuditQuery{Tenant: f.tenant, Before: id})
			f.wantCode(err, registry.CodeInvalidRequest)
		}
	}},
}

// audit appends numbered lines in batches.
func (f *fixture) audit(from, to, batch int, reason string) {
	f.Helper()
	for i := from; i < to; i += batch {
		var lines []registry.AuditEntry
		for j := i; j < min(to, i+batch); j++ {
			lines = append(lines, registry.AuditEntry{Tenant: f.tenant, Target: strconv.Itoa(j), Reason: reason})
		}
		f.must(f.store.AppendAudit(f.ctx, lines))
	}
}

// auditTargets reads all pages of a query, and returns the targets of the lines.
func (f *fixture) auditTargets(q registry.AuditQuery) []string {
	f.Helper()
	q.Tenant = f.tenant
	targets := []string{}
	for {
		page, next, err := f.store.ReadAudit(f.ctx, q)
		f.must(err)
		if q.Limit > 0 && len(page) > q.Limit {
			f.Fatalf("a page of %d, limit %d", len(page), q.Limit)
		}
		for _, e := range page {
			targets = append(targets, e.Target)
		}
		if next == "" {
			return targets
		}
		q.Before = next
	}
}

var trailTests = []subtest{
	{name: "a trail is the last entries, oldest first", run: func(f *fixture) {
		for i, step := range []struct {
			entry string
			limit int
			want  string
		}{
			{"a", 3, "a"}, {"b", 3, "a b"}, {"c\x00\xff", 3, "a b c\x00\xff"}, {"d", 3, "b c\x00\xff d"},
			{"d", 3, "c\x00\xff d d"}, {"e", 1, "e"}, {"f", 0, "f"},
		} {
			if got := strings.Join(f.leave("c", step.entry, step.limit), " "); got != step.want {
				f.Errorf("step %d: %q, want %q", i, got, step.want)
			}
		}
		f.leave("c", "g", 9)
		for limit, want := range map[int]string{9: "f g", 2: "f g", 1: "g", 0: "", -1: ""} {
			if got := strings.Join(f.trail("c", limit), " "); got != want {
				f.Errorf("the last %d: %q, want %q", limit, got, want)
			}
		}
		f.wantConversation("c", registry.Conversation{}) // no turn, and none needed
	}},
	{name: "a trail has an end whatever the limit", run: func(f *fixture) {
		var got []string
		for i := range registry.MaxTrail + 10 {
			got = f.leave("c", fmt.Sprint(i), 1<<40)
		}
		if len(got) != registry.MaxTrail || got[0] != "10" || !slices.Equal(f.trail("c", 1<<40), got) {
			f.Errorf("%d entries from %s", len(got), got[0])
		}
	}},
	{name: "calls side by side each find their own entry last", run: func(f *fixture) {
		const calls, limit = 50, 20
		var mu sync.Mutex
		var windows [][]string
		together(calls, func(i int) {
			got, err := f.store.AppendTrail(f.ctx, f.key("c"), fmt.Sprint(i), limit)
			if err != nil || len(got) == 0 || len(got) > limit || got[len(got)-1] != fmt.Sprint(i) {
				f.Errorf("call %d: %q, %v", i, got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			windows = append(windows, got)
		})
		// All of them saw the same order: compare the results by what precedes each entry.
		before := make(map[string]string) // entry → the one before it
		for _, w := range windows {
			for i := 1; i < len(w); i++ {
				if known, ok := before[w[i]]; ok && known != w[i-1] {
					f.Fatalf("%s stands behind %s and behind %s", w[i], known, w[i-1])
				}
				before[w[i]] = w[i-1]
			}
		}
		last := f.trail("c", calls)
		if len(before) != calls-1 || len(last) != limit {
			f.Fatalf("%d entries have one before them; %d are left", len(before), len(last))
		}
		for i := 1; i < limit; i++ {
			if before[last[i]] != last[i-1] {
				f.Errorf("in the end %s stands behind %s", last[i], last[i-1])
			}
		}
	}},
}
