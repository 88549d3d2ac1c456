package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
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

	// maxKeptOutput bounds the output of one call that is kept; what is longer is cut. With its log, and what Redis takes
	// beside the bytes it is given, it stays within MaxCallBytes.
	maxKeptOutput = 4_500_000

	// recordCost is about what the record of a call takes with its log, for which Redis takes 4 KiB at once. keyCost is what
	// an idempotency key takes.
	recordCost = 6000
	keyCost    = 300

	// cutOutput is how much of an output is kept when there is no room for it. It is counted with the record.
	cutOutput = 512

	// sessionShare is the part of a tenant's budget that a single session may use.
	sessionShare = 8
)

// callBudget is a CallStore that keeps no more of the calls of a tenant, and of one session, than their budgets allow. What
// counts is what is added over the time it is kept for. A call that must have a record is refused before it runs; the output
// of one that ran is cut, and says so; the record of a light call that nobody else needs is left out.
type callBudget struct {
	CallStore
	amending amending
	allow    *allowances
	tenant   Budget
	log      *slog.Logger
}

func newCallBudget(cfg PodConfig, allow *allowances) *callBudget {
	return &callBudget{CallStore: cfg.Store, allow: allow, tenant: Budget{Bytes: cfg.CallBytes, Over: cfg.Retention}, log: cfg.Log}
}

// take spends n bytes of the session's part and of the tenant's budget. It returns how long to wait if they are not there.
func (c *callBudget) take(ctx context.Context, key Key, n int64) time.Duration {
	part := Budget{Bytes: c.tenant.Bytes / sessionShare, Over: c.tenant.Over}
	if key.Session != "" {
		if wait := c.allow.take(ctx, key.Tenant, sessionCalls(key.Session), n, part); wait > 0 {
			return wait
		}
	}
	wait := c.allow.take(ctx, key.Tenant, tenantCalls, n, c.tenant)
	if wait > 0 && key.Session != "" {
		c.allow.giveBack(key.Tenant, sessionCalls(key.Session), n, part)
	}
	return wait
}

// tenantCalls names the budget of all calls of a tenant, sessionCalls that of one session.
const tenantCalls = "calls"

func sessionCalls(session string) string { return "calls/" + session }

// spent returns how long there is known to be no room for anything more of a session's calls.
func (c *callBudget) spent(key Key) time.Duration {
	return max(c.allow.spent(key.Tenant, tenantCalls), c.allow.spent(key.Tenant, sessionCalls(key.Session)))
}

// CreateCall implements CallStore. A repeated request gets the record of its call also when there is no room for new ones.
func (c *callBudget) CreateCall(ctx context.Context, r Record) (Record, bool, error) {
	cost := int64(recordCost)
	if r.IdempotencyKey != "" {
		cost += keyCost
	}
	key := Key{Tenant: r.Tenant, Session: r.SessionID}
	wait := c.take(ctx, key, cost)
	if wait == 0 {
		stored, created, err := c.CallStore.CreateCall(ctx, r)
		if !created {
			c.giveBack(key, cost)
		}
		return stored, created, err
	}
	if r.IdempotencyKey != "" {
		if stored, err := c.CallByKey(ctx, r.Tenant, r.IdempotencyKey); !IsCallNotFound(err) {
			return stored, false, err
		}
	}
	e := Errorf(CodeRateLimited, "Too much is kept of calls already: %d bytes of records and outputs of a tenant over %v, and "+
		"an eighth of them of one session. Retry later, or raise FARHAND_CALL_BYTES.", c.tenant.Bytes, c.tenant.Over)
	e.RetryAfter = wait
	return Record{}, false, e.With(DispatchedNo)
}

