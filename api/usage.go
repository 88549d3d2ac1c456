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

	// maxUsageRead is about how many rows of the store one request reads: forty days of a tenant that has as many as it
	// may have.
	maxUsageRead = 400_000
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
	Key  string  `json:"key,omitempty"`  // of an identity that names no user: its credential, with its name
	Tool string  `json:"tool,omitempty"`
	registry.Usage

	key string // see usageGroup
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
	done, err := h.reading.wait(ctx, h.owner(c))
	if err != nil {
		return err
	}
	defer done()
	rows, next, err := h.usagePage(ctx, query)
	if err != nil {
		return err
	}
	answer := struct {
		From       string     `json:"from"`
		To         string     `json:"to"`
		Usage      []usageRow `json:"usage"`
		NextCursor string     `json:"next_cursor,omitempty"`
	}{From: registry.UsageDay(query.from), To: registry.UsageDay(query.to), Usage: append([]usageRow{}, rows...)}
	if next != "" {
		answer.NextCursor = cursor{Kind: cursorUsage, Name: next}.String()
	}
	return h.respond(c, answer)
}

// usageGroup is what a row adds up. Parts that nothing is added up by are empty.
type usageGroup struct{ day, user, account, tool string }

// key orders the rows. It is never empty.
func (g usageGroup) key() string {
	return g.day + "\x00" + g.user + "\x00" + g.account + "\x00" + g.tool
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

// usagePage adds up what a query selects, and returns the rows behind query.after, in order, and the key to go on from,
// if there is more. What is added up by day is read day by day, until the page is full or enough was read: the page may
// be empty then and still have a next one.
func (h *handler) usagePage(ctx context.Context, q usageQuery) (page []usageRow, next string, err error) {
	if q.nothing {
		return nil, "", nil
	}
	groups, read := make(map[usageGroup]registry.Usage), 0
	for at := q.from; registry.UsageDay(at) <= registry.UsageDay(q.to); at = at.AddDate(0, 0, 1) {
		day := registry.UsageDay(at)
		switch {
		case q.by[byDay] && behindDay(day) <= q.after: // the pages before had all of its rows
			continue
		case read >= maxUsageRead && q.by[byDay]:
			return page, behindDay(registry.UsageDay(at.AddDate(0, 0, -1))), nil
		case read >= maxUsageRead:
			return nil, "", tooMuchUsage(day)
		case ctx.Err() != nil:
			return nil, "", ctx.Err()
		}
		rows, err := h.Usage.ReadUsage(ctx, q.tenant, day)
		if err != nil {
			return nil, "", err
		}
		read += len(rows)
		for _, r := range rows {
			if (q.user == nil || r.User == *q.user) && (q.tool == "" || r.Tool == q.tool) {
				q.add(groups, r)
			}
		}
		if q.by[byDay] {
			page = append(page, q.rowsOf(groups)...)
			clear(groups)
		}
		if len(page) > q.limit {
			break
		}
	}
	page = append(page, q.rowsOf(groups)...)
	if len(page) > q.limit {
		page = page[:q.limit]
		next = page[q.limit-1].key
	}
	return page, next, nil
}

// behindDay returns a text that is behind the keys of all rows of a day, and before those of the next one.
func behindDay(day string) string { return day + "\x01" }

// rowsOf returns the groups that are behind q.after, in order.
func (q usageQuery) rowsOf(groups map[usageGroup]registry.Usage) []usageRow {
	var list []usageRow
	for g, sum := range groups {
		row := usageRow{Day: g.day, Key: g.account, Tool: g.tool, Usage: sum, key: g.key()}
		if row.key <= q.after {
			continue
		}
		if q.by[byUser] {
			row.User = &g.user // of this turn of the loop
		}
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b usageRow) int { return cmp.Compare(a.key, b.key) })
	return list
}

// tooMuchUsage is the error for a sum over too many rows. Those before day could be added up.
func tooMuchUsage(day string) error {
	return registry.Errorf(registry.CodeInvalidRequest,
		"There is more usage in these days than one request adds up: more than %d rows before %s. "+
			"Ask for fewer days with from and to, or have the parameter \"by\" name day, which is read page by page.",
		maxUsageRead, day)
}

// add adds a row to its group.
func (q usageQuery) add(groups map[usageGroup]registry.Usage, r registry.UsageRow) {
	g := q.groupOf(r)
	sum, known := groups[g]
	if !known && len(groups) >= maxUsageRows {
		r.User, r.Key, r.Tool = registry.UsageOther, "", registry.UsageOther
		g = q.groupOf(r)
		sum = groups[g]
	}
	groups[g] = sum.Plus(r.Usage)
}

func (q usageQuery) groupOf(r registry.UsageRow) (g usageGroup) {
	if q.by[byDay] {
		g.day = r.Day
	}
	if q.by[byUser] {
		g.user, g.account = r.User, r.Key
	}
	if q.by[byTool] {
		g.tool = r.Tool
	}
	return g
}
