// Package share divides a resource of a pod, slots or bytes, among tenants and their identities, so that none of them
// starves the others.
//
// One rule sets the share of a tenant. It may take a part if then held(tenant) <= free(pool). A single tenant gets half
// of a pool, two tenants get a third each, and a further tenant always finds room. Some pools let a tenant hold several
// times what is free. A tenant that holds nothing may take any free part that fits.
//
// Waiting requests are served fairly: first those of the tenant that holds least, within the tenant those of the
// identity that holds least, and within the identity the oldest. Tenants and identities that hold the same take turns.
// No request passes a waiting request of a tenant that holds nothing.
package share

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

const maxWaiting = 8192 // default of Bounds.Waiting

// Owner is the holder of a part of a pool.
type Owner struct {
	Tenant   string
	Identity string // of the tenant; empty: only the tenant's bounds apply
	Most     int64  // bounds the identity instead of Bounds.Identity; zero: Bounds.Identity
}

// Bounds are the limits of a pool, in its unit.
type Bounds struct {
	Pod      int64 // of all owners together
	Tenant   int64 // upper bound of a tenant's share; zero: none
	Identity int64 // of one identity; zero: a quarter of Pod
	Times    int64 // a tenant's share is this many times what is free; zero: once
	Waiting  int64 // requests that may wait, at most half of them of one tenant; zero: 8192
}

// Turns returns the bounds of a pool for short work: a single tenant may hold n turns, one more is for the others.
func Turns(n int) Bounds {
	return Bounds{Pod: int64(n) + 1, Identity: int64(n), Times: int64(n)}
}

// Bound names the limit that a request met.
type Bound string

// The bounds.
const (
	Pod      Bound = "pod"
	Tenant   Bound = "tenant"
	Identity Bound = "identity"
)

// FullError is the error for a part that is not available.
type FullError struct{ Bound Bound }

func (e *FullError) Error() string {
	return fmt.Sprintf("share: the %s has reached its limit", e.Bound)
}

// AllBounds returns the names of all bounds.
func AllBounds() []Bound { return []Bound{Pod, Tenant, Identity} }

// Stats say how full a pool is, and how many requests it has refused since the start. Refusals include requests that
// waited without success.
type Stats struct {
	Held, Waiting int64
	Refused       map[Bound]int64 // by the bound that was met
}

// AllRefused returns how many requests were refused.
func (s Stats) AllRefused() (n int64) {
	for _, of := range s.Refused {
		n += of
	}
	return n
}

// Plus returns the stats of two pools together.
func (s Stats) Plus(o Stats) Stats {
	sum := Stats{s.Held + o.Held, s.Waiting + o.Waiting, make(map[Bound]int64)}
	for _, bound := range AllBounds() {
		sum.Refused[bound] = s.Refused[bound] + o.Refused[bound]
	}
	return sum
}

// ByTenant returns what each tenant holds.
func (p *Pool) ByTenant() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := make(map[string]int64, len(p.tenants))
	for name, t := range p.tenants {
		if t.held > 0 {
			held[name] = t.held
		}
	}
	return held
}

// Pool is one divided resource. It is safe for concurrent use.
type Pool struct {
	bounds Bounds

	mu      sync.Mutex
	held    int64
	refused map[Bound]int64
	count   int64              // waiting requests
	tenants map[string]*tenant // those that hold something, or wait
	waiting []*tenant          // those that wait; the tenant served last is last
}

// tenant is what a tenant holds, and its waiting requests. Both are by identity.
type tenant struct {
	held    int64
	holds   map[string]int64
	queues  map[string]*queue // none of them is empty
	waiting []*queue          // all queues; the queue served last is last
	count   int64             // requests in all queues
}

type queue struct{ waiters list.List }

type waiter struct {
	owner  Owner
	n      int64
	served chan struct{} // closed when it has its part
	at     *list.Element // in its queue
}

func (w *waiter) isServed() bool {
	select {
	case <-w.served:
		return true
	default:
		return false
	}
}

// New returns an unused pool.
func New(b Bounds) *Pool {
	b.Pod = max(b.Pod, 1)
	if b.Tenant <= 0 {
		b.Tenant = b.Pod
	}
	if b.Identity <= 0 {
		b.Identity = max(b.Pod/4, 1)
	}
	b.Times, b.Waiting = max(b.Times, 1), cmp.Or(b.Waiting, maxWaiting)
	return &Pool{bounds: b, refused: make(map[Bound]int64), tenants: make(map[string]*tenant)}
}

