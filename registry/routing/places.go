package routing

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// maxHeld is how many owned places a pod remembers. Beyond it the tenant with the most places loses the least recently
// used half of its own: the pod still owns them, but does not restore them if the store loses them.
const maxHeld = 1 << 16

// Places routes calls of stateful tools, such as a browser, to the pod that has the state: the owner of a place. The
// store knows the owners. State lives as long as its pod is the owner. It is safe for concurrent use.
type Places struct {
	core
	router *Router
	ttl    time.Duration

	mu       sync.Mutex
	keeper   registry.PlaceKeeper
	held     map[registry.PlaceKey]*heldPlace
	errands  map[string]context.CancelCauseFunc // of other pods, running here; by the id of the exchange
	admitted *share.Pool                        // semaphore of errands
	closed   bool
	running  sync.WaitGroup // calls that use places of this pod
	endCalls context.CancelCauseFunc
	base     context.Context // of the errands
}

// heldPlace is a place that this pod owns, or has owned.
type heldPlace struct {
	registry.Place
	used  time.Time
	calls int             // running calls
	told  map[string]bool // kinds of state that a call's result has reported as new, or will when it returns
	ready chan struct{}   // closed once no state of an earlier epoch is left here
}

func newPlaces(c core, r *Router, ttl time.Duration) *Places {
	p := &Places{
		core: c, router: r, ttl: ttl, keeper: registry.PlaceKeeper{
			Erased: func(context.Context, registry.Key, int64) {}, Lost: func(context.Context, registry.Place) {},
		}, held: make(map[registry.PlaceKey]*heldPlace),
		errands: make(map[string]context.CancelCauseFunc), admitted: share.New(share.Bounds{Pod: maxErrands}),
	}
	p.base, p.endCalls = context.WithCancelCause(context.Background())
	return p
}

// Serve sets the handlers of this pod's state. Nil fields keep the former handler. Every Erased handler is called.
func (p *Places) Serve(k registry.PlaceKeeper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.Run != nil {
		p.keeper.Run = k.Run
	}
	if before := p.keeper.Erased; k.Erased != nil {
		p.keeper.Erased = func(ctx context.Context, conversation registry.Key, current int64) {
			before(ctx, conversation, current)
			k.Erased(ctx, conversation, current)
		}
	}
	if k.Lost != nil {
		p.keeper.Lost = k.Lost
	}
}

// Claim asks the store for the owner of a place, as this pod, for calls that run here although another pod may own it.
func (p *Places) Claim(ctx context.Context, c registry.PlaceClaim) (registry.Place, error) {
	c.Pod = p.pod
	return p.store.ClaimPlace(ctx, c)
}

// enter records that a call uses a place of this pod. The caller must call leave, with whether the call has a result.
// enter first ends state of an earlier epoch or generation. It fails with ErrNotOwner if the place now has another
// owner or generation, or the pod is releasing its places.
func (p *Places) enter(ctx context.Context, e *registry.Errand) (leave func(result bool), err error) {
	h, stale, err := p.hold(e)
	if err != nil {
		return nil, err
	}
	if stale != nil {
		func() {
			defer close(h.ready) // also if a handler panics
			end(ctx, p.keeping(), *stale, e.Place.Generation)
		}()
	}
	select {
	case <-h.ready:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		err = notBegun(ctx, e.Tool)
	} else if !e.Place.Kept {
		err = p.noteKept(ctx, e)
	}
	if err != nil {
		p.leave(h, e, false)
		return nil, err
	}
	return func(result bool) { p.leave(h, e, result) }, nil
}

// noteKept records in the store that state is kept at a place of this pod, so that the next owner can report its loss.
// It is called just before a tool runs: a call that never got that far loses nothing.
func (p *Places) noteKept(ctx context.Context, e *registry.Errand) error {
	now, err := p.Claim(ctx, registry.PlaceClaim{Key: e.Place.Key, Kind: e.Kind, Keep: true})
	switch {
	case err != nil && isOver(ctx):
		return notBegun(ctx, e.Tool)
	case err != nil:
		return registry.AsError(err).With(registry.DispatchedNo)
	case now.Pod != p.pod || now.Epoch != e.Place.Epoch || now.Generation != e.Place.Generation:
		return registry.ErrNotOwner.With(registry.DispatchedNo)
	}
	return nil
}

// hold counts a call that uses a place of this pod. If stale is not nil, the caller must end the state that is left
// there, and then close ready.
func (p *Places) hold(e *registry.Errand) (h *heldPlace, stale *registry.Place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h = p.held[e.Place.Key]
	switch {
	case p.closed, h != nil && (h.Epoch > e.Place.Epoch || h.Generation > e.Place.Generation):
		return nil, nil, registry.ErrNotOwner.With(registry.DispatchedNo)
	case h == nil || h.Epoch != e.Place.Epoch || h.Generation != e.Place.Generation:
		before := h
		p.makeRoomLocked()
		h = &heldPlace{Place: e.Place, told: make(map[string]bool), ready: make(chan struct{})}
		h.Before, h.Kept = 0, false
		p.held[e.Place.Key] = h
		if before == nil {
			close(h.ready)
		} else {
			stale = &before.Place
		}
	}
	e.Anew = e.Place.Before != 0 && !h.told[e.Kind]
	h.told[e.Kind] = true
	h.calls++
	p.running.Add(1)
	return h, stale, nil
}

// stops reports whether the pod is releasing its places.
func (p *Places) stops() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// leave ends a call's use of a place. If the call has no result to report new state, the next call's result does.
func (p *Places) leave(h *heldPlace, e *registry.Errand, result bool) {
	defer p.running.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Anew && result:
		p.counts.add(&p.counts.PlacesTaken, 1)
	case e.Anew:
		delete(h.told, e.Kind)
	}
	h.calls--
	h.used = time.Now()
}

