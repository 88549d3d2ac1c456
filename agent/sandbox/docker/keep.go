package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

const (
	sweepEvery   = 5 * time.Minute  // between checks for leftovers
	idleEvery    = 10 * time.Second // maximum time between checks for idle and lost containers
	pullTimeout  = 15 * time.Minute // for pulling the image
	sweepTimeout = 30 * time.Second // for one check for leftovers
	lookTimeout  = 5 * time.Second  // for one check whether the engine answers
	leftoverAge  = 2 * time.Minute  // minimum age of a never started leftover; live ones start within startTimeout
)

// keep removes leftovers, idle and lost containers, until the engine is closed.
func (e *Engine) keep() {
	defer close(e.done)
	e.sweep()
	e.fetch()
	idle := time.NewTicker(min(max(e.cfg.Idle/4, time.Millisecond), idleEvery))
	defer idle.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-idle.C:
			e.look()
			e.removeIdle()
			e.removeLost()
		case <-sweep.C:
			e.sweep()
		case <-e.ctx.Done():
			return
		}
	}
}

// look checks whether the engine answers.
func (e *Engine) look() {
	ctx, cancel := context.WithTimeout(e.ctx, lookTimeout)
	defer cancel()
	_, err := e.api.Ping(ctx, client.PingOptions{})
	switch {
	case e.ctx.Err() != nil:
	case err == nil:
		e.down.Store(nil)
	default:
		err = fmt.Errorf("%w: no engine answers at %s", sandbox.ErrUnavailable, e.cfg.Host)
		e.down.Store(&err)
	}
}

// removeIdle removes the containers that were unused for Config.Idle, and idle containers that exceed
// Config.KeptMemory.
func (e *Engine) removeIdle() {
	e.mu.Lock()
	var rooms []*room
	for _, r := range e.rooms {
		rooms = append(rooms, r)
	}
	e.mu.Unlock()
	for _, r := range rooms {
		if !r.tryTake() {
			continue // It is in use.
		}
		if time.Since(r.used) >= e.cfg.Idle || r.box != nil && e.isHeavy(r.box) {
			e.empty(r)
		}
		r.give()
		e.mu.Lock()
		e.settle(r)
		e.mu.Unlock()
		e.evict() // containers that could not be removed while this room was taken
	}
}

// isHeavy reports whether an idle container exceeds Config.KeptMemory, or its usage is unknown. Memory that the kernel
// can reclaim, such as the file cache, does not count.
func (e *Engine) isHeavy(b *box) bool {
	ctx, cancel := context.WithTimeout(e.ctx, lookTimeout)
	defer cancel()
	answer, err := e.api.ContainerStats(ctx, b.id, client.ContainerStatsOptions{})
	if err != nil {
		return e.ctx.Err() == nil
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		return e.ctx.Err() == nil
	}
	m := s.MemoryStats
	free := m.Stats["active_file"] + m.Stats["inactive_file"] + m.Stats["slab_reclaimable"]
	return int64(m.Usage)-int64(free) > e.cfg.KeptMemory
}

// removeLost retries the removal of lost containers.
func (e *Engine) removeLost() {
	e.mu.Lock()
	lost := e.lost
	e.lost = nil
	e.mu.Unlock()
	for i, b := range lost {
		if err := b.remove(); err != nil {
			e.mu.Lock()
			e.lost = append(e.lost, lost[i:]...)
			e.mu.Unlock()
			return // The engine does not answer.
		}
	}
}

// fetch pulls the image if it is missing and Config.Pull is set, so that no command waits for it.
func (e *Engine) fetch() {
	if !e.cfg.Pull {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, pullTimeout)
	defer cancel()
	if _, err := e.image(ctx); err != nil && e.ctx.Err() == nil {
		e.cfg.Log.Warn("the image of the sandbox is not there", "error", err)
	}
}

// sweep removes the containers that dead gateway processes have left.
func (e *Engine) sweep() {
	ctx, cancel := context.WithTimeout(e.ctx, sweepTimeout)
	defer cancel()
	if err := sweep(ctx, e.api); err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("leftovers of dead pods could not be looked for", "error", err)
	}
}

// sweep removes containers of processes that are certainly dead, and containers that do not run. A running container
// has a live process at the other end of its input.
func sweep(ctx context.Context, api *client.Client) error {
	found, err := api.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: client.Filters{}.Add("label", labelPod),
	})
	if err != nil || len(found.Items) == 0 {
		return err
	}
	now, err := engineTime(ctx, api)
	if err != nil {
		return err
	}
	own := processLabel()
	for _, c := range found.Items {
		if !isDead(c.Labels[labelProcess], own) && !isLeft(c, now) {
			continue
		}
		_, err := api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			return fmt.Errorf("remove container %s: %w", c.ID, err)
		}
	}
	return nil
}

// isLeft reports whether a container is a leftover, regardless of its creator: it has ended, or was never started.
func isLeft(c container.Summary, now time.Time) bool {
	switch c.State {
	case container.StateExited, container.StateDead:
		return true
	case container.StateCreated:
		return now.Sub(time.Unix(c.Created, 0)) > leftoverAge
	}
	return false
}

// engineTime returns the time of the engine's clock, which also sets the creation times of containers.
func engineTime(ctx context.Context, api *client.Client) (time.Time, error) {
	info, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, info.Info.SystemTime)
}

// room is the state of a workspace. Only the holder of its turn may access box and used.
type room struct {
	id   string
	turn chan struct{} // holds one token while a command runs, or the container is removed
	ctx  context.Context
	stop context.CancelCauseFunc // ends the running command and the waiting ones

	box  *box      // nil: no container
	used time.Time // when the last command ended

	// guarded by Engine.mu
	guests int       // calls in Run
	tenant string    // owner of the workspace
	kept   bool      // has a container and no guests
	left   time.Time // when the last guest left
}

// enter returns the room of a workspace. The room stays until leave.
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

// leave ends a guest's stay. It removes the room if it has no container, and evicts excess containers.
func (e *Engine) leave(r *room) {
	e.mu.Lock()
	r.guests--
	r.left = time.Now()
	e.settle(r)
	e.mu.Unlock()
	e.evict()
}

// evict removes idle containers above Config.Kept.
func (e *Engine) evict() {
	for {
		e.mu.Lock()
		r := e.surplus()
		e.mu.Unlock()
		if r == nil {
			return
		}
		if r.tryTake() { // otherwise a new command has taken it
			e.empty(r)
			r.give()
		}
		e.mu.Lock()
		e.settle(r)
		e.mu.Unlock()
	}
}

// settle updates kept for a room without guests, and removes the room if it has no container. Callers hold e.mu.
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

// surplus returns a room whose container must be removed, because its tenant or the pod has too many idle ones, or nil.
// The room no longer counts as kept. Callers hold e.mu.
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

// furnish ensures that the room has a usable container with this spec.
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

// empty removes the container of a room. If the removal fails, the keeper retries it.
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

// clear ends the commands of a room, waits for its turn, and removes its container.
func (e *Engine) clear(ctx context.Context, r *room) error {
	r.stop(errReleased)
	if err := r.take(ctx); err != nil {
		return err
	}
	defer r.give()
	e.empty(r)
	return nil
}
