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

// maintain removes leftovers, idle and lost containers, until the engine is closed.
func (e *Engine) maintain() {
	defer close(e.done)
	e.sweep()
	e.pullImage()
	idle := time.NewTicker(min(max(e.cfg.Idle/4, time.Millisecond), idleEvery))
	defer idle.Stop()
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-idle.C:
			e.ping()
			e.removeIdle()
			e.removeLost()
		case <-sweep.C:
			e.sweep()
		case <-e.ctx.Done():
			return
		}
	}
}

// ping checks whether the engine answers.
func (e *Engine) ping() {
	ctx, cancel := context.WithTimeout(e.ctx, lookTimeout)
	defer cancel()
	_, err := e.api.Ping(ctx, client.PingOptions{})
	switch {
	case e.ctx.Err() != nil:
	case err == nil:
		e.down.Store(nil)
	default:
		err = fmt.Errorf("%w: no engine at %s", sandbox.ErrUnavailable, e.cfg.Host)
		e.down.Store(&err)
	}
}

// removeIdle removes the containers that were unused for Config.Idle, and idle containers that exceed
// Config.MaxIdleMemory.
func (e *Engine) removeIdle() {
	e.mu.Lock()
	var slots []*slot
	for _, r := range e.slots {
		slots = append(slots, r)
	}
	e.mu.Unlock()
	for _, r := range slots {
		if !r.tryAcquire() {
			continue // It is in use.
		}
		if time.Since(r.used) >= e.cfg.Idle || r.container != nil && e.exceedsIdleMemory(r.container) {
			e.dropContainer(r)
		}
		r.release()
		e.mu.Lock()
		e.settle(r)
		e.mu.Unlock()
		e.evict() // containers that could not be removed while this slot was taken
	}
}

// exceedsIdleMemory reports whether an idle container exceeds Config.MaxIdleMemory, or its usage is unknown. Memory
// that the kernel can reclaim, such as the file cache, does not count.
func (e *Engine) exceedsIdleMemory(b *runningContainer) bool {
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
	return int64(m.Usage)-int64(free) > e.cfg.MaxIdleMemory
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

// pullImage pulls the image if it is missing and Config.Pull is set, so that no command waits for it.
func (e *Engine) pullImage() {
	if !e.cfg.Pull {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, pullTimeout)
	defer cancel()
	if _, err := e.image(ctx); err != nil && e.ctx.Err() == nil {
		e.cfg.Log.Warn("sandbox image not found", "error", err)
	}
}

// sweep removes the containers that dead gateway processes have left.
func (e *Engine) sweep() {
	ctx, cancel := context.WithTimeout(e.ctx, sweepTimeout)
	defer cancel()
	if err := sweep(ctx, e.api); err != nil && ctx.Err() == nil {
		e.cfg.Log.Warn("containers of dead pods not listed", "error", err)
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

// slot is the state of a workspace. Only the holder of its turn may access container and used.
type slot struct {
	id   string
	turn chan struct{} // holds one token while a command runs, or the container is removed
	ctx  context.Context
	stop context.CancelCauseFunc // ends the running command and the waiting ones

	container *runningContainer // nil: no container
	used      time.Time         // when the last command ended

	// guarded by Engine.mu
	users  int       // calls in Run
	tenant string    // owner of the workspace
	idle   bool      // has a container and no users
	left   time.Time // when the last user left
}

// enter returns the slot of a workspace. The slot stays until leave.
func (e *Engine) enter(w sandbox.Workspace) (*slot, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	r := e.slots[w.ID]
	if r == nil {
		r = &slot{id: w.ID, tenant: w.Tenant, turn: make(chan struct{}, 1)}
		r.ctx, r.stop = context.WithCancelCause(e.ctx)
		e.slots[w.ID] = r
	}
	r.users++
	r.idle = false
	return r, nil
}

// leave removes a user. It removes the slot if it has no container, and evicts excess containers.
func (e *Engine) leave(r *slot) {
	e.mu.Lock()
	r.users--
	r.left = time.Now()
	e.settle(r)
	e.mu.Unlock()
	e.evict()
}

// evict removes idle containers above Config.MaxIdle.
func (e *Engine) evict() {
	for {
		e.mu.Lock()
		r := e.surplus()
		e.mu.Unlock()
		if r == nil {
			return
		}
		if r.tryAcquire() { // otherwise a new command has acquired it
			e.dropContainer(r)
			r.release()
		}
		e.mu.Lock()
		e.settle(r)
		e.mu.Unlock()
	}
}

// settle updates idle for a slot without users, and removes the slot if it has no container. Callers hold e.mu.
func (e *Engine) settle(r *slot) {
	if r.users > 0 || e.slots[r.id] != r || !r.tryAcquire() {
		return
	}
	defer r.release()
	if r.idle = r.container != nil; !r.idle {
		delete(e.slots, r.id)
		r.stop(nil)
	}
}

// surplus returns a slot whose container must be removed, because its tenant or the pod has too many idle ones, or nil.
// The slot no longer counts as idle. Callers hold e.mu.
func (e *Engine) surplus() *slot {
	all, of := 0, map[string][]*slot{}
	var most []*slot // of one tenant
	for _, r := range e.slots {
		if !r.idle {
			continue
		}
		all++
		of[r.tenant] = append(of[r.tenant], r)
		if len(of[r.tenant]) > len(most) {
			most = of[r.tenant]
		}
	}
	if all <= e.cfg.MaxIdle && len(most) <= max(e.cfg.MaxIdle/2, 1) {
		return nil
	}
	oldest := slices.MinFunc(most, func(a, b *slot) int { return a.left.Compare(b.left) })
	oldest.idle = false
	return oldest
}

// tryAcquire acquires the turn if it is free.
func (r *slot) tryAcquire() bool {
	select {
	case r.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

// acquire waits for the turn.
func (r *slot) acquire(ctx context.Context) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release ends a turn.
func (r *slot) release() { <-r.turn }

// ensureContainer ensures that the slot has a usable container with this spec.
func (e *Engine) ensureContainer(ctx context.Context, r *slot, s spec) error {
	c := r.container
	if c != nil && (c.spec != s || c.ended() || time.Since(c.since) > e.cfg.Life/2) {
		e.dropContainer(r)
	}
	if r.container != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	r.container, err = e.newContainer(ctx, s)
	if err != nil {
		e.failed.Add(1)
		e.dropContainer(r)
		return err
	}
	e.started.Add(1)
	e.running.Add(1)
	r.container.ready = true
	return nil
}

// dropContainer removes the container of a slot. If the removal fails, maintain retries it.
func (e *Engine) dropContainer(r *slot) {
	if r.container == nil {
		return
	}
	if err := r.container.remove(); err != nil {
		e.cfg.Log.Warn("container not removed; the pod retries", "container", r.container.id, "error", err)
		e.mu.Lock()
		e.lost = append(e.lost, r.container)
		e.mu.Unlock()
	}
	if r.container.ready {
		e.running.Add(-1)
	}
	r.container = nil
}

// endAndDrop ends the commands of a slot, waits for its turn, and removes its container.
func (e *Engine) endAndDrop(ctx context.Context, r *slot) error {
	r.stop(errReleased)
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.release()
	e.dropContainer(r)
	return nil
}