// MoveCall implements CallStore. The budget is only charged for an answer that the record takes.
func (c *callBudget) MoveCall(ctx context.Context, tenant, callID string, e Event, change Change) (Moved, error) {
	if change.Result == nil {
		return c.CallStore.MoveCall(ctx, tenant, callID, e, change)
	}
	e, change, err := c.amending.amend(ctx, c.CallStore, tenant, callID, e, change) // all of it, before it is cut
	if err != nil {
		return Moved{}, err
	}
	key := Key{Tenant: tenant, Session: change.Session.Session}
	kept, cost := c.fit(ctx, key, change.Result)
	change.Result = kept
	moved, err := c.CallStore.MoveCall(ctx, tenant, callID, e, change)
	if err != nil || !moved.Applied {
		c.giveBack(key, cost)
	}
	return moved, err
}

func (c *callBudget) giveBack(key Key, n int64) {
	if n == 0 {
		return
	}
	if key.Session != "" {
		c.allow.giveBack(key.Tenant, sessionCalls(key.Session), n, Budget{Bytes: c.tenant.Bytes / sessionShare, Over: c.tenant.Over})
	}
	c.allow.giveBack(key.Tenant, tenantCalls, n, c.tenant)
}

// fit returns what is kept of a result, and what was taken off the budgets for that.
func (c *callBudget) fit(ctx context.Context, key Key, r *Result) (*Result, int64) {
	r = r.compact()
	kept, size := r, r.keptSize()
	if size > maxKeptOutput {
		kept = r.cut((maxKeptOutput-cutOutput)/6, "one call may keep no more") // an escaped character takes up to six bytes
		size = kept.keptSize()
	}
	switch {
	case size <= cutOutput:
		return kept, 0
	case c.take(ctx, key, size) > 0:
		return r.cut(cutOutput, "the outputs of this tenant or session use up what FARHAND_CALL_BYTES allows"), 0
	default:
		return kept, size
	}
}

// KeepCalls implements CallStore.
func (c *callBudget) KeepCalls(ctx context.Context, records []Record) error {
	kept, left := make([]Record, 0, len(records)), 0
	for _, r := range records {
		key := Key{Tenant: r.Tenant, Session: r.SessionID}
		if c.take(ctx, key, recordCost) > 0 && !(r.kept && r.State.Final()) { // the store has it already, as one that runs
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
func (c *callBudget) AppendCallEvents(ctx context.Context, events []CallEvent) error {
	kept := make([]CallEvent, 0, len(events))
	for _, e := range events {
		if e.Type != CallEventTruncated && c.take(ctx, Key{Tenant: e.Tenant, Session: e.session}, e.keptSize()) > 0 {
			continue
		}
		kept = append(kept, e)
	}
	if len(kept) == 0 {
		return nil
	}
	return c.CallStore.AppendCallEvents(ctx, kept)
}

// keptSize is about how many bytes a store takes for the event.
func (e *CallEvent) keptSize() int64 {
	const overhead = 200
	return overhead + jsonSize(e.Message) + jsonSize(e.Chunk)
}

// keptSize is about how many bytes a store takes for the result. Text that is that of its structured output takes none.
func (r *Result) keptSize() int64 {
	size := int64(len(r.Structured)) + jsonSize(r.Error)
	if r.Output != string(r.Structured) {
		size += jsonSize(r.Output)
	}
	return size
}

// compactFrom is how long structured output must be to be kept without the space in it that means nothing.
const compactFrom = 64 << 10

// compact returns the result as it is kept: long structured output without space, and so only once.
func (r *Result) compact() *Result {
	if len(r.Structured) < compactFrom {
		return r
	}
	var b bytes.Buffer
	if json.Compact(&b, r.Structured) != nil { // only the device's own JSON can be unfit, and who reads it finds out
		return r
	}
	kept := *r
	kept.Structured = b.Bytes()
	if r.Output == string(r.Structured) { // else a hook has changed it
		kept.Output = b.String()
	}
	return &kept
}

// cut returns the beginning of a result, which says that it is not all.
func (r *Result) cut(limit int, reason string) *Result {
	kept := *r
	if len(r.Output) > limit || r.Structured != nil {
		kept.Output = fmt.Sprintf("%s\n[%d bytes of output were not kept: %s]", cutText(r.Output, limit), len(r.Output), reason)
	}
	kept.Error, kept.Structured = cutText(r.Error, min(limit, maxToldError)), nil
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
