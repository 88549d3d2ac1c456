package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
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

const (
	maxReturns       = 2048 // calls of a pod that wait for devices to reconnect
	maxTenantReturns = 512
	maxUserReturns   = 128 // callers without a user have the tenant's limit

	returnTick = 50 * time.Millisecond // between two checks for changed sessions of a tenant whose calls wait

	// maxReturnPause limits the pause between two looks of one call, beyond the first tick. The pause grows because a
	// fleet that moves changes all the time.
	maxReturnPause = 400 * time.Millisecond
)

// returns lets calls wait for devices that are expected back. While calls of a tenant wait, one goroutine watches the
// version of its sessions. It is safe for concurrent use.
type returns struct {
	version func(ctx context.Context, tenant string) (string, error)
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	loops   sync.WaitGroup
	slots   *share.Pool // semaphore of waiting calls

	mu      sync.Mutex
	tenants map[string]*tenantReturns
}

// tenantReturns are the waiting calls of one tenant. The fields are guarded by returns.mu.
type tenantReturns struct {
	waiting int
	changed chan struct{} // closed and replaced when sessions have changed
	cancel  context.CancelFunc
}

func newReturns(version func(ctx context.Context, tenant string) (string, error)) *returns {
	ctx, cancel := context.WithCancel(context.Background())
	return &returns{
		version: version, ctx: ctx, cancel: cancel, tenants: make(map[string]*tenantReturns),
		slots: share.New(share.Bounds{Pod: maxReturns, Tenant: maxTenantReturns, Identity: maxUserReturns}),
	}
}

// close ends all waits and their watchers.
func (r *returns) close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.loops.Wait()
}

// wait calls look immediately. look returns how long to wait until the next look; zero ends the wait. A change of the
// tenant's sessions also leads to the next look. wait returns false if ctx has ended, the pod closes, or the pod, the
// tenant or the user is at the limit of waiting calls.
func (r *returns) wait(ctx context.Context, tenant, user string, look func() (left time.Duration)) bool {
	t, leave := r.enter(tenant, user)
	if t == nil {
		return false
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	for spacing := returnTick; ; spacing = min(2*spacing, maxReturnPause) {
		r.mu.Lock()
		changed := t.changed
		r.mu.Unlock()
		left := look()
		if left <= 0 {
			return true
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-ctx.Done():
		}
		_ = pause.For(ctx, min(spacing, left)-returnTick)
		if ctx.Err() != nil {
			return false
		}
	}
}

// enter counts a waiting call until leave is called. It returns nil at a limit.
func (r *returns) enter(tenant, user string) (t *tenantReturns, leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, nil
	}
	slot, err := r.slots.Try(share.Owner{Tenant: tenant, Identity: user}, 1)
	if err != nil {
		return nil, nil
	}
	if t = r.tenants[tenant]; t == nil {
		ctx, cancel := context.WithCancel(r.ctx)
		t = &tenantReturns{changed: make(chan struct{}), cancel: cancel}
		r.tenants[tenant] = t
		r.loops.Go(func() { r.watch(ctx, tenant, t) })
	}
	t.waiting++
	return t, func() {
		slot.Release()
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			t.cancel()
			delete(r.tenants, tenant)
		}
	}
}

// watch notifies waiting calls when sessions of the tenant change. Store errors are ignored.
func (r *returns) watch(ctx context.Context, tenant string, t *tenantReturns) {
	seen := ""
	for pause.For(ctx, returnTick) == nil { // the first look wakes all: none misses a change since its own look
		asked, cancel := context.WithTimeout(ctx, storeTimeout)
		version, err := r.version(asked, tenant)
		cancel()
		if err == nil && version != seen {
			seen = version
			r.mu.Lock()
			close(t.changed)
			t.changed = make(chan struct{})
			r.mu.Unlock()
		}
	}
}

// isMissing reports whether err says that the session, or its tool, is not there.
func isMissing(err error) bool {
	return hasCode(err, registry.CodeToolNotFound, registry.CodeSessionNotFound, registry.CodeNotConnected)
}
