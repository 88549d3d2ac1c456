package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
	"github.com/farhand/farhand/registry"
)

const (
	deathSessions = 15_000
	deathLimit    = 10 * time.Second
	deathCommand  = 5 * time.Millisecond
)

// rowPodDeath measures a pod with many sessions that stops renewing its lease, until another pod has cleaned up. Redis
// and other pods see nothing else of a pod that was killed.
func rowPodDeath(ctx context.Context, l *lab) ([]verdict, error) {
	sessions := quickOr(l.options, 200, deathSessions)
	lease := quickOr(l.options, 2*time.Second, registry.DefaultPodLease)
	f, err := l.startFleet(ctx, 2, "FARHAND_POD_LEASE="+lease.String())
	if err != nil {
		return nil, err
	}
	defer f.close()
	var took []time.Duration
	var slow slowCommands
	for i := range min(l.Repeat, slowRepeat) {
		d, err := l.oneDeath(ctx, f, fmt.Sprintf("victim%d", i), sessions, lease)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
		found, err := f.probe.slow(ctx)
		if err != nil {
			return nil, err
		}
		slow.add(found)
		l.Step("a pod of %d sessions died: out of the listing after %s, %d commands longer than %s",
			sessions, bench.Short(d), found.n, bench.Short(deathCommand))
	}
	median := bench.MedianOf(took, func(d time.Duration) time.Duration { return d })
	v := verdict{
		What: fmt.Sprintf("a pod of %d sessions dies: out of the listing", sessions), Target: "≤ 10 s",
		Met: median <= deathLimit, Measured: bench.Short(median), Detail: fmt.Sprintf("%d times: %v", len(took), took),
	}
	return []verdict{v, slow.verdict("≤ 5 ms")}, nil
}

// oneDeath returns how long after its last heartbeat the sessions of a full pod have disappeared from both listings.
func (l *lab) oneDeath(
	ctx context.Context, f *fleet, id string, sessions int, lease time.Duration,
) (time.Duration, error) {
	p, err := startPhantom(ctx, f.redis.url, id, lease)
	if err != nil {
		return 0, err
	}
	defer p.close()
	specs, err := phoneSpecs(5)
	if err != nil {
		return 0, err
	}
	if err := p.fill(ctx, l.options, sessions, specs); err != nil {
		return 0, err
	}
	if err := f.probe.slowerThan(ctx, deathCommand); err != nil {
		return 0, err
	}
	// It dies right after a heartbeat, so its full lease remains.
	if _, err := p.store.Heartbeat(ctx, id); err != nil {
		return 0, err
	}
	p.die()
	died := time.Now()
	for {
		n, err := f.listed(ctx)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return time.Since(died), nil
		}
		if time.Since(died) > 3*deathLimit {
			return 0, fmt.Errorf("%d sessions of a dead pod are still listed after %v", n, 3*deathLimit)
		}
		l.Note("waiting for the sessions of a dead pod to go: %d remain after %.1fs", n, time.Since(died).Seconds())
		time.Sleep(50 * time.Millisecond)
	}
}

// listed returns how many sessions the listings of the first pod show. The grouped listing gives the number; the other
// one is only checked for being empty.
func (f *fleet) listed(ctx context.Context) (int, error) {
	body, _, err := get(ctx, f.pods[0].url+"/api/tools?view=grouped", "", http.StatusOK)
	if err != nil {
		return 0, err
	}
	n, err := groupedSessions(body)
	if err != nil || n > 0 {
		return n, err
	}
	body, _, err = get(ctx, f.pods[0].url+"/api/sessions?limit=1", "", http.StatusOK)
	if err != nil {
		return 0, err
	}
	return strings.Count(string(body), `"session_id"`), nil
}

// Heartbeats are measured with a shorter session TTL than usual, so that a window contains several refreshes. It must
// not be so short that the pod cannot keep up: restoring expired sessions would be counted also.
const (
	beatTTL      = 12 * time.Second
	quickBeatTTL = 3 * time.Second
)