func (p *Places) keeping() registry.PlaceKeeper {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keeper
}

// makeRoomLocked makes room for one more place. It scans all places, but rarely: it drops many at once.
func (p *Places) makeRoomLocked() {
	if len(p.held) < maxHeld {
		return
	}
	unused := make(map[string][]*heldPlace) // by tenant
	var most []*heldPlace
	for key, h := range p.held {
		if h.calls > 0 {
			continue
		}
		unused[key.Tenant] = append(unused[key.Tenant], h)
		if of := unused[key.Tenant]; len(of) > len(most) {
			most = of
		}
	}
	slices.SortFunc(most, func(a, b *heldPlace) int { return a.used.Compare(b.used) })
	for _, h := range most[:(len(most)+1)/2] {
		delete(p.held, h.Key)
	}
}

// endLocked ends, in a task, the state at a place that this pod no longer owns. current is the place's current
// generation, if known. If too many tasks run, the pod still holds the place, and the next refresh ends it.
func (p *Places) endLocked(was registry.Place, current int64) {
	k := p.keeper
	of, _ := was.Key.Conversation()
	if !p.tasks.start(ofSession(of), func(ctx context.Context) { end(ctx, k, was, current) }) {
		return
	}
	delete(p.held, was.Key)
	p.counts.add(&p.counts.PlacesLost, 1)
}

// end ends the state at a place that this pod no longer owns, within taskTimeout. It continues after ctx ends: ctx
// belongs to the call that finds the place, and the next call uses it.
func end(ctx context.Context, k registry.PlaceKeeper, was registry.Place, current int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskTimeout)
	defer cancel()
	if conversation, ok := was.Key.Conversation(); ok && current != was.Generation {
		k.Erased(ctx, conversation, current)
	} else {
		k.Lost(ctx, was)
	}
}

// Erased ends the state of an erased conversation: on this pod before it returns, on other pods when the message
// arrives. A pod that misses the message finds out when it refreshes its places.
func (p *Places) Erased(ctx context.Context, key registry.Key) {
	e := registry.Envelope{Kind: registry.EnvelopeErased, Tenant: key.Tenant, Session: key.Session}
	if err := p.trySendAll(ctx, e); err != nil {
		p.log.Warn("other pods not notified of an erased conversation; they detect it on refresh",
			"session", key.Session, "error", err)
	}
	p.erasedHere(ctx, key)
}

// erasedHere ends this pod's state of earlier generations of a conversation, within taskTimeout. It continues after ctx
// ends, because the state is not looked for again.
func (p *Places) erasedHere(ctx context.Context, key registry.Key) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskTimeout)
	defer cancel()
	generations, err := p.store.PlaceGenerations(ctx, []registry.Key{key})
	if err != nil {
		p.log.Warn("state of an erased conversation not removed yet", "session", key.Session, "error", err)
		return
	}
	p.mu.Lock()
	at := registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
	if h := p.held[at]; h != nil && h.Generation != generations[0] {
		delete(p.held, at)
	}
	p.mu.Unlock()
	p.keeping().Erased(ctx, key, generations[0])
}

// handleErased ends this pod's state of a conversation that another pod has erased. If too many tasks run, the next
// refresh does it.
func (p *Places) handleErased(e registry.Envelope) {
	p.tasks.start(ofSession(e.Key()), func(ctx context.Context) { p.erasedHere(ctx, e.Key()) })
}

// refresh extends the life of this pod's places, and ends the state at places that it no longer owns.
func (p *Places) refresh(ctx context.Context) {
	for batch := range slices.Chunk(p.owned(), refreshBatch) {
		if err := p.refreshSome(ctx, batch); err != nil {
			p.log.Warn("places not refreshed", "error", err)
			return
		}
	}
}

// owned returns the places of this pod, and drops those that were unused for longer than the TTL.
func (p *Places) owned() []registry.Place {
	p.mu.Lock()
	defer p.mu.Unlock()
	places := make([]registry.Place, 0, len(p.held))
	for key, h := range p.held {
		if h.calls == 0 && time.Since(h.used) > p.ttl {
			delete(p.held, key)
			continue
		}
		places = append(places, h.Place)
	}
	return places
}

func (p *Places) refreshSome(ctx context.Context, places []registry.Place) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	gone, err := p.store.RefreshPlaces(ctx, places)
	if err != nil || len(gone) == 0 {
		return err
	}
	keys := make([]registry.Key, len(gone))
	for i, was := range gone {
		keys[i], _ = was.Key.Conversation()
	}
	generations, err := p.store.PlaceGenerations(ctx, keys)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, was := range gone {
		if h := p.held[was.Key]; h != nil && h.Place == was { // else it is this pod's again
			p.endLocked(was, generations[i])
		}
	}
	return nil
}

// close releases all places. Running calls may end within ctx, and no new calls begin. The next pod that claims them
// becomes the owner, and reports what is lost.
func (p *Places) close(ctx context.Context) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.mu.Unlock()
	places := p.owned()
	ended := allEnded(&p.running)
	select {
	case <-ended:
	case <-ctx.Done():
	}
	p.endCalls(registry.ErrDraining)
	select {
	case <-ended:
	case <-time.After(storeTimeout): // a tool ignores its context
	}
	p.release(ctx, places...)
}

// release gives up places, also if ctx has ended.
func (p *Places) release(ctx context.Context, places ...registry.Place) {
	for batch := range slices.Chunk(places, refreshBatch) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		if err := p.store.ReleasePlaces(ctx, batch); err != nil {
			p.log.Warn("places not released; other pods get them when the lease expires", "error", err)
		}
		cancel()
	}
}
