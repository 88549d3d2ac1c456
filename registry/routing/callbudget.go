package routing

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

// Defaults of the limits on the call data that a pod stores.
const (
	DefaultCallBytes = 512 << 20 // bytes of all calls of a tenant
	DefaultCallLog   = 1 << 20   // bytes of the log of one call
)

const (
	// MaxCallLog is the largest configurable limit of a call's log, and maxKeptOutput that of its stored output, in
	// bytes. Longer output is truncated. With the overhead of Redis, one call adds at most 8 MB to the store.
	MaxCallLog    = 3 << 20
	maxKeptOutput = 4_500_000

	recordCost  = 6000 // approximate bytes of a record with an empty log, for which Redis reserves 4 KiB
	keyCost     = 300  // approximate bytes of an idempotency key
	shortOutput = 512  // bytes of an output that are stored beyond the budget; recordCost includes them
)

// callBudget is a CallStore that limits the stored calls of a tenant, and of one session, to their budgets. A budget
// counts the bytes added during one retention time. When it is spent, a call that must have a record is rejected before
// it runs. The output of a call that ran is truncated, with a note. The record of a light call is not stored.
type callBudget struct {
	registry.CallStore
	sharedBudget
	amending atomic.Pointer[amending] // nil: results are stored as they are
	sessions func(registry.Key) *LocalSession
	log      *slog.Logger
}

func newCallBudget(cfg PodConfig, r *reservations) *callBudget {
	tenant := registry.Budget{Bytes: cfg.CallBytes, Over: cfg.Retention}
	return &callBudget{CallStore: cfg.Store, sharedBudget: sharedBudget{r, "calls", tenant, sessionShare}, log: cfg.Log}
}

// accountsFor returns what a call spends from: as accountsOf, if the session is on this pod, and the share of the
// caller's user; empty: it has none.
func (c *callBudget) accountsFor(key registry.Key, caller string) []account {
	s := registry.Session{Key: key}
	if c.sessions != nil {
		if l := c.sessions(key); l != nil {
			s = l.owner()
		}
	}
	all := c.accountsOf(&s)
	if caller != "" && caller != s.UserID {
		all = append(all, c.shareOfUser(key.Tenant, caller))
	}
	return all
}

// logSpent returns how long a budget that the log of a user's call to a session spends from is known to stay empty.
// Zero means that all may have bytes.
func (c *callBudget) logSpent(of registry.Key, user string) time.Duration {
	wait := c.spent(of.Tenant, of.Session)
	if user != "" {
		wait = max(wait, c.reserved.spent(c.shareOfUser(of.Tenant, user)))
	}
	return wait
}

// CreateCall implements CallStore. A repeated request gets the record of its call even if the budget allows no new
// records.
func (c *callBudget) CreateCall(ctx context.Context, r registry.Record) (registry.Record, bool, error) {
	cost := int64(recordCost)
	if r.IdempotencyKey != "" {
		cost += keyCost
	}
	from := c.accountsFor(registry.Key{Tenant: r.Tenant, Session: r.SessionID}, r.UserID)
	wait := c.spendAll(ctx, from, cost)
	if wait == 0 {
		stored, created, err := c.CallStore.CreateCall(ctx, r)
		if !created {
			c.giveAllBack(from, cost)
		}
		return stored, created, err
	}
	if r.IdempotencyKey != "" {
		if stored, err := c.CallByKey(ctx, r.Tenant, r.IdempotencyKey); !registry.IsCallNotFound(err) {
			return stored, false, err
		}
	}
	return registry.Record{}, false, registry.Errorf(registry.CodeRateLimited,
		"Too much call data is stored: a tenant may add %d bytes of records and outputs per %v, one session or "+
			"device an eighth of that, and one user half. Retry later, or raise FARHAND_CALL_BYTES.",
		c.tenant.Bytes, c.tenant.Over).RetryIn(wait).With(registry.DispatchedNo)
}

// MoveCall implements CallStore. An answer is charged to the budgets only if the record takes it.
func (c *callBudget) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Moved, error) {
	if change.Result == nil {
		return c.CallStore.MoveCall(ctx, tenant, callID, e, change)
	}
	// Amend the whole result, before it is truncated.
	amended := change.Amended
	e, change, err := c.amend(ctx, tenant, callID, e, change)
	if err != nil {
		return registry.Moved{}, err
	}
	if change.Amended && !amended { // amending may have used up the time
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), taskTimeout)
		defer cancel()
	}
	key := registry.Key{Tenant: tenant, Session: change.Session.Session}
	from := c.accountsFor(key, "")
	kept, cost := c.fit(ctx, from, change.Result)
	change.Result = kept
	moved, err := c.CallStore.MoveCall(ctx, tenant, callID, e, change)
	if err != nil || !moved.Applied {
		c.giveAllBack(from, cost)
		return moved, err
	}
	// Only the record of a late answer says who called, so all are charged here. A user who has overdrawn makes no
	// further calls with a record.
	if user := moved.Record.UserID; user != "" {
		if share := c.shareOfUser(tenant, user); cost > 0 && !slices.Contains(from, share) {
			c.reserved.overdraw(ctx, share, cost)
		}
	}
	return moved, nil
}

// amendTimeout limits all amending of one result. Hooks withhold or leave alone what they have not checked by then.
const amendTimeout = 10 * time.Second

// amending amends results before they are stored.
type amending struct {
	amend registry.Amend
	of    func(tool string) bool // whether the results of a tool are amended
}

func (c *callBudget) amends(tool string) bool {
	a := c.amending.Load()
	return a != nil && a.of(tool)
}

