package routing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/farhand/farhand/registry"
)

// What a pod keeps of calls in its store when nothing else is configured.
const (
	DefaultCallBytes = 512 << 20 // of all calls of a tenant
	DefaultCallLog   = 1 << 20   // of the log of one call
)

const (
	// MaxCallBytes is how much one call may add to the store, log and output together.
	MaxCallBytes = 8_000_000

	// MaxCallLog is how long the log of a call may be configured to be: the rest of MaxCallBytes is for its output.
	MaxCallLog = 3 << 20

	// maxKeptOutput bounds the output of one call that is kept; what is longer is cut. With its log, and what Redis
	// takes beside the bytes it is given, it stays within MaxCallBytes.
	maxKeptOutput = 4_500_000

	// recordCost is about what the record of a call takes with its log, for which Redis takes 4 KiB at once. keyCost is
	// what an idempotency key takes.
	recordCost = 6000
	keyCost    = 300

	// cutOutput is how much of an output is kept when there is no room for it. It is counted with the record.
	cutOutput = 512

	// sessionShare is the part of a tenant's budget that a single session may use.
	sessionShare = 8
)

// callBudget is a CallStore that keeps no more of the calls of a tenant, and of one session, than their budgets allow.
// What counts is what is added over the time it is kept for. A call that must have a record is refused before it runs;
// the output of one that ran is cut, and says so; the record of a light call that nobody else needs is left out.
type callBudget struct {
	registry.CallStore
	amending amending
	allow    *allowances
	tenant   registry.Budget
	log      *slog.Logger
}

func newCallBudget(cfg PodConfig, allow *allowances) *callBudget {
	return &callBudget{CallStore: cfg.Store, allow: allow, tenant: registry.Budget{Bytes: cfg.CallBytes, Over: cfg.Retention}, log: cfg.Log}
}

// spend spends n bytes of the session's part and of the tenant's budget. It returns how long to wait if they are not
// there.
func (c *callBudget) spend(ctx context.Context, key registry.Key, n int64) time.Duration {
	part := registry.Budget{Bytes: c.tenant.Bytes / sessionShare, Over: c.tenant.Over}
	if key.Session != "" {
		if wait := c.allow.spend(ctx, key.Tenant, sessionCalls(key.Session), n, part); wait > 0 {
			return wait
		}
	}
	wait := c.allow.spend(ctx, key.Tenant, tenantCalls, n, c.tenant)
	if wait > 0 && key.Session != "" {
		c.allow.giveBack(key.Tenant, sessionCalls(key.Session), n, part)
	}
	return wait
}

// tenantCalls names the budget of all calls of a tenant, sessionCalls that of one session.
const tenantCalls = "calls"

func sessionCalls(session string) string { return "calls/" + session }

// spent returns how long there is known to be no room for anything more of a session's calls.
func (c *callBudget) spent(key registry.Key) time.Duration {
	return max(c.allow.spent(key.Tenant, tenantCalls), c.allow.spent(key.Tenant, sessionCalls(key.Session)))
}

// CreateCall implements CallStore. A repeated request gets the record of its call also when there is no room for new
// ones.
func (c *callBudget) CreateCall(ctx context.Context, r registry.Record) (registry.Record, bool, error) {
	cost := int64(recordCost)
	if r.IdempotencyKey != "" {
		cost += keyCost
	}
	key := registry.Key{Tenant: r.Tenant, Session: r.SessionID}
	wait := c.spend(ctx, key, cost)
	if wait == 0 {
		stored, created, err := c.CallStore.CreateCall(ctx, r)
		if !created {
			c.giveBack(key, cost)
		}
		return stored, created, err
	}
	if r.IdempotencyKey != "" {
		if stored, err := c.CallByKey(ctx, r.Tenant, r.IdempotencyKey); !registry.IsCallNotFound(err) {
			return stored, false, err
		}
	}
	e := registry.Errorf(registry.CodeRateLimited, "Too much is kept of calls already: %d bytes of records and outputs of a tenant over %v, and "+
		"an eighth of them of one session. Retry later, or raise FARHAND_CALL_BYTES.", c.tenant.Bytes, c.tenant.Over)
	e.RetryAfter = wait
	return registry.Record{}, false, e.With(registry.DispatchedNo)
}

// MoveCall implements CallStore. The budget is only charged for an answer that the record takes.
func (c *callBudget) MoveCall(ctx context.Context, tenant, callID string, e registry.Event, change registry.Change) (registry.Moved, error) {
	if change.Result == nil {
		return c.CallStore.MoveCall(ctx, tenant, callID, e, change)
	}
	e, change, err := c.amending.amend(ctx, c.CallStore, tenant, callID, e, change) // all of it, before it is cut
	if err != nil {
		return registry.Moved{}, err
	}
	key := registry.Key{Tenant: tenant, Session: change.Session.Session}
	kept, cost := c.fit(ctx, key, change.Result)
	change.Result = kept
	moved, err := c.CallStore.MoveCall(ctx, tenant, callID, e, change)
	if err != nil || !moved.Applied {
		c.giveBack(key, cost)
	}
	return moved, err
}

