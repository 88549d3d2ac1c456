package routing

import (
	"cmp"
	"context"
	"time"

	"github.com/farhand/farhand/registry"
)

// searchLimit is how many lines of the feed are searched for calls. searchPage is how many are read at once.
const (
	searchLimit = 10_000
	searchPage  = 500
)

// Events returns at most EventPage events of a call's log after the one with the id after, and the call's record
// without the tool's result.
func (c *Calls) Events(
	ctx context.Context, tenant, callID, after string,
) ([]registry.CallEvent, registry.Record, error) {
	events, err := c.store.CallEvents(ctx, tenant, callID, after, registry.EventPage)
	if err != nil {
		return nil, registry.Record{}, err
	}
	rec, err := c.Get(ctx, tenant, callID)
	return events, rec.Summary(), err
}

// List returns the finished calls that the feed still has, newest first and without their results, and the cursor of
// the next page, empty on the last. It scans a bounded part of the feed, so a query with few matches may return short
// or empty pages that have a next one.
func (c *Calls) List(ctx context.Context, q registry.CallQuery) ([]registry.Record, string, error) {
	var page []registry.Record
	next := ""
	rest, err := c.search(ctx, q.Tenant, q.Before, func(id string, r registry.Record) bool {
		if q.Tool != "" && r.Tool != q.Tool || q.SessionID != "" && r.SessionID != q.SessionID ||
			q.DeviceID != "" && r.DeviceID != q.DeviceID || q.UserID != "" && r.UserID != q.UserID ||
			q.State != "" && r.State != q.State {
			return true
		}
		page = append(page, r)
		if len(page) == q.Limit {
			next = id
		}
		return len(page) < q.Limit
	})
	return page, cmp.Or(next, rest), err
}

// search calls visit for the calls of the feed, newest first, until visit returns false or searchLimit lines have been
// read. In the second case rest is the cursor to continue from; otherwise it is empty.
func (c *Calls) search(
	ctx context.Context, tenant, before string, visit func(id string, r registry.Record) bool,
) (rest string, err error) {
	for seen := 0; seen < searchLimit; {
		page, err := c.feed.LastActivity(ctx, tenant, before, searchPage)
		if err != nil || len(page) == 0 {
			return "", err
		}
		for _, a := range page {
			if a.Type == registry.ActivityCall && a.Call != nil && !visit(a.ID, *a.Call) {
				return "", nil
			}
		}
		seen += len(page)
		before = page[len(page)-1].ID
	}
	return before, nil
}

// Note adds a line to the tenant's feed, asynchronously. It sets the time and the pod.
func (c *Calls) Note(a registry.Activity) { c.rec.activity(a) }

// Feed returns the entries of the tenant's feed after the one with the id after. If there are none, it waits.
func (c *Calls) Feed(
	ctx context.Context, tenant, after string, limit int, wait time.Duration,
) ([]registry.Activity, error) {
	return c.feed.ReadActivity(ctx, tenant, after, limit, wait)
}

// FeedEnd returns the id of the newest entry of the tenant's feed, to continue from in Feed. Empty for an empty feed.
func (c *Calls) FeedEnd(ctx context.Context, tenant string) (string, error) {
	last, err := c.feed.LastActivity(ctx, tenant, "", 1)
	if err != nil || len(last) == 0 {
		return "", err
	}
	return last[0].ID, nil
}