// Grant is a part of a pool. Its methods are safe for concurrent use.
type Grant struct {
	pool  *Pool
	owner Owner
	n     int64 // guarded by the lock of the pool
}

// Try takes n units, at most the whole pool, or fails with a *FullError. It passes no waiting request.
func (p *Pool) Try(o Owner, n int64) (*Grant, error) {
	n = min(n, p.bounds.Pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.tryLocked(o, n)
	if g == nil && err == nil {
		err = &FullError{p.refuseLocked(o, n)}
	}
	return g, err
}

// TakeFree is Try for a request that will wait if nothing is free. In that case it returns nil, and counts no refusal.
func (p *Pool) TakeFree(o Owner, n int64) *Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, _ := p.tryLocked(o, min(n, p.bounds.Pod))
	return g
}

// tryLocked takes n units. It returns nil if the request would have to wait.
func (p *Pool) tryLocked(o Owner, n int64) (*Grant, error) {
	w, err := p.takeLocked(o, n)
	if err != nil {
		return nil, err
	}
	if w != nil && !w.isServed() {
		p.leaveLocked(w)
		return nil, nil
	}
	return &Grant{p, o, n}, nil
}

// Acquire waits for n units, at most the whole pool, until ctx ends, and then fails with its cause. It fails with a
// *FullError if too many requests wait.
func (p *Pool) Acquire(ctx context.Context, o Owner, n int64) (*Grant, error) {
	n = min(n, p.bounds.Pod)
	p.mu.Lock()
	w, err := p.takeLocked(o, n)
	p.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case w == nil:
		return &Grant{p, o, n}, nil
	}
	select {
	case <-w.served:
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		return &Grant{p, o, n}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.isServed() { // served just now, but too late
		p.addLocked(o, -n)
	} else {
		p.leaveLocked(w)
	}
	p.refuseLocked(o, n)
	p.serveLocked() // the requests that it blocked
	return nil, context.Cause(ctx)
}

// Held returns what a tenant holds.
func (p *Pool) Held(name string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenants[name]; t != nil {
		return t.held
	}
	return 0
}

// Lacks returns the bound that n more units of an owner would exceed, empty if none.
func (p *Pool) Lacks(o Owner, n int64) Bound {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lacksLocked(o, min(n, p.bounds.Pod))
}

// Stats returns how full the pool is.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{p.held, p.count, maps.Clone(p.refused)}
}

// Grow takes what a grant lacks of n units, or fails with a *FullError and leaves the grant as it is. It passes no
// waiting request. It does nothing if the grant has n units.
func (g *Grant) Grow(n int64) error {
	p := g.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	more := n - g.n
	switch {
	case more <= 0:
	case p.count > 0 || p.lacksLocked(g.owner, more) != "":
		return &FullError{p.refuseLocked(g.owner, more)}
	default:
		p.addLocked(g.owner, more)
		g.n = n
	}
	return nil
}

// Shrink releases all but n units. It does nothing if the grant has fewer.
func (g *Grant) Shrink(n int64) {
	g.pool.mu.Lock()
	defer g.pool.mu.Unlock()
	less := g.n - max(n, 0)
	if less <= 0 {
		return
	}
	g.n -= less
	g.pool.addLocked(g.owner, -less)
	g.pool.serveLocked()
}

// Release releases all units. Further calls do nothing, nor does a call for a nil Grant.
func (g *Grant) Release() {
	if g != nil {
		g.Shrink(0)
	}
}

// lacksLocked returns the bound that n more units of an owner would exceed, empty if none.
func (p *Pool) lacksLocked(o Owner, n int64) Bound {
	free := p.bounds.Pod - p.held
	if t := p.tenants[o.Tenant]; t != nil {
		most := o.Most
		if most <= 0 {
			most = p.bounds.Identity
		}
		switch own := t.holds[o.Identity]; {
		case o.Identity != "" && own > 0 && own+n > most:
			return Identity
		case t.held > 0 && t.held+n > min(p.bounds.Times*(free-n), p.bounds.Tenant):
			return Tenant
		}
	}
	if n > free {
		return Pod
	}
	return ""
}

// refuseLocked counts a refused request, and returns the bound that it met. A request that only waited for its turn met
// the pod's bound.
func (p *Pool) refuseLocked(o Owner, n int64) Bound {
	bound := cmp.Or(p.lacksLocked(o, n), Pod)
	p.refused[bound]++
	return bound
}