func (c *callBudget) giveBack(key registry.Key, n int64) {
	if n == 0 {
		return
	}
	if key.Session != "" {
		c.allow.giveBack(key.Tenant, sessionCalls(key.Session), n, registry.Budget{Bytes: c.tenant.Bytes / sessionShare, Over: c.tenant.Over})
	}
	c.allow.giveBack(key.Tenant, tenantCalls, n, c.tenant)
}

// fit returns what is kept of a result, and what was taken off the budgets for that.
func (c *callBudget) fit(ctx context.Context, key registry.Key, r *registry.Result) (*registry.Result, int64) {
	r = compact(r)
	kept, size := r, resultSize(r)
	if size > maxKeptOutput {
		kept = cut(r, (maxKeptOutput-cutOutput)/6, "one call may keep no more") // an escaped character takes up to six bytes
		size = resultSize(kept)
	}
	switch {
	case size <= cutOutput:
		return kept, 0
	case c.spend(ctx, key, size) > 0:
		return cut(r, cutOutput, "the outputs of this tenant or session use up what FARHAND_CALL_BYTES allows"), 0
	default:
		return kept, size
	}
}

// KeepCalls implements CallStore.
func (c *callBudget) KeepCalls(ctx context.Context, records []registry.Record) error {
	kept, left := make([]registry.Record, 0, len(records)), 0
	for _, r := range records {
		key := registry.Key{Tenant: r.Tenant, Session: r.SessionID}
		if c.spend(ctx, key, recordCost) > 0 && !(r.Stored && r.State.Final()) { // the store has it already, as one that runs
			left++ // the feed tells how it ended
			continue
		}
		if r.Result != nil {
			r.Result, _ = c.fit(ctx, key, r.Result)
		}
		kept = append(kept, r)
	}
	if left > 0 {
		c.log.Warn("records of light calls not kept: FARHAND_CALL_BYTES is used up", "records", left)
	}
	if len(kept) == 0 {
		return nil
	}
	return c.CallStore.KeepCalls(ctx, kept)
}

// AppendCallEvents implements CallStore. Whoever follows a call hears of its end also if its log does not have it.
func (c *callBudget) AppendCallEvents(ctx context.Context, events []registry.CallEvent) error {
	kept := make([]registry.CallEvent, 0, len(events))
	for _, e := range events {
		if e.Type != registry.CallEventTruncated && c.spend(ctx, registry.Key{Tenant: e.Tenant, Session: e.Session}, eventSize(&e)) > 0 {
			continue
		}
		kept = append(kept, e)
	}
	if len(kept) == 0 {
		return nil
	}
	return c.CallStore.AppendCallEvents(ctx, kept)
}

// eventSize is about how many bytes a store takes for the event.
func eventSize(e *registry.CallEvent) int64 {
	const overhead = 200
	return overhead + jsonSize(e.Message) + jsonSize(e.Chunk)
}

// resultSize is about how many bytes a store takes for the result. Text that is that of its structured output takes
// none.
func resultSize(r *registry.Result) int64 {
	size := int64(r.Structured.Len()) + jsonSize(r.Error)
	if r.Output != r.Structured.String() {
		size += jsonSize(r.Output)
	}
	return size
}

// compactFrom is how long structured output must be to be kept without the space in it that means nothing.
const compactFrom = 64 << 10

// compact returns the result as it is kept: long structured output without space, and so only once.
func compact(r *registry.Result) *registry.Result {
	if r.Structured.Len() < compactFrom {
		return r
	}
	kept := *r
	kept.Structured = r.Structured.Compact()
	if r.Output == r.Structured.String() { // else a hook has changed it
		kept.Output = kept.Structured.String()
	}
	return &kept
}

// cut returns the beginning of a result, which says that it is not all.
func cut(r *registry.Result, limit int, reason string) *registry.Result {
	kept := *r
	if len(r.Output) > limit || !r.Structured.IsZero() {
		kept.Output = fmt.Sprintf("%s\n[%d bytes of output were not kept: %s]", registry.CutText(r.Output, limit), len(r.Output), reason)
	}
	kept.Error, kept.Structured = registry.CutText(r.Error, min(limit, registry.MaxErrorText)), registry.JSON{}
	return &kept
}

// jsonSize returns how many bytes a text takes as JSON, about: what has to be escaped takes up to six for one.
func jsonSize(s string) int64 {
	n := int64(len(s))
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ' && c != '\n' && c != '\t' && c != '\r':
			n += 5
		case c < ' ' || c == '"' || c == '\\':
			n++
		}
	}
	return n
}
