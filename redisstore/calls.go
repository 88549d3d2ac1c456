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

func (s *Store) CreateCall(ctx context.Context, r registry.Record) (registry.Record, bool, error) {
	stored, created, err := s.writeCall(ctx, r)
	if err != nil || !created {
		return stored, created, err
	}
	winner := stored
	if r.IdempotencyKey != "" {
		winner, err = s.holdKey(ctx, stored)
	}
	if err == nil && winner.CallID == stored.CallID {
		err = s.conn.Confirm(ctx, callKey(r.Tenant, r.CallID))
	}
	if err != nil || winner.CallID != stored.CallID {
		s.undoCall(ctx, stored)
		return winner, false, err
	}
	return stored, true, nil
}

// writeCall writes the record of a new call. If a record with this id exists, it returns that record, and created is
// false.
func (s *Store) writeCall(ctx context.Context, r registry.Record) (stored registry.Record, created bool, err error) {
	r.Dispatched, r.Late, r.Result, r.Err = registry.DispatchedNo, false, nil, nil
	state, life := r.FirstState()
	constant, err := constantJSON(r)
	if err != nil {
		return registry.Record{}, false, registry.AsError(err)
	}
	event, err := stateEvent(r.Tenant, r.CallID, state)
	if err != nil {
		return registry.Record{}, false, registry.AsError(err)
	}
	args := append([]any{s.retention, life.Milliseconds(), string(state)}, event...)
	args = append(args, fieldRest, constant, fieldDispatched, string(r.Dispatched), fieldWaits, flag(r.HoldMS > 0))
	args = append(args, identityFields(r)...)
	answer, err := s.conn.Ask(ctx, scriptCallCreate, 2, callKeys(r.Tenant, r.CallID), args...)
	if err != nil {
		return registry.Record{}, false, err
	}
	stored, err = parseRecord(redisconn.Map(answer[1]))
	return stored, redisconn.Int(answer[0]) == 1, err
}

// holdKey takes the idempotency key of a call whose record has been written. It returns the record of the call that
// then holds the key.
func (s *Store) holdKey(ctx context.Context, own registry.Record) (registry.Record, error) {
	key := idemKey(own.Tenant, own.IdempotencyKey)
	// A key need not live longer than the record can exist: the record of a call that is answered at the last moment
	// lives for two retention times after its deadline.
	life := min(millis(s.opts.IdempotencyTTL), own.HoldMS+own.TimeoutMS+2*s.retention+time.Minute.Milliseconds())
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
	return registry.Record{}, registry.StoreUnavailable("create call",
		errors.New("the idempotency key's owner changes too often"))
}

func (s *Store) CallByKey(ctx context.Context, tenant, key string) (registry.Record, error) {
	c, err := s.conn.Do(ctx, "GET", idemKey(tenant, key))
	if err != nil {
		return registry.Record{}, err
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

func (s *Store) BeginCall(
	ctx context.Context, tenant, callID, pod string, timeout time.Duration,
) (registry.Record, bool, error) {
	table, _, err := moves(registry.EventAccept, registry.Change{})
	if err != nil {
		return registry.Record{}, false, registry.AsError(err)
	}
	event, err := stateEvent(tenant, callID, registry.StateAccepted)
	if err != nil {
		return registry.Record{}, false, registry.AsError(err)
	}
	args := append([]any{s.retention, millis(timeout), pod, string(registry.StateAccepted)}, event...)
	c, err := s.conn.Eval(ctx, scriptCallBegin, callKeys(tenant, callID), append(args, table...)...)
	if err != nil {
		return registry.Record{}, false, err
	}
	begun, _, r, err := movedRecord(c)
	return r, begun, err
}

// movedRecord reads the answer of a script that changes a record: whether it did, and the record.
func movedRecord(c *redisconn.Command) (moved bool, hash map[string]string, r registry.Record, err error) {
	answer, found, err := c.Parts(2)
	if err == nil && !found {
		err = registry.ErrNoCall
	}
	if err != nil {
		return false, nil, registry.Record{}, err
	}
	hash = redisconn.Map(answer[1])
	r, err = parseRecord(hash)
	return redisconn.Int(answer[0]) == 1, hash, r, err
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
	if change.Reported && change.Result == nil {
		answers = " " + string(registry.StateSucceeded) + " " + string(registry.StateFailed) + " "
	}
	args := append([]any{s.retention, session, proofs, answers}, event...)
	owner := ""
	if e == registry.EventReturn {
		owner = change.Owner
	}
	args = append(append(args, len(table), owner), table...)
	c, err := s.conn.Eval(ctx, scriptCallMove, callKeys(tenant, callID), append(args, fields...)...)
	if err != nil {
		return registry.Moved{}, err
	}
	applied, hash, r, err := movedRecord(c)
	if err != nil {
		return registry.Moved{}, err
	}
	if err := s.confirmMove(ctx, tenant, callID, e, change.Owner); err != nil {
		return registry.Moved{}, err
	}
	moved := registry.Moved{Applied: applied, Record: r}
	if applied && r.State.Final() {
		moved.Watchers = parseWatchers(hash)
	}
	return moved, nil
}

// confirmMove waits until the replicas have an event after which a call must not run, or not a second time. A call that
// its device must not get yet is given back, so that it can be delivered later, unless after a failover another pod has
// claimed it.
func (s *Store) confirmMove(ctx context.Context, tenant, callID string, e registry.Event, owner string) error {
	switch e {
	case registry.EventDeliver, registry.EventCancel, registry.EventReject, registry.EventExpire:
	default:
		return nil
	}
	err := s.conn.Confirm(ctx, callKey(tenant, callID))
	if err == nil || e != registry.EventDeliver {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	back := registry.Change{Owner: owner}
	if _, failed := s.MoveCall(ctx, tenant, callID, registry.EventReturn, back); failed != nil {
		s.log.Debug("call that its device did not get not given back", "call", callID, "error", failed)
	}
	return err
}

func (s *Store) ReadCall(ctx context.Context, tenant, callID string) (registry.Record, error) {
	return s.WatchCall(ctx, tenant, callID, "")
}

// maxReads is how many records of one tenant are read at a time. Otherwise hundreds of readers of a megabyte record
// would take all processors and a megabyte each, and delay calls that need no record.
const maxReads = 8

func (s *Store) WatchCall(ctx context.Context, tenant, callID, pod string) (registry.Record, error) {
	turn, err := s.reads.Acquire(ctx, share.Owner{Tenant: tenant}, 1)
	if err != nil {
		return registry.Record{}, redisconn.Unavailable("read call", err)
	}
	defer turn.Release()
	args := append([]any{s.retention, registry.OverdueGrace.Milliseconds(), pod}, overdueTable...)
	c, err := s.conn.Eval(ctx, scriptCallRead, callKeys(tenant, callID), args...)
	if err != nil {
		return registry.Record{}, err
	}
	hash := c.Map()
	if len(hash) == 0 {
		return registry.Record{}, registry.ErrNoCall
	}
	return parseRecord(hash)
}

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
	return pipe.ExecEach(ctx)
}

func (s *Store) FreeKey(ctx context.Context, tenant, key, callID string) error {
	_, err := s.conn.Eval(ctx, scriptDelIf, []string{idemKey(tenant, key)}, callID)
	return err
}
