package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// ledgerChaos breaks things, one after the other, and writes down what and when.
type ledgerChaos struct {
	t       *testing.T
	book    *ledger
	fleet   *faultFleet
	devices []*ledgerDevice
	random  *rand.Rand
	keeps   bool // Redis has on disk what it acknowledged
}

// ledgerBreak breaks something, mends it and says what it was.
type ledgerBreak = func(context.Context) ledgerFault

// run breaks everything once, in an order of its own, again and again until ctx ends.
func (c *ledgerChaos) run(ctx context.Context) {
	kill, others := c.killRedis, []ledgerBreak{c.freezeRedis, c.freezeRedis, c.cutRedis, c.slowRedis}
	if c.fleet.servers != nil {
		kill, others = c.killPrimary, []ledgerBreak{c.freezePrimary}
	} else if !c.keeps {
		others = append(others, c.flush)
	}
	faults := append([]ledgerBreak{
		kill, c.killPod, c.stopPod, c.stopPod, c.drainPod,
		c.dropDevices, c.dropDevices, c.dropDevices, c.sleepDevices, c.sleepDevices, c.sleepDevices,
	}, others...)
	waitFor(ctx, 2*time.Second)
	c.inject(ctx, kill) // a short run has it, too
	for ctx.Err() == nil {
		c.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, fault := range faults {
			if ctx.Err() != nil {
				return
			}
			c.inject(ctx, fault)
		}
	}
}

// inject breaks one thing, and waits a moment afterwards.
func (c *ledgerChaos) inject(ctx context.Context, fault ledgerBreak) {
	from := time.Now()
	f := fault(ctx)
	f.from, f.to = from, time.Now()
	add(c.book, &c.book.faults, f)
	c.t.Logf("%s %s, %v", from.Format("15:04:05.000"), f.name, f.to.Sub(from).Round(time.Millisecond))
	waitFor(ctx, c.between(300*time.Millisecond, 1500*time.Millisecond))
}

func (c *ledgerChaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64(most-least)))
}

// pick returns a pod.
func (c *ledgerChaos) pick() (int, *pod) {
	i := c.random.IntN(len(c.fleet.pods))
	return i, c.fleet.pods[i]
}

func (c *ledgerChaos) killPod(context.Context) ledgerFault {
	i, p := c.pick()
	p.signal(syscall.SIGKILL)
	p.exit(c.t)
	c.fleet.restart(c.t, i)
	return ledgerFault{name: "kill -9 " + p.id, pod: p.url}
}

// stopPod stops a pod for less than its lease, or longer.
func (c *ledgerChaos) stopPod(ctx context.Context) ledgerFault {
	_, p := c.pick()
	p.signal(syscall.SIGSTOP)
	waitFor(ctx, c.between(300*time.Millisecond, 5*time.Second))
	p.signal(syscall.SIGCONT)
	return ledgerFault{name: "stopped " + p.id, pod: p.url}
}

func (c *ledgerChaos) drainPod(context.Context) ledgerFault {
	i, p := c.pick()
	p.signal(syscall.SIGTERM)
	if code := p.exit(c.t); code != 0 {
		c.t.Errorf("a drained pod exited with %d", code)
	}
	c.fleet.restart(c.t, i)
	return ledgerFault{name: "drained " + p.id, pod: p.url}
}

func (c *ledgerChaos) killRedis(context.Context) ledgerFault {
	c.fleet.redis.Kill()
	c.fleet.redis.Restart()
	return ledgerFault{name: "killed Redis", wipes: !c.keeps, store: true}
}

// killPrimary has Sentinel promote the replica. The old primary comes back empty, and follows.
func (c *ledgerChaos) killPrimary(context.Context) ledgerFault {
	c.fleet.redis.Kill()
	c.fleet.failOver(c.t, c.fleet.redis.Restart)
	return ledgerFault{name: "killed the primary", failover: true, store: true}
}

// freezePrimary does the same, but the old primary comes back with connections of before, and takes writes for a
// second.
func (c *ledgerChaos) freezePrimary(ctx context.Context) ledgerFault {
	old := c.fleet.redis
	old.Pause()
	c.fleet.failOver(c.t, func() {
		old.Resume()
		waitFor(ctx, time.Second)
	})
	return ledgerFault{name: "froze the primary", failover: true, store: true}
}

func (c *ledgerChaos) freezeRedis(ctx context.Context) ledgerFault {
	c.fleet.redis.Pause()
	waitFor(ctx, c.between(200*time.Millisecond, 2500*time.Millisecond))
	c.fleet.redis.Resume()
	return ledgerFault{name: "froze Redis", store: true}
}

func (c *ledgerChaos) cutRedis(ctx context.Context) ledgerFault {
	c.fleet.proxy.Stop()
	waitFor(ctx, c.between(300*time.Millisecond, 1300*time.Millisecond))
	if err := c.fleet.proxy.Start(); err != nil {
		c.t.Errorf("proxy: %v", err)
	}
	return ledgerFault{name: "cut Redis off", store: true}
}

func (c *ledgerChaos) slowRedis(ctx context.Context) ledgerFault {
	c.fleet.proxy.Slow(60 * time.Millisecond)
	waitFor(ctx, time.Second)
	c.fleet.proxy.Slow(0)
	return ledgerFault{name: "slowed Redis down", store: true}
}

func (c *ledgerChaos) flush(context.Context) ledgerFault {
	_, _ = c.fleet.redis.Command("FLUSHALL")
	return ledgerFault{name: "emptied Redis", wipes: true}
}

// dropDevices has some devices lose their connections, and come back to another pod or the same.
func (c *ledgerChaos) dropDevices(ctx context.Context) ledgerFault {
	for range 4 {
		c.devices[c.random.IntN(len(c.devices))].drop()
		waitFor(ctx, c.between(0, 200*time.Millisecond))
	}
	return ledgerFault{name: "dropped devices"}
}

// sleepDevices has some devices leave for a time, and come back to any pod.
func (c *ledgerChaos) sleepDevices(ctx context.Context) ledgerFault {
	for range 4 {
		c.devices[c.random.IntN(len(c.devices))].sleep(c.between(500*time.Millisecond, 5*time.Second))
		waitFor(ctx, c.between(0, 200*time.Millisecond))
	}
	return ledgerFault{name: "devices sleep"}
}
