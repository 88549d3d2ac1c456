package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/registry"
)

const (
	usageDays    = 30     // listed by default
	maxUsageDays = 366    // in one request
	maxUsageRows = 50_000 // groups in one request; further rows are summed as registry.UsageOther

	// maxUsageRead is about how many rows of the store one request reads: forty days of a tenant with the maximum
	// number of rows.
	maxUsageRead = 400_000
)

// Dimensions by which usage can be grouped.
const (
	byDay  = "day"
	byUser = "user"
	byTool = "tool"
)

type usageRow struct {
	wire.UsageRow

	key string // see usageGroup
}

type usageQuery struct {
	tenant   string
	from, to time.Time // days, inclusive
	user     *string   // nil: all
	nothing  bool      // the caller may see none of the requested rows
	tool     string
	by       map[string]bool
	limit    int
	after    string // key of the last row of the previous page
}

// readUsage lists usage. Callers whose credentials name a user see only their own.
func (h *handler) readUsage(c *gin.Context, q *params) error {
	query, err := h.usageQuery(c, q)
	if err != nil {
		return err
	}
	ctx := storeContext(c)
	done, err := h.reading.wait(ctx, h.owner(c))
	if err != nil {
		return err
	}
	defer done()
	rows, next, err := h.usagePage(ctx, query)
	if err != nil {
		return err
	}
	return h.respond(c, wire.UsageList{
		From: registry.UsageDay(query.from), To: registry.UsageDay(query.to),
		Usage:      each(rows, func(r usageRow) wire.UsageRow { return r.UsageRow }),
		NextCursor: nextCursor(cursorUsage, next),
	})
}

// usageGroup identifies a row. Parts that are not grouped by are empty.
type usageGroup struct{ day, user, account, tool string }

// key returns the sort key of a row. It is never empty.
func (g usageGroup) key() string {
	return g.day + "\x00" + g.user + "\x00" + g.account + "\x00" + g.tool
}

func (h *handler) usageQuery(c *gin.Context, q *params) (usageQuery, error) {
	who, now := caller(c), time.Now().UTC()
	query := usageQuery{
		tenant: who.Tenant, from: cmp.Or(q.time("from").UTC(), now.AddDate(0, 0, 1-usageDays)),
		to: cmp.Or(q.time("to").UTC(), now), by: make(map[string]bool),
	}
	if q.has("user") {
		query.user = new(q.get("user"))
	}
	if own := who.Viewer(); own != "" {
		// Rows of other users look like rows that do not exist.
		query.nothing = query.user != nil && *query.user != own
		query.user = &own
	}
	if query.to.Before(query.from) || query.to.Sub(query.from) > maxUsageDays*24*time.Hour {
		q.fail("from must not be after to, and at most %d days before it.", maxUsageDays)
	}
	by := cmp.Or(q.get("by"), strings.Join([]string{byDay, byUser, byTool}, ","))
	for name := range strings.SplitSeq(by, ",") {
		if name != byDay && name != byUser && name != byTool {
			q.fail("The query parameter \"by\" must be a list of: day, user, tool.")
		}
		query.by[name] = true
	}
	query.tool, query.limit, query.after = q.get("tool"), q.limit(), q.cursor(cursorUsage).Name
	return query, q.failed()
}

// usagePage sums the rows that a query selects. It returns the rows behind query.after, in order, and the key of the
// next page, if there is one. With grouping by day, it reads day by day until the page is full or maxUsageRead rows
// were read. In the latter case the page may be empty and still have a next one.
func (h *handler) usagePage(ctx context.Context, q usageQuery) (page []usageRow, next string, err error) {
	if q.nothing {
		return nil, "", nil
	}
	groups, read := make(map[usageGroup]registry.Usage), 0
	for at := q.from; registry.UsageDay(at) <= registry.UsageDay(q.to); at = at.AddDate(0, 0, 1) {
		day := registry.UsageDay(at)
		switch {
		case q.by[byDay] && afterDay(day) <= q.after: // previous pages had all of its rows
			continue
		case read >= maxUsageRead && q.by[byDay]:
			return page, afterDay(registry.UsageDay(at.AddDate(0, 0, -1))), nil
		case read >= maxUsageRead:
			return nil, "", registry.Errorf(registry.CodeInvalidRequest,
				"This period has too much usage for one request: more than %d rows before %s. Request fewer days "+
					"with from and to, or add day to the parameter \"by\", which returns pages.",
				maxUsageRead, day)
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

// afterDay returns a text that sorts after the keys of all rows of a day, and before those of the next day.
func afterDay(day string) string { return day + "\x01" }

// rowsOf returns the groups behind q.after, in order.
func (q usageQuery) rowsOf(groups map[usageGroup]registry.Usage) []usageRow {
	var list []usageRow
	for g, sum := range groups {
		row := usageRow{wire.UsageRow{Day: g.day, Key: g.account, Tool: g.tool, Usage: sum}, g.key()}
		if row.key <= q.after {
			continue
		}
		if q.by[byUser] {
			row.User = &g.user // each iteration has its own g
		}
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b usageRow) int { return cmp.Compare(a.key, b.key) })
	return list
}

// add adds a row to its group. Beyond maxUsageRows groups, it adds the row to the group of registry.UsageOther.
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
