package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// detachedCalls are calls in flight whose device lost its connection but can resume: it keeps its results and sends
// them after it has reconnected. Calls without an answer within registry.ResumeWait fail. The zero value is ready to
// use.
type detachedCalls struct {
	mu        sync.Mutex
	bySession map[registry.Key]map[string]*inFlightCall // a session's calls by id; never empty
}

func (o *detachedCalls) add(f *inFlightCall) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bySession == nil {
		o.bySession = make(map[registry.Key]map[string]*inFlightCall)
	}
	calls := o.bySession[f.key]
	if calls == nil {
		calls = make(map[string]*inFlightCall)
		o.bySession[f.key] = calls
	}
	calls[f.callID] = f
	f.resume = time.AfterFunc(registry.ResumeWait, func() {
		if o.remove(f) {
			f.loseConnection()
		}
	})
}

// take removes and returns the session's call with that id. It returns nil if there is none, or if a device with these
// proofs may not answer it. note is as in LocalSession.takeCall.
func (o *detachedCalls) take(
	key registry.Key, callID string, proofs []string, note func(*inFlightCall),
) *inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.bySession[key][callID]
	if f == nil || !registry.MayAnswer(f.proof, proofs) {
		return nil
	}
	o.deleteLocked(f)
	f.resume.Stop()
	if note != nil {
		note(f)
	}
	return f
}

func (o *detachedCalls) has(key registry.Key, callID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bySession[key][callID] != nil
}

// waits reports whether the session has a detached call that a device with these proofs may answer.
func (o *detachedCalls) waits(key registry.Key, proofs []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.bySession[key] {
		if registry.MayAnswer(f.proof, proofs) {
			return true
		}
	}
	return false
}

// remove removes this in-flight call, but not another one with the same id. It reports whether the call was there.
func (o *detachedCalls) remove(f *inFlightCall) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bySession[f.key][f.callID] != f {
		return false
	}
	o.deleteLocked(f)
	f.resume.Stop()
	return true
}

// deleteLocked deletes a call that is there. The caller has the lock.
func (o *detachedCalls) deleteLocked(f *inFlightCall) {
	calls := o.bySession[f.key]
	delete(calls, f.callID)
	if len(calls) == 0 {
		delete(o.bySession, f.key)
	}
}

func (o *detachedCalls) len() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, calls := range o.bySession {
		n += len(calls)
	}
	return n
}

// takeAll removes and returns the session's calls that a device with these proofs may answer, because the device has
// reconnected to this pod. It reads only this session's calls: all devices may reconnect at once.
func (o *detachedCalls) takeAll(key registry.Key, proofs []string) []*inFlightCall {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []*inFlightCall
	for _, f := range o.bySession[key] {
		if registry.MayAnswer(f.proof, proofs) && f.resume.Stop() {
			o.deleteLocked(f)
			found = append(found, f)
		}
	}
	return found
}

// fail ends all detached calls, because the pod is closing.
func (o *detachedCalls) fail() {
	o.mu.Lock()
	all := o.bySession
	o.bySession = nil
	o.mu.Unlock()
	for _, calls := range all {
		for _, f := range calls {
			f.resume.Stop()
			f.loseConnection()
		}
	}
}

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
	places  *share.Pool // semaphore of waiting calls

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
		places: share.New(share.Bounds{Pod: maxReturns, Tenant: maxTenantReturns, Identity: maxUserReturns}),
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
	place, err := r.places.Try(share.Owner{Tenant: tenant, Identity: user}, 1)
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
		place.Release()
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

// hasCode reports whether the code of an error is one of codes.
func hasCode(err error, codes ...registry.Code) bool {
	return slices.Contains(codes, registry.AsError(err).Code)
}
