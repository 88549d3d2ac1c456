package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/registry"
)

const (
	usageDays    = 30     // listed when nobody says from when
	maxUsageDays = 366    // that one request may ask for
	maxUsageRows = 50_000 // groups that one request adds up; beyond, they are those of others
)

// What usage can be added up by.
const (
	byDay  = "day"
	byUser = "user"
	byTool = "tool"
)

// usageRow is a row of usage. Fields that it is not added up by are missing.
type usageRow struct {
	Day  string  `json:"day,omitempty"`
	User *string `json:"user,omitempty"` // empty: identities that name no user
	Tool string  `json:"tool,omitempty"`
	registry.Usage
}

// usageQuery is a request for usage.
type usageQuery struct {
	tenant   string
	from, to time.Time // days, both included
	user     *string   // nil: all
	nothing  bool      // the caller may see none of what was asked for
	tool     string
	by       map[string]bool
	limit    int
	after    string // the key of the last row of the page before
}

// readUsage lists what was used. Callers that name a user see their own.
func (h *handler) readUsage(c *gin.Context, q params) error {
	query, err := h.usageQuery(c, q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), storeTimeout)
	defer cancel()
	rows, err := h.usageRows(ctx, query)
	if err != nil {
		return err
	}
	answer := struct {
		From       string     `json:"from"`
		To         string     `json:"to"`
		Usage      []usageRow `json:"usage"`
		NextCursor string     `json:"next_cursor,omitempty"`
	}{From: registry.UsageDay(query.from), To: registry.UsageDay(query.to), Usage: []usageRow{}}
	first, _ := slices.BinarySearchFunc(rows, query.after, func(r usageRow, after string) int {
		return cmp.Or(cmp.Compare(r.key(), after), -1) // the first row behind it
	})
	if query.after == "" {
		first = 0
	}
	last := min(first+query.limit, len(rows))
	answer.Usage = append(answer.Usage, rows[first:last]...)
	if last < len(rows) {
		answer.NextCursor = cursor{Kind: cursorUsage, Name: rows[last-1].key()}.String()
	}
	return h.respond(c, answer)
}

// key orders the rows. It is never empty.
func (r usageRow) key() string {
	user := ""
	if r.User != nil {
		user = *r.User
	}
	return r.Day + "\x00" + user + "\x00" + r.Tool
}

func (h *handler) usageQuery(c *gin.Context, q params) (usageQuery, error) {
	who, now := caller(c), time.Now().UTC()
	query := usageQuery{tenant: who.Tenant, from: now.AddDate(0, 0, 1-usageDays), to: now, by: make(map[string]bool)}
	if q.has("user") {
		user := q.get("user")
		query.user = &user
	}
	if own := who.Viewer(); own != "" {
		// What is another's is answered like what does not exist.
		query.nothing = query.user != nil && *query.user != own
		query.user = &own
	}
	for _, at := range []struct {
		name string
		time *time.Time
	}{{"from", &query.from}, {"to", &query.to}} {
		if t, err := q.time(at.name); err != nil {
			return query, err
		} else if !t.IsZero() {
			*at.time = t.UTC()
		}
	}
	if query.to.Before(query.from) || query.to.Sub(query.from) > maxUsageDays*24*time.Hour {
		return query, registry.Errorf(registry.CodeInvalidRequest,
			"from must not be after to, and at most %d days before it.", maxUsageDays)
	}
	by := cmp.Or(q.get("by"), strings.Join([]string{byDay, byUser, byTool}, ","))
	for name := range strings.SplitSeq(by, ",") {
		if name != byDay && name != byUser && name != byTool {
			return query, registry.Errorf(registry.CodeInvalidRequest,
				"The query parameter \"by\" must be a list of: day, user, tool.")
		}
		query.by[name] = true
	}
	query.tool = q.get("tool")
	var err error
	if query.limit, err = q.limit(); err != nil {
		return query, err
	}
	from, err := q.cursor(cursorUsage)
	query.after = from.Name
	return query, err
}

// usageRows adds up what a query selects, in order.
func (h *handler) usageRows(ctx context.Context, q usageQuery) ([]usageRow, error) {
	groups := make(map[string]*usageRow)
	if q.nothing {
		q.to = q.from.AddDate(0, 0, -1)
	}
	for day := q.from; registry.UsageDay(day) <= registry.UsageDay(q.to); day = day.AddDate(0, 0, 1) {
		rows, err := h.Usage.ReadUsage(ctx, q.tenant, registry.UsageDay(day))
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if q.user != nil && r.User != *q.user || q.tool != "" && r.Tool != q.tool {
				continue
			}
			q.add(groups, r)
		}
	}
	list := make([]usageRow, 0, len(groups))
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b usageRow) int { return cmp.Compare(a.key(), b.key()) })
	return list, nil
}

// add adds a row to its group.
func (q usageQuery) add(groups map[string]*usageRow, r registry.UsageRow) {
	g := q.groupOf(r)
	known := groups[g.key()]
	if known == nil && len(groups) >= maxUsageRows {
		r.User, r.Tool = registry.UsageOther, registry.UsageOther
		g = q.groupOf(r)
		known = groups[g.key()]
	}
	if known == nil {
		known = &g
		groups[g.key()] = known
	}
	known.Usage = known.Usage.Plus(r.Usage)
}

func (q usageQuery) groupOf(r registry.UsageRow) (g usageRow) {
	if q.by[byDay] {
		g.Day = r.Day
	}
	if q.by[byUser] {
		g.User = &r.User
	}
	if q.by[byTool] {
		g.Tool = r.Tool
	}
	return g
}
