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
	sweepEvery   = 5 * time.Minute  // between looks for leftovers
	idleEvery    = 10 * time.Second // between looks for what is idle or lost, at most
	pullTimeout  = 15 * time.Minute // for the image
	sweepTimeout = 30 * time.Second // for one look for leftovers
	lookTimeout  = 5 * time.Second  // for one look whether the engine answers
	leftoverAge  = 2 * time.Minute  // of a container that nobody started: processes that live do it within startTimeout
)

// keep removes leftovers, and containers that have not been used for long, until the engine is closed.
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

// look finds out whether the engine answers.
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

// removeIdle removes the containers that no command has used for Config.Idle, and those without a command that take
// more memory than one that is kept may.
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
		e.evict() // what could not be removed while this room was taken
	}
}

// isHeavy reports whether a container without a command takes more memory than one that is kept may, or does not say.
// What the kernel can take back at any time, such as the cache of files, does not count.
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

// removeLost tries again to remove what could not be.
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
			return // The engine is away.
		}
	}
}

// fetch pulls the image if it is missing and may be pulled, so that no command has to wait for it.
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

// sweep removes the containers that dead processes of ours have left.
func (e *Engine) sweep() {
	ctx, cancel := context.WithTimeout(e.ctx, sweepTimeout)
	defer cancel()
	if err := sweep(ctx, e.api); err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("leftovers of dead pods could not be looked for", "error", err)
	}
}

// sweep removes the containers of processes that are known to be dead, and those that do not run: one that runs has a
// living process at the other end of its input.
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

// isLeft reports whether a container is of no use to anybody any more, whoever made it.
func isLeft(c container.Summary, now time.Time) bool {
	switch c.State {
	case container.StateExited, container.StateDead:
		return true
	case container.StateCreated:
		return now.Sub(time.Unix(c.Created, 0)) > leftoverAge
	}
	return false
}

// engineTime returns the time by the clock of the engine, which also says when containers were made.
func engineTime(ctx context.Context, api *client.Client) (time.Time, error) {
	info, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, info.Info.SystemTime)
}

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
