package routing

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/farhand/farhand/internal/parallel"
	"github.com/farhand/farhand/internal/pause"
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
// It starts only after a heartbeat: a pod whose machine slept may find its own lease lapsed and must not sweep itself.
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
	known, err := p.store.Heartbeat(ctx, p.pod)
	p.counts.add(&p.counts.Heartbeats, 1)
	if err != nil {
		p.counts.add(&p.counts.HeartbeatsMissed, 1)
		p.logStore(ctx, "lease not renewed", err)
		return
	}
	if !known {
		p.log.Warn("the store lost this pod's lease; announcing its sessions again")
		p.refreshNow()
	}
	asked := time.Now()
	live, err := p.store.Live(ctx)
	if err != nil {
		p.logStore(ctx, "live pods not read", err)
		return
	}
	p.podsLive.Store(int64(len(live)))
	p.Router.failDeadPods(live, asked)
	select {
	case p.sweeps <- struct{}{}:
	default: // a sweep is already due
	}
}

// failDeadPods fails the calls that wait for a pod whose lease had lapsed at the time asked, and drops the routes to
// such pods.
func (r *Router) failDeadPods(live []string, asked time.Time) {
	alive := make(map[string]bool, len(live))
	for _, pod := range live {
		alive[pod] = true
	}
	r.routes.setLive(alive, asked)
	r.pending.failExcept(alive, asked, registry.Lost())
}

func (p *Pod) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	dead, err := p.store.Sweep(ctx)
	if err != nil {
		p.logStore(ctx, "dead pods not swept", err)
	}
	p.counts.add(&p.counts.PodsDied, int64(len(dead)))
	for _, d := range dead {
		p.log.Warn("pod is dead; its sessions were removed", "dead_pod", d.Pod)
		p.rec.activity(registry.Activity{Tenant: registry.DefaultTenant, Type: registry.ActivityPodDied, Reason: d.Pod})
		for _, tenant := range d.Tenants { // their sessions end without lines of their own
			if tenant != registry.DefaultTenant {
				p.rec.activity(registry.Activity{Tenant: tenant, Type: registry.ActivityPodDied, Reason: d.Pod})
			}
		}
	}
}

// refreshLoop extends the life of the sessions on this pod three times per TTL, and immediately on request.
func (p *Pod) refreshLoop(ctx context.Context) {
	for {
		wait := p.cfg.SessionTTL / 3
		wait -= p.cfg.jitter(wait/10 + 1) // pods that started together drift apart
		select {
		case <-ctx.Done():
			return
		case <-p.refresh:
		case <-time.After(wait):
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
		for _, l := range batch { // a message about a queued call may have been lost
			p.Queue.check(l)
			p.devices.renew(l)
		}
	}
}

// refreshSome refreshes some sessions; entries are their current entries.
func (p *Pod) refreshSome(run context.Context, locals []*LocalSession, entries []registry.Entry) {
	ctx, cancel := context.WithTimeout(run, storeTimeout)
	defer cancel()
	missing, lost, err := p.store.Refresh(ctx, entries)
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
	err := parallel.Each(len(missing), restoresAtOnce, func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		return p.restore(ctx, missing[i])
	})
	if err != nil {
		p.refreshNow()
		_ = pause.For(ctx, restorePause)
	}
}

// restore writes one session again. After an error it must be retried.
func (p *Pod) restore(ctx context.Context, key registry.Key) error {
	l := p.Hub.Get(key)
	if l == nil {
		return nil
	}
	err := l.restore(ctx)
	switch {
	case errors.Is(err, registry.ErrNotOwner):
		l.replaced()
		return nil
	case err != nil:
		p.counts.add(&p.counts.RestoresFailed, 1)
		p.logStore(ctx, "session not restored", err)
	default:
		p.counts.add(&p.counts.SessionsRestored, 1)
		p.devices.note(l, time.Now()) // the store has also lost its memory of the device
	}
	return err
}

// logStore logs a failure of the store, except failures that only mean that the pod is closing.
func (p *Pod) logStore(ctx context.Context, msg string, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		p.log.Warn(msg, "error", err)
	}
}
