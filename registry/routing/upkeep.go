package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	refreshBatch = 256             // sessions refreshed with one call to the store
	storeTimeout = 5 * time.Second // for one step of the upkeep

	restoresAtOnce = 16          // sessions that are restored at the same time
	restorePause   = time.Second // pause before failed restores are retried
)

// heartbeatsPerLease is how often per lease a pod renews its lease and checks for other pods' lapsed leases. Several
// lost heartbeats are harmless, and a dead pod is noticed a tenth of a lease after its lease has lapsed.
const heartbeatsPerLease = 10

// heartbeatLoop renews the lease, fails the calls that wait for dead pods, and triggers the sweep.
func (p *Pod) heartbeatLoop(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.PodLease / heartbeatsPerLease)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.heartbeat(ctx)
		}
	}
}

// sweepLoop cleans up after dead pods. A sweep may take longer than a short lease, so it must not block the heartbeats.
// It starts only after a heartbeat: a pod whose machine slept may find its own lease expired, and must not sweep itself.
func (p *Pod) sweepLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.sweeps:
			p.sweep(ctx)
		}
	}
}

func (p *Pod) heartbeat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	known, err := p.cfg.Store.Heartbeat(ctx, p.cfg.ID)
	p.Hub.counts.heartbeats.Add(1)
	if err != nil {
		p.Hub.counts.heartbeatsMissed.Add(1)
		p.logStore(ctx, "lease not renewed", err)
		return
	}
	if !known {
		p.cfg.Log.Warn("the store had lost this pod's lease; announcing its sessions again")
		p.refreshNow()
	}
	asked := time.Now()
	live, err := p.cfg.Store.Live(ctx)
	if err != nil {
		p.logStore(ctx, "live pods not read", err)
		return
	}
	p.Hub.counts.podsLive.Store(int64(len(live)))
	p.Router.failDeadPods(live, asked)
	select {
	case p.sweeps <- struct{}{}:
	default: // a sweep is already due
	}
}

func (p *Pod) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	dead, err := p.cfg.Store.Sweep(ctx)
	if err != nil {
		p.logStore(ctx, "dead pods not swept", err)
	}
	p.Hub.counts.podsDied.Add(int64(len(dead)))
	for _, pod := range dead {
		p.cfg.Log.Warn("pod is dead; its sessions were removed", "dead_pod", pod)
		p.rec.activity(registry.Activity{Tenant: registry.DefaultTenant, Type: registry.ActivityPodDied, Reason: pod})
	}
}

// refreshLoop extends the life of the sessions on this pod three times per TTL, and immediately on request.
func (p *Pod) refreshLoop(ctx context.Context) {
	for {
		pause := p.cfg.SessionTTL / 3
		pause -= p.cfg.jitter(pause/10 + 1) // pods that started together drift apart
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.refresh:
			timer.Stop()
		case <-timer.C:
		}
		p.refreshAll(ctx)
		p.Places.refresh(ctx)
	}
}

func (p *Pod) refreshAll(ctx context.Context) {
	locals := p.Hub.All()
	entries := make([]registry.Entry, 0, min(len(locals), refreshBatch)) // reused by each batch
	for batch := range slices.Chunk(locals, refreshBatch) {
		entries = entries[:0]
		for _, l := range batch {
			entries = append(entries, l.entry())
		}
		p.refreshSome(ctx, batch, entries)
	}
}

// refreshSome refreshes some sessions; entries are their current entries.
func (p *Pod) refreshSome(run context.Context, locals []*LocalSession, entries []registry.Entry) {
	ctx, cancel := context.WithTimeout(run, storeTimeout)
	defer cancel()
	missing, lost, err := p.cfg.Store.Refresh(ctx, entries)
	if err != nil {
		p.logStore(ctx, "sessions not refreshed", err)
		return
	}
	p.restoreAll(run, missing)
	for _, key := range lost {
		i := slices.IndexFunc(locals, func(l *LocalSession) bool { return l.key == key })
		// If the generation has changed since the request, the reply is about an older claim.
		if i >= 0 && locals[i].generation() == entries[i].Session.Generation {
			locals[i].replaced()
		}
	}
}

// restoreAll restores the sessions that the store has lost, restoresAtOnce at a time. Each has its own timeout, because
// an emptied store has lost all sessions of the pod. Failed ones are retried soon, before the next regular refresh.
func (p *Pod) restoreAll(ctx context.Context, missing []registry.Key) {
	var all sync.WaitGroup
	var failed atomic.Bool
	slots := make(chan struct{}, restoresAtOnce)
	for _, key := range missing {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, storeTimeout)
			defer cancel()
			if !p.restore(ctx, key) {
				failed.Store(true)
			}
		})
	}
	all.Wait()
	if failed.Load() {
		p.refreshNow()
		pause := time.NewTimer(restorePause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// restore writes one session again. It returns false if it must be retried.
func (p *Pod) restore(ctx context.Context, key registry.Key) bool {
	l := p.Hub.Get(key)
	if l == nil {
		return true
	}
	switch err := l.restore(ctx); {
	case errors.Is(err, registry.ErrNotOwner):
		l.replaced()
	case err != nil:
		p.Hub.counts.restoreFailed.Add(1)
		p.logStore(ctx, "session not restored", err)
		return false
	default:
		p.Hub.counts.restored.Add(1)
	}
	return true
}

// logStore logs a failure of the store, except failures that only mean that the pod is closing.
func (p *Pod) logStore(ctx context.Context, msg string, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		p.cfg.Log.Warn(msg, "error", err)
	}
}
