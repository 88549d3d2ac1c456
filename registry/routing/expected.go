package routing

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// expect retries a failed choice, whose error is missing, if the query's target is expected shortly: a device that
// moves to another pod is briefly away, and has no tools until it has registered them. The result is a choice that
// again would also have found without the move. expect waits for at most registry.ReturnWait, and no longer than ctx.
// If the device is still away after that, the error is CodeNotConnected.
func (r *Router) expect(
	ctx context.Context, q registry.Query, sel registry.Select, missing error,
	again func(ctx context.Context) (choice, error),
) (choice, error) {
	if !isMissing(missing) {
		return choice{}, missing
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	q.Limit = maxCandidates
	due, err := r.store.Awaited(ctx, q)
	switch {
	case err != nil:
		return choice{}, err
	case len(due) == 0: // unless it has come between the two looks
		return again(ctx)
	}
	w := returnWait{router: r, query: q, sel: sel, again: again, due: due, until: time.Now().Add(registry.ReturnWait)}
	done := r.returns.wait(ctx, q.Tenant, q.Viewer, func() time.Duration { return w.look(ctx) })
	if done && w.err == nil {
		r.counts.add(&r.counts.ReturnsCame, 1)
		return w.found, nil
	}
	r.counts.add(&r.counts.ReturnsMissed, 1)
	switch {
	case errors.Is(causeOf(ctx), registry.ErrDraining):
		return choice{}, registry.Errorf(registry.CodeDraining, "The gateway stopped before the device was back.").
			RetryIn(time.Second).With(registry.DispatchedNo)
	case errors.Is(ctx.Err(), context.Canceled): // maybe in the middle of a look
		return choice{}, callCancelled(registry.DispatchedNo)
	case !done, isOver(ctx): // the time was up in the middle of a look: the store is not to blame
		return choice{}, registry.NotConnected()
	}
	return w.found, w.err
}

// returnWait is a call that waits for a device.
type returnWait struct {
	router *Router
	query  registry.Query
	sel    registry.Select
	again  func(ctx context.Context) (choice, error)
	due    []registry.Awaited // still worth waiting for, as last seen
	asked  bool               // look has run before
	away   bool               // a dropped one had no connection when last seen
	until  time.Time

	found choice
	err   error
}

// look tries once. It returns how long waiting is still useful. Zero: the wait has ended, and found and err have the
// result.
func (w *returnWait) look(ctx context.Context) time.Duration {
	if w.found, w.err = w.again(ctx); w.err == nil || !isMissing(w.err) {
		return 0
	}
	if len(w.due) > 1 && w.sel == registry.SelectNone && w.query.SessionID == "" {
		w.err = ambiguousReturn(w.query.Tool, w.due) // as it was before they left, and will be
		return 0
	}
	if w.asked {
		if err := w.follow(ctx); err != nil {
			w.err = err
			return 0
		}
	}
	w.asked = true
	left := time.Until(w.until)
	if len(w.due) > 0 && left > 0 {
		return min(left, w.due[0].Left)
	}
	if w.away || slices.ContainsFunc(w.due, registry.Awaited.Away) {
		w.err = registry.NotConnected()
	}
	return 0
}

// follow drops sessions that no longer need waiting for, until it finds one that does. It queries by session id: the
// full query costs more the more devices move, and a waiting call queries often.
func (w *returnWait) follow(ctx context.Context) error {
	for len(w.due) > 0 {
		q := w.query
		q.SessionID = w.due[0].Session.Key.Session
		due, err := w.router.store.Awaited(ctx, q)
		if err != nil {
			return err
		}
		if len(due) > 0 {
			w.due[0] = due[0]
			return nil
		}
		w.away = w.away || w.due[0].Away()
		w.due = w.due[1:]
	}
	return nil
}

func ambiguousReturn(tool string, due []registry.Awaited) *registry.Error {
	entries := make([]registry.Entry, len(due))
	for i := range due {
		entries[i].Session = due[i].Session
	}
	return ambiguous(tool, entries)
}

// awaitMove waits until the store no longer lists a session where a call has just not found it: the pod has died, or is
// about to release the session. It returns StaleRoute, so that the call is decided again, or NotConnected.
func (r *Router) awaitMove(ctx context.Context, tried registry.Route) error {
	until, verdict := time.Now().Add(registry.ReturnWait), registry.NotConnected()
	r.returns.wait(ctx, tried.Session.Tenant, tried.Target.Viewer, func() time.Duration {
		entry, err := r.store.Entry(ctx, tried.Session.Key)
		switch {
		case err == nil && isClaim(&entry.Session, &tried.Session):
			return time.Until(until)
		case err == nil:
			verdict = registry.StaleRoute()
		default:
			verdict = r.awayNow(ctx, tried, entry.Session, err)
		}
		return 0
	})
	return verdict
}

// awayNow returns the error of a call whose session the store no longer lists; why is the store's error. It returns
// StaleRoute if the device is expected back: the new decision waits for it.
func (r *Router) awayNow(ctx context.Context, tried registry.Route, s registry.Session, why error) *registry.Error {
	why = hidden(tried.Target, s, why)
	if !errors.Is(why, registry.CodeNotConnected) {
		return registry.AsError(why).With(registry.DispatchedNo)
	}
	q := registry.Query{Tenant: tried.Session.Tenant, Target: tried.Target, Tool: tried.Spec.Name, Limit: 1}
	q.SessionID = tried.Session.Key.Session
	due, err := r.store.Awaited(ctx, q)
	switch {
	case err != nil:
		return registry.AsError(err).With(registry.DispatchedNo)
	case len(due) > 0:
		return registry.StaleRoute()
	default:
		return registry.NotConnected()
	}
}

// isClaim reports whether two sessions are the same claim.
func isClaim(a, b *registry.Session) bool { return a.Pod == b.Pod && a.Generation == b.Generation }

// seenLimit is how many calls are remembered at least.
const seenLimit = 1 << 15

// seenCalls remembers recent calls, so that a message delivered twice (such as one that a client library re-sent after
// a lost reply) reaches the device once. It is safe for concurrent use.
type seenCalls struct {
	seeds [2]maphash.Seed
	calls *cache.Cache[seenCall, struct{}]
}

// seenCall is one attempt of a call to one claim of a session. Its id is stored as a hash of 128 bits under secret
// seeds, because every garbage collection would scan tens of thousands of strings.
type seenCall struct {
	id         [2]uint64
	attempt    int64
	generation int64
}

func newSeenCalls() *seenCalls {
	return &seenCalls{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		calls: cache.New[seenCall, struct{}](seenLimit, 0),
	}
}

// has reports whether the call is remembered.
func (s *seenCalls) has(id string, generation int64) bool {
	return s.calls.Has(s.key(id, 0, generation))
}

// add remembers an attempt of a call. It reports whether the attempt is new to that generation.
func (s *seenCalls) add(id string, attempt, generation int64) bool {
	_, known := s.calls.GetOrPut(s.key(id, attempt, generation), struct{}{}, 1)
	return !known
}

func (s *seenCalls) key(id string, attempt, generation int64) seenCall {
	return seenCall{[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}, attempt, generation}
}
