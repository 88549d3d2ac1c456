package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

const (
	maxTakeovers = 8 // how often an idempotency key may change hands while one call tries to take it
	undoTimeout  = time.Second
)

// CreateCall implements registry.CallStore.
func (s *Store) CreateCall(ctx context.Context, r registry.Record) (registry.Record, bool, error) {
	stored, created, err := s.writeCall(ctx, r)
	if err != nil || !created || r.IdempotencyKey == "" {
		return stored, created, redisconn.Unavailable("create call", err)
	}
	winner, err := s.holdKey(ctx, stored)
	if err != nil || winner.CallID != stored.CallID {
		s.undoCall(ctx, stored)
		return winner, false, redisconn.Unavailable("take idempotency key", err)
	}
	return stored, true, nil
}

// writeCall writes the record of a new call. If a record with this id exists, it returns that record, and created is
// false.
func (s *Store) writeCall(ctx context.Context, r registry.Record) (stored registry.Record, created bool, err error) {
	r.Dispatched, r.Late, r.Result, r.Err = registry.DispatchedNo, false, nil, nil
	constant, err := constantJSON(r)
	if err != nil {
		return registry.Record{}, false, err
	}
	event, err := stateEvent(r.Tenant, r.CallID, registry.StateAccepted)
	if err != nil {
		return registry.Record{}, false, err
	}
	args := append([]any{s.retention, r.HoldMS + r.TimeoutMS, string(registry.StateAccepted)}, event...)
	args = append(args, fieldRest, constant, fieldDispatched, string(r.Dispatched), fieldHeld, flag(r.HoldMS > 0))
	c, err := s.conn.Eval(ctx, scriptCallCreate, callKeys(r.Tenant, r.CallID), append(args, identityFields(r)...)...)
	if err != nil {
		return registry.Record{}, false, err
	}
	answer := c.List()
	if len(answer) != 2 {
		return registry.Record{}, false, c.ErrShape()
	}
	stored, err = parseRecord(redisconn.Map(answer[1]))
	return stored, redisconn.Int(answer[0]) == 1, err
}

// holdKey takes the idempotency key of a call whose record has been written. It returns the record of the call that
// then holds the key.
func (s *Store) holdKey(ctx context.Context, own registry.Record) (registry.Record, error) {
	key := idemKey(own.Tenant, own.IdempotencyKey)
	life := s.keyLife(own)
	c, err := s.conn.Do(ctx, "SET", key, own.CallID, "NX", "GET", "PX", life)
	for range maxTakeovers {
		if err != nil {
			return registry.Record{}, err
		}
		holder, taken := c.Text()
		if !taken || holder == own.CallID {
			return own, nil
		}
		winner, failed := s.ReadCall(ctx, own.Tenant, holder)
		if failed != nil && !registry.IsCallNotFound(failed) || failed == nil && !winner.NeverRan() {
			return winner, failed
		}
		// Keys outlive records. If the record has expired, the outcome of its call is unknown, so the key is free. The
		// key is also free if its call certainly never ran, because its caller should then call again.
		c, err = s.conn.Eval(ctx, scriptSetIf, []string{key}, holder, own.CallID, life)
	}
	return registry.Record{}, errors.New("the idempotency key changes hands too often")
}

// keyLife returns the TTL of the key of a call, in ms: IdempotencyTTL, but not longer than the record can exist. The
// record of a call that is answered at the last moment lives for two retention times after its deadline.
func (s *Store) keyLife(r registry.Record) int64 {
	return min(s.idemTTL, r.HoldMS+r.TimeoutMS+2*s.retention+time.Minute.Milliseconds())
}

// CallByKey implements registry.CallStore.
func (s *Store) CallByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	c, err := s.conn.Do(ctx, "GET", idemKey(tenant, key))
	if err != nil {
		return registry.Record{}, redisconn.Unavailable("read idempotency key", err)
	}
	holder, taken := c.Text()
	if !taken {
		return registry.Record{}, registry.ErrNoCall
	}
	r, err := s.ReadCall(ctx, tenant, holder)
	if err == nil && r.NeverRan() {
		return registry.Record{}, registry.ErrNoCall
	}
	return r, err
}

// BeginCall implements registry.CallStore.
func (s *Store) BeginCall(
	ctx context.Context, tenant, callID, pod string, timeout time.Duration,
) (registry.Record, bool, error) {
	c, err := s.conn.Eval(ctx, scriptCallBegin, callKeys(tenant, callID), s.retention, millis(timeout), pod,
		string(registry.StateAccepted))
	if err != nil {
		return registry.Record{}, false, redisconn.Unavailable("begin call", err)
	}
	answer, found, err := c.Parts(2)
	switch {
	case err != nil:
		return registry.Record{}, false, redisconn.Unavailable("begin call", err)
	case !found:
		return registry.Record{}, false, registry.ErrNoCall
	}
	r, err := parseRecord(redisconn.Map(answer[1]))
	return r, redisconn.Int(answer[0]) == 1, redisconn.Unavailable("begin call", err)
}