func (p *Pool) addLocked(o Owner, n int64) {
	t := p.tenantLocked(o.Tenant)
	p.held += n
	t.held += n
	if t.holds[o.Identity] += n; t.holds[o.Identity] == 0 {
		delete(t.holds, o.Identity)
	}
	p.forgetLocked(o.Tenant)
}

func (p *Pool) tenantLocked(name string) *tenant {
	t := p.tenants[name]
	if t == nil {
		t = &tenant{holds: make(map[string]int64), queues: make(map[string]*queue)}
		p.tenants[name] = t
	}
	return t
}

func (p *Pool) forgetLocked(name string) {
	if t := p.tenants[name]; t.held == 0 && t.count == 0 {
		delete(p.tenants, name)
	}
}

// takeLocked takes n units, or queues the request and returns its waiter, which may already be served.
func (p *Pool) takeLocked(o Owner, n int64) (*waiter, error) {
	if p.count == 0 && p.lacksLocked(o, n) == "" {
		p.addLocked(o, n)
		return nil, nil
	}
	return p.queueLocked(o, n)
}

// queueLocked queues a request, and serves it if it need not wait.
func (p *Pool) queueLocked(o Owner, n int64) (*waiter, error) {
	t := p.tenantLocked(o.Tenant)
	if p.count >= p.bounds.Waiting || t.count >= p.bounds.Waiting/2 {
		bound := Tenant
		if t.count < p.bounds.Waiting/2 {
			bound = Pod
		}
		p.forgetLocked(o.Tenant)
		p.refused[bound]++
		return nil, &FullError{bound}
	}
	if t.count == 0 {
		p.waiting = append(p.waiting, t)
	}
	q := t.queues[o.Identity]
	if q == nil {
		q = new(queue)
		t.queues[o.Identity] = q
		t.waiting = append(t.waiting, q)
	}
	w := &waiter{owner: o, n: n, served: make(chan struct{})}
	w.at = q.waiters.PushBack(w)
	t.count++
	p.count++
	if p.lacksLocked(o, n) == "" { // otherwise no request can be served
		p.serveLocked()
	}
	return w, nil
}

func (p *Pool) leaveLocked(w *waiter) {
	t := p.tenants[w.owner.Tenant]
	q := t.queues[w.owner.Identity]
	q.waiters.Remove(w.at)
	if q.waiters.Len() == 0 {
		delete(t.queues, w.owner.Identity)
		t.waiting = without(t.waiting, q)
	}
	if t.count--; t.count == 0 {
		p.waiting = without(p.waiting, t)
	}
	p.count--
	p.forgetLocked(w.owner.Tenant)
}

func (p *Pool) serveLocked() {
	for p.count > 0 {
		w, blocked := p.nextLocked()
		if w == nil || blocked {
			return
		}
		t := p.tenants[w.owner.Tenant]
		q := t.queues[w.owner.Identity]
		p.waiting, t.waiting = append(without(p.waiting, t), t), append(without(t.waiting, q), q)
		p.addLocked(w.owner, w.n)
		p.leaveLocked(w)
		close(w.served)
	}
}

// nextLocked returns the request whose turn it is, nil if all waiting tenants have their share. blocked means that
// there is no room for the request yet. It visits at most one tenant more than the tenants that hold something.
func (p *Pool) nextLocked() (next *waiter, blocked bool) {
	least := int64(math.MaxInt64)
	for _, t := range p.waiting {
		if t.held >= least {
			continue
		}
		w := p.firstLocked(t)
		if w == nil {
			continue
		}
		if bound := p.lacksLocked(w.owner, w.n); bound != Tenant {
			next, blocked, least = w, bound == Pod, t.held
		}
		if least == 0 {
			break
		}
	}
	return next, blocked
}

// firstLocked returns the request of a tenant whose turn it is, nil if each waiting identity has its share.
func (p *Pool) firstLocked(t *tenant) (first *waiter) {
	least := int64(math.MaxInt64)
	for _, q := range t.waiting {
		w := q.waiters.Front().Value.(*waiter)
		held := t.holds[w.owner.Identity]
		if held >= least || p.lacksLocked(w.owner, w.n) == Identity {
			continue
		}
		if first, least = w, held; least == 0 {
			break
		}
	}
	return first
}

func without[T comparable](all []T, one T) []T {
	at := slices.Index(all, one)
	return slices.Delete(all, at, at+1)
}
