package api_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// fullUsage has fullDay rows for each day, and counts the days that are read.
type fullUsage struct {
	rows []registry.UsageRow
	days atomic.Int64
	read func(ctx context.Context, nth int64) // called for each day
}

func (u *fullUsage) ReadUsage(ctx context.Context, tenant, day string) ([]registry.UsageRow, error) {
	if n := u.days.Add(1); u.read != nil {
		u.read(ctx, n)
	}
	rows := make([]registry.UsageRow, len(u.rows))
	for i, r := range u.rows {
		r.Tenant, r.Day = tenant, day
		rows[i] = r
	}
	return rows, nil
}

// fullDay is less than a tenant may have, for the sake of the test's time.
const fullDay = 4000

func newFullUsage() *fullUsage {
	u := &fullUsage{rows: []registry.UsageRow{{User: "anna", Tool: "look", Usage: registry.Usage{Calls: 1}}}}
	for i := range fullDay - 1 {
		u.rows = append(u.rows, registry.UsageRow{User: fmt.Sprintf("user-%d", i), Tool: "look"})
	}
	return u
}

// What one request for usage reads is bounded, whatever it asks for: what is added up by day goes on page by page, and
// a sum over too much is refused with what to do.
func TestUsageIsReadInBoundedParts(t *testing.T) {
	const (
		year      = "/api/usage?from=2025-11-22&to=2026-11-22"
		wholeYear = 366
		most      = 101 // days that one request reads
	)
	store := newFullUsage()
	f := newFleet(t, setup{change: func(c *api.Config) { c.Auth, c.Usage = oneAdmin{c.Auth}, store }})
	read := func() int64 { return store.days.Swap(0) }
	for _, by := range []string{"user", "tool", "user,tool"} {
		p := wantProblem(f.get(year+"&by="+by), 400, registry.CodeInvalidRequest)
		if n := read(); n > most || !strings.Contains(p.Detail, "fewer days") {
			t.Errorf("by %s: %d days were read: %s", by, n, p.Detail)
		}
	}
	if page := decode[usagePage](f.get(year+"&limit=1000"), 200); len(page.Usage) != 1000 || read() != 1 {
		t.Errorf("a page of %d rows, not of one day", len(page.Usage))
	}
	for _, query := range []string{"&by=day&limit=1000", "&user=anna&limit=150"} {
		days := make(map[string]bool)
		for cursor, pages := "", 0; ; pages++ {
			page := decode[usagePage](f.get(year+query+cursor), 200)
			for _, r := range page.Usage {
				if days[r.Day] || r.Calls != 1 {
					t.Fatalf("%s: %+v, again", query, r)
				}
				days[r.Day] = true
			}
			if n := read(); n > most {
				t.Fatalf("%s: a page has read %d days", query, n)
			}
			if page.NextCursor == "" {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(page.NextCursor)
		}
		if len(days) != wholeYear {
			t.Errorf("%s: %d days of %d", query, len(days), wholeYear)
		}
	}
	nobody := decode[usagePage](f.get(year+"&user=nobody"), 200)
	if len(nobody.Usage) != 0 || nobody.NextCursor == "" || read() > most {
		t.Errorf("what matches nothing: %+v", nobody)
	}
}

// Usage is not read on for a caller who has gone.
func TestUsageStopsWithItsCaller(t *testing.T) {
	ctx, hangUp := context.WithCancel(t.Context())
	store := newFullUsage()
	store.read = func(ctx context.Context, nth int64) {
		if nth == 3 {
			hangUp()
			<-ctx.Done()
		}
	}
	f := newFleet(t, setup{change: func(c *api.Config) { c.Usage = store }})
	if _, err := f.try(request{path: "/api/usage?by=user", ctx: ctx}); err == nil {
		t.Error("there is an answer for a caller who has gone")
	}
	f.pods[0].server.Close() // returns when the request has ended
	if n := store.days.Load(); n != 3 {
		t.Errorf("%d days were read", n)
	}
}

// A cursor can be made up. It shows nothing of others, costs no more than another, and breaks nothing; names of any
// characters make one that is taken back.
func TestForgedCursors(t *testing.T) {
	f, store := accountsFleet(t)
	fillAudit(t, store, registry.DefaultTenant, 300)
	fillAudit(t, store, "other", 300)
	today := registry.UsageDay(time.Now())
	long := strings.Repeat("<", 128)
	f.must(store.AddUsage(t.Context(), []registry.UsageRow{
		{Tenant: registry.DefaultTenant, Day: today, User: long, Tool: "a"},
		{Tenant: registry.DefaultTenant, Day: today, User: long, Tool: "b"},
		{Tenant: "other", Day: today, User: "foreign", Tool: "t"},
	}))
	page := decode[usagePage](f.get("/api/usage?limit=1"), 200)
	if page = decode[usagePage](f.get("/api/usage?limit=1&cursor="+page.NextCursor), 200); len(page.Usage) != 1 ||
		page.Usage[0].Tool != "b" {
		t.Errorf("behind the first row: %+v", page)
	}
	forge := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for _, name := range []string{
		"0-0.0", "1-1.999999", "999999999999999999-999999999999999999.999999", "-1-1.1", "0-0.-1", "1-1", "x", "",
		"0x1-1.1", "18446744073709551615-1.1", "1-1.1 ", "$-$.0", "+-1.0", "(1-1.1",
		`2026-11-22\u0000ben`, `\uffff`, `\u0000`, strings.Repeat("9", 900), "9999-99-99", "../other",
	} {
		for _, kind := range []string{"a", "u", "s", "", "aa"} {
			cursor := forge(`{"k":"` + kind + `","n":"` + name + `"}`)
			for _, path := range []string{"/api/audit?limit=1000", "/api/audit?format=jsonl", "/api/usage?limit=1000"} {
				r := f.get(path + "&cursor=" + cursor)
				if r.status != 200 && r.status != 400 || strings.Contains(string(r.body), "foreign") {
					t.Errorf("%s, cursor %s of %q: %d %s", path, name, kind, r.status, r.body)
				}
				if kind != map[bool]string{true: "a", false: "u"}[strings.Contains(path, "audit")] && r.status != 400 {
					t.Errorf("%s took a cursor of %q", path, kind)
				}
			}
		}
	}
}

// A cursor of calls that nobody was given is the client's mistake, not the store's.
func TestForgedCursorsOfCalls(t *testing.T) {
	f, _ := accountsFleet(t)
	for _, name := range []string{"0-0", "00-0", "x", "", "-1", "1-1-1", "(1-1"} {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(`{"k":"c","n":"` + name + `"}`))
		if r := f.get("/api/calls?cursor=" + cursor); r.status != 400 {
			t.Errorf("cursor %q: %d %s", name, r.status, r.body)
		}
	}
}