// amend returns the event and the change with the amended result.
func (c *callBudget) amend(
	ctx context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Event, registry.Change, error) {
	a := c.amending.Load()
	if a == nil || change.Amended {
		return e, change, nil
	}
	rec, err := c.ReadCall(ctx, tenant, callID)
	if err != nil || !a.of(rec.Tool) {
		return e, change, err
	}
	if rec.SessionID == "" {
		rec.SessionID = change.Session.Session
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), amendTimeout)
	defer cancel()
	res := a.amend(ctx, rec, *change.Result)
	change.Result, change.Amended = &res, true
	return registry.EndEvent(res, nil), change, nil
}

// fit returns the part of a result to store, and how many bytes were spent from accounts for it.
func (c *callBudget) fit(ctx context.Context, from []account, r *registry.Result) (*registry.Result, int64) {
	r = compact(r)
	kept, size := r, resultSize(r)
	if size > maxKeptOutput {
		const escaped = 6 // most bytes that JSON takes for one byte
		kept = truncate(r, (maxKeptOutput-shortOutput)/escaped, "this is the limit for one call")
		size = resultSize(kept)
	}
	switch {
	case size <= shortOutput:
		return kept, 0
	case c.spendAll(ctx, from, size) > 0:
		return truncate(r, shortOutput,
			"this tenant, session, device or user has used up FARHAND_CALL_BYTES"), 0
	default:
		return kept, size
	}
}

// KeepCalls implements CallStore.
func (c *callBudget) KeepCalls(ctx context.Context, records []registry.Record) error {
	kept, dropped := make([]registry.Record, 0, len(records)), 0
	for _, r := range records {
		from := c.accountsFor(registry.Key{Tenant: r.Tenant, Session: r.SessionID}, r.UserID)
		stored := r.Stored && r.State.Final() // already in the store, as a running call
		if c.spendAll(ctx, from, recordCost) > 0 && !stored {
			dropped++ // the feed still has the end of the call
			continue
		}
		if r.Result != nil {
			r.Result, _ = c.fit(ctx, from, r.Result)
		}
		kept = append(kept, r)
	}
	if dropped > 0 {
		c.log.Warn("records of light calls not stored: FARHAND_CALL_BYTES is used up", "records", dropped)
	}
	if len(kept) == 0 {
		return nil
	}
	return c.unlessFull("records of light calls", c.CallStore.KeepCalls(ctx, kept))
}

// AppendCallEvents implements CallStore. Events beyond the budget are dropped. A client that follows the call still
// gets its end, even if the log does not contain it.
func (c *callBudget) AppendCallEvents(ctx context.Context, events []registry.CallEvent) error {
	kept := make([]registry.CallEvent, 0, len(events))
	for _, e := range events {
		from := c.accountsFor(registry.Key{Tenant: e.Tenant, Session: e.Session}, e.UserID)
		if e.Type != registry.CallEventTruncated && c.spendAll(ctx, from, eventSize(&e)) > 0 {
			continue
		}
		kept = append(kept, e)
	}
	if len(kept) == 0 {
		return nil
	}
	return c.unlessFull("events of calls", c.CallStore.AppendCallEvents(ctx, kept))
}

// unlessFull returns err unless it only says that there was no room for some lines. Those are dropped: a retry would
// also find no room, and would charge the others again.
func (c *callBudget) unlessFull(what string, err error) error {
	if !registry.IsStoreFull(err) {
		return err
	}
	c.log.Warn("the store is full: dropped some "+what, "error", err)
	return nil
}

// eventSize returns the approximate size of the event in a store, in bytes.
func eventSize(e *registry.CallEvent) int64 {
	const overhead = 200
	return overhead + jsonSize(e.Message) + jsonSize(e.Chunk)
}

// resultSize returns the approximate size of the result in a store, in bytes. An output equal to the structured output
// takes none.
func resultSize(r *registry.Result) int64 {
	size := int64(r.Structured.Len()) + jsonSize(r.Error)
	if r.Output != r.Structured.String() {
		size += jsonSize(r.Output)
	}
	size += int64(registry.PartsSize(r.Parts)) + registry.InlineSize(r.Parts)/3 // base64
	return size + int64(registry.ViolationsSize(r.Violations))
}

// compactFrom is the size in bytes from which structured output is stored without insignificant white space.
const compactFrom = 64 << 10

// compact removes insignificant white space from long structured output. It also compacts the output text, so that the
// two stay equal and are stored once.
func compact(r *registry.Result) *registry.Result {
	if r.Structured.Len() < compactFrom {
		return r
	}
	kept := *r
	kept.Structured = r.Structured.Compact()
	if r.Output == r.Structured.String() { // it differs if a hook has changed it
		kept.Output = kept.Structured.String()
	}
	return &kept
}

// truncate returns the first limit bytes of a result, with a line that says how much is missing, and why. The parts
// lose their data.
func truncate(r *registry.Result, limit int, reason string) *registry.Result {
	kept := *r
	if len(r.Output) > limit || !r.Structured.IsZero() {
		kept.Output = fmt.Sprintf("%s\n[%d bytes of output were not stored: %s]",
			registry.TruncateText(r.Output, limit), len(r.Output), reason)
	}
	kept.Error, kept.Structured = registry.TruncateText(r.Error, min(limit, registry.MaxErrorText)), registry.JSON{}
	kept.Parts = registry.WithoutData(r.Parts)
	return &kept
}

// jsonSize returns the approximate size of a text as JSON, in bytes. An escaped character takes up to six.
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