// beatSettings make a pod refresh its sessions at the returned interval.
func (o *options) beatSettings() (interval time.Duration, setting string) {
	ttl := quickOr(o, quickBeatTTL, beatTTL)
	return ttl / 3, "FARHAND_SESSION_TTL=" + ttl.String()
}

// heartbeat is the cost of keeping idle sessions.
type heartbeat struct {
	sessions int
	commands float64 // a second
	reads    float64 // by Redis from its sockets, a second
	podCPU   float64 // share of one core
}

// rowHeartbeats measures the commands to Redis for idle sessions, with one number of sessions and with five times that.
func rowHeartbeats(ctx context.Context, l *lab) ([]verdict, error) {
	sizes := quickOr(l.options, []int{0, 50, 250}, []int{0, 1000, 5000})
	cycles := quickOr(l.options, 1, min(l.Repeat, slowRepeat))
	interval, setting := l.beatSettings()
	f, err := l.startFleet(ctx, 1, setting)
	if err != nil {
		return nil, err
	}
	defer f.close()
	devices, err := bench.ConnectSwarm(ctx, f.pods[0].url, benchToken, "beat", 0, idleTools)
	if err != nil {
		return nil, err
	}
	defer devices.Close()
	var beats []heartbeat
	for _, n := range sizes {
		if err := devices.Add(f.pods[0].url, fmt.Sprintf("beat%d", n), n-len(devices.Sessions())); err != nil {
			return nil, err
		}
		l.Note("watching the heartbeats of %d sessions", n)
		b, err := f.heartbeat(ctx, n, time.Duration(cycles)*interval)
		if err != nil {
			return nil, err
		}
		l.Step("%d idle sessions: %.0f commands/s in %.1f reads/s, pod %.1f%% CPU", n, b.commands, b.reads,
			b.podCPU*100)
		beats = append(beats, b)
	}
	own := beats[0].commands // what any pod sends, even without sessions
	few, many := beats[1].commands-own, beats[2].commands-own
	growth := float64(sizes[2]) / float64(sizes[1])
	perRefresh := many / (float64(sizes[2]) / interval.Seconds())
	return []verdict{{
		What: "heartbeat commands grow with sessions/interval", Target: fmt.Sprintf("≤ 1.25 × %.0f", growth),
		Met: many <= 1.25*growth*max(few, 1),
		Measured: fmt.Sprintf("%.0f × (%.0f at %d, %.0f commands/s at %d)",
			many/max(few, 1), few, sizes[1], many, sizes[2]),
		Detail: fmt.Sprintf(
			"refreshed every %v: %.2f commands for each session (those of scripts included), %.0f commands "+
				"with each read from the socket; a pod without sessions: %.1f commands/s",
			interval, perRefresh, beats[2].commands/max(beats[2].reads, 1), own),
	}}, nil
}

// heartbeat measures for some intervals. The pod waits slightly less than an interval in between, so the window is
// shortened to the average.
func (f *fleet) heartbeat(ctx context.Context, sessions int, window time.Duration) (heartbeat, error) {
	time.Sleep(f.settle)
	watch, err := bench.StartWatch(ctx, pids(f.pods), nil)
	if err != nil {
		return heartbeat{}, err
	}
	before, err := f.probe.Load(ctx)
	if err != nil {
		return heartbeat{}, err
	}
	select {
	case <-time.After(window * 95 / 100):
	case <-ctx.Done():
		return heartbeat{}, ctx.Err()
	}
	after, err := f.probe.Load(ctx)
	if err != nil {
		return heartbeat{}, err
	}
	seconds := after.At.Sub(before.At).Seconds()
	b := heartbeat{
		sessions: sessions, commands: float64(after.Commands-before.Commands) / seconds,
		reads: float64(after.Reads-before.Reads) / seconds,
	}
	usage, err := watch.Usage(ctx)
	for _, u := range usage {
		b.podCPU = u.CPU
	}
	return b, err
}