// heldLog is an audit log whose reads wait. It knows how many there were at once.
type heldLog struct {
	open chan struct{} // closed when reads may end
	of   string        // the tenant whose reads wait and are counted; empty: all

	mu           sync.Mutex
	active, most int
}

func newHeldLog() *heldLog { return &heldLog{open: make(chan struct{})} }

func (l *heldLog) ReadAudit(
	ctx context.Context, q registry.AuditQuery,
) ([]registry.AuditEntry, string, error) {
	if l.of != "" && q.Tenant != l.of {
		return nil, "", nil
	}
	l.mu.Lock()
	l.active++
	l.most = max(l.most, l.active)
	l.mu.Unlock()
	select {
	case <-l.open:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	return nil, "", ctx.Err()
}

// reading returns how many reads are at the log.
func (l *heldLog) reading() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.active
}

// arrivals tells of each request that is identified.
type arrivals struct {
	auth.Authenticator
	seen chan<- struct{}
}

func (a arrivals) Authenticate(ctx context.Context, r *http.Request, given string) (auth.Identity, error) {
	a.seen <- struct{}{}
	return a.Authenticator.Authenticate(ctx, r, given)
}

// Of a thousand exports at once few are begun, and the others hear to come back; of many queries few read at a time,
// and each gets its answer.
func TestAThousandExports(t *testing.T) {
	const exports, some = 1000, 4
	log, arrived := newHeldLog(), make(chan struct{}, exports+100)
	f := newFleet(t, setup{change: func(c *api.Config) {
		c.AuditLog, c.Auth = log, arrivals{c.Auth, arrived}
	}})
	statuses := make(chan int, exports)
	var all sync.WaitGroup
	ask := func(n int, path string) {
		for range n {
			all.Go(func() {
				r, err := f.try(request{path: path})
				if err != nil {
					t.Error(err)
				}
				if r.status == http.StatusTooManyRequests && r.header.Get("Retry-After") == "" {
					t.Error("nothing says when to come back")
				}
				statuses <- r.status
			})
		}
	}
	ask(exports, "/api/audit?format=jsonl")
	for range exports - some {
		if status := await(t, "an answer", statuses); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
	}
	ask(100, "/api/audit")
	for range exports + 100 {
		await(t, "a request", arrived)
	}
	close(log.open)
	all.Wait()
	for range some + 100 {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	if log.most > some {
		t.Errorf("%d reads at once", log.most)
	}
}