// undoCall removes what was written for a call that will not run. It does nothing if the caller's deadline has passed,
// because the caller must not wait longer. A record that stays expires by itself.
func (s *Store) undoCall(ctx context.Context, r registry.Record) {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	pipe := s.conn.Pipeline()
	// The key may belong to this call although taking it failed.
	pipe.Eval(scriptDelIf, []string{idemKey(r.Tenant, r.IdempotencyKey)}, r.CallID)
	pipe.Do("UNLINK", callKey(r.Tenant, r.CallID))
	if err := pipe.Exec(ctx); err != nil {
		s.log.Debug("record of a call that will not run not removed", "call", r.CallID, "error", err)
	}
}

// MoveCall implements registry.CallStore.
func (s *Store) MoveCall(
	ctx context.Context, tenant, callID string, e registry.Event, change registry.Change,
) (registry.Moved, error) {
	session, proofs, answer := "", "", e == registry.EventSucceed || e == registry.EventFail
	if answer && !change.Here {
		if session = change.Session.Session; session == "" || change.Session.Tenant != tenant {
			return registry.Moved{}, registry.ErrNoCall
		}
		if change.Proofs != nil {
			proofs = " " + strings.Join(change.Proofs, " ") + " "
		}
	}
	table, fields, err := moves(e, change)
	if err != nil {
		return registry.Moved{}, registry.AsError(err)
	}
	state := registry.State(table[1].(string)) // an event leads to one state, from whichever state it starts
	event, err := stateEvent(tenant, callID, state)
	if err != nil {
		return registry.Moved{}, registry.AsError(err)
	}
	answers := flag(answer)
	if change.Told && change.Result == nil {
		answers = " " + string(registry.StateSucceeded) + " " + string(registry.StateFailed) + " "
	}
	args := append([]any{s.retention, session, proofs, answers}, event...)
	args = append(append(args, len(table)), table...)
	c, err := s.conn.Eval(ctx, scriptCallMove, callKeys(tenant, callID), append(args, fields...)...)
	if err != nil {
		return registry.Moved{}, redisconn.Unavailable("move call", err)
	}
	said, found, err := c.Parts(2)
	switch {
	case err != nil:
		return registry.Moved{}, redisconn.Unavailable("move call", err)
	case !found:
		return registry.Moved{}, registry.ErrNoCall
	}
	hash := redisconn.Map(said[1])
	moved := registry.Moved{Applied: redisconn.Int(said[0]) == 1}
	if moved.Record, err = parseRecord(hash); err != nil {
		return registry.Moved{}, redisconn.Unavailable("move call", err)
	}
	if moved.Applied && moved.Record.State.Final() {
		moved.Watchers = parseWatchers(hash)
	}
	return moved, nil
}

// ReadCall implements registry.CallStore.
func (s *Store) ReadCall(ctx context.Context, tenant, callID string) (registry.Record, error) {
	return s.WatchCall(ctx, tenant, callID, "")
}

// maxReads is how many records of one tenant are read at a time. Otherwise hundreds of readers of a megabyte record
// would take all processors and a megabyte each, and delay calls that need no record.
const maxReads = 8

// WatchCall implements registry.CallStore.
func (s *Store) WatchCall(ctx context.Context, tenant, callID, pod string) (registry.Record, error) {
	turn, err := s.reads.Acquire(ctx, share.Owner{Tenant: tenant}, 1)
	if err != nil {
		return registry.Record{}, redisconn.Unavailable("read call", err)
	}
	defer turn.Release()
	args := append([]any{s.retention, registry.OverdueGrace.Milliseconds(), pod}, overdueTable...)
	c, err := s.conn.Eval(ctx, scriptCallRead, callKeys(tenant, callID), args...)
	if err != nil {
		return registry.Record{}, redisconn.Unavailable("read call", err)
	}
	hash := c.Map()
	if len(hash) == 0 {
		return registry.Record{}, registry.ErrNoCall
	}
	r, err := parseRecord(hash)
	return r, redisconn.Unavailable("read call", err)
}

// KeepCalls implements registry.CallStore.
func (s *Store) KeepCalls(ctx context.Context, records []registry.Record) error {
	pipe := s.conn.Pipeline()
	for _, r := range records {
		constant, err := constantJSON(r)
		if err != nil {
			return registry.AsError(err)
		}
		outcome, err := outcomeFields(r)
		if err != nil {
			return registry.AsError(err)
		}
		event, err := stateEvent(r.Tenant, r.CallID, r.State)
		if err != nil {
			return registry.AsError(err)
		}
		identity, ways := identityFields(r), keepings(r.State)
		args := append([]any{s.retention}, event...)
		args = append(args, r.TimeLeft().Milliseconds(), timelineText(r.Timeline), len(ways))
		args = append(append(args, ways...), len(identity))
		args = append(append(args, identity...), progressFields(r)...)
		args = append(append(args, outcome...), fieldRest, constant)
		pipe.Eval(scriptCallKeep, callKeys(r.Tenant, r.CallID), args...)
	}
	return redisconn.Unavailable("keep calls", pipe.Exec(ctx))
}

// FreeKey implements registry.CallStore.
func (s *Store) FreeKey(ctx context.Context, tenant, key, callID string) error {
	_, err := s.conn.Eval(ctx, scriptDelIf, []string{idemKey(tenant, key)}, callID)
	return redisconn.Unavailable("free idempotency key", err)
}
