package docker

import (
	"context"
	"slices"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
)

// room is what the engine keeps for a workspace. Only who has its turn touches box and used.
type room struct {
	id   string
	turn chan struct{} // holds one token while a command runs, or the container is removed
	ctx  context.Context
	stop context.CancelCauseFunc // ends the command that runs, and those that wait

	box  *box      // nil: there is no container
	used time.Time // when the last command ended

	// under Engine.mu
	guests int       // calls that are in Run
	tenant string    // who has the workspace
	kept   bool      // it has a container and no guests
	left   time.Time // by the last guest
}

// enter returns the room of a workspace, which stays until leave.
func (e *Engine) enter(w sandbox.Workspace) (*room, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	r := e.rooms[w.ID]
	if r == nil {
		r = &room{id: w.ID, tenant: w.Tenant, turn: make(chan struct{}, 1)}
		r.ctx, r.stop = context.WithCancelCause(e.ctx)
		e.rooms[w.ID] = r
	}
	r.guests++
	r.kept = false
	return r, nil
}

// leave forgets a room in which nothing is left, and removes containers that are more than may be kept.
func (e *Engine) leave(r *room) {
	e.mu.Lock()
	r.guests--
	r.left = time.Now()
	e.settle(r)
	e.mu.Unlock()
	e.evict()
}

// evict removes the containers that are more than may be kept.
func (e *Engine) evict() {
	for {
		e.mu.Lock()
		r := e.surplus()
		e.mu.Unlock()
		if r == nil {
			return
		}
		if r.tryTake() { // else a command has come
			e.empty(r)
			r.give()
		}
		e.mu.Lock()
		e.settle(r)
		e.mu.Unlock()
	}
}

// settle notes what is left in a room without guests, and forgets one without a container. Callers hold e.mu.
func (e *Engine) settle(r *room) {
	if r.guests > 0 || e.rooms[r.id] != r || !r.tryTake() {
		return
	}
	defer r.give()
	if r.kept = r.box != nil; !r.kept {
		delete(e.rooms, r.id)
		r.stop(nil)
	}
}

// surplus returns a room whose container is not to be kept, because its tenant or the pod keeps too many; nil: there is
// none. It does not count as kept from then on. Callers hold e.mu.
func (e *Engine) surplus() *room {
	all, of := 0, map[string][]*room{}
	var most []*room // of one tenant
	for _, r := range e.rooms {
		if !r.kept {
			continue
		}
		all++
		of[r.tenant] = append(of[r.tenant], r)
		if len(of[r.tenant]) > len(most) {
			most = of[r.tenant]
		}
	}
	if all <= e.cfg.Kept && len(most) <= max(e.cfg.Kept/2, 1) {
		return nil
	}
	oldest := slices.MinFunc(most, func(a, b *room) int { return a.left.Compare(b.left) })
	oldest.kept = false
	return oldest
}

// tryTake takes the turn if it is free.
func (r *room) tryTake() bool {
	select {
	case r.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// take waits for the turn.
func (r *room) take(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// give ends a turn.
func (r *room) give() { <-r.turn }

// furnish sees to it that the room has a container as it is wanted.
func (e *Engine) furnish(ctx context.Context, r *room, s spec) error {
	if r.box != nil && (r.box.spec != s || r.box.ended() || time.Since(r.box.since) > e.cfg.Life/2) {
		e.empty(r)
	}
	if r.box != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	r.box, err = e.newBox(ctx, s)
	if err != nil {
		e.empty(r)
	}
	return err
}

// empty removes the container of a room. If the engine does not do that now, the keeper tries again.
func (e *Engine) empty(r *room) {
	if r.box == nil {
		return
	}
	if err := r.box.remove(); err != nil {
		e.cfg.Log.Warn("a container could not be removed, and will be later", "container", r.box.id, "error", err)
		e.mu.Lock()
		e.lost = append(e.lost, r.box)
		e.mu.Unlock()
	}
	r.box = nil
}

// clear empties a room once what runs in it has ended.
func (e *Engine) clear(ctx context.Context, r *room) error {
	r.stop(errReleased)
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.give()
	e.empty(r)
	return nil
}
