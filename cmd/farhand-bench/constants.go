package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
	"github.com/farhand/farhand/cmd/farhand/capacity"
)

const (
	smallPayload = 100
	largePayload = 10_000
)

// writeConstants measures what capacity.Constants has, and writes it to a file.
func writeConstants(ctx context.Context, o *options, path string) error {
	c := capacity.Constants{
		Machine: machine(), Commit: commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
	}
	for _, measure := range []func(context.Context, *options, *capacity.Constants) error{
		callConstants, connectConstants, idleConstants,
	} {
		if err := measure(ctx, o, &c); err != nil {
			return err
		}
	}
	if err := c.Check(); err != nil && !o.Quick { // figures of quick runs mean nothing
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// callConstants measures calls across pods with two payloads.
func callConstants(ctx context.Context, o *options, c *capacity.Constants) error {
	var pods, redis [2]float64 // microseconds for each call
	for i, payload := range []int{smallPayload, largePayload} {
		o.Step("measuring calls with %d bytes", payload)
		with := *o
		with.Payload = payload
		fig, err := with.crossCalls(ctx, fewCallers)
		if err != nil {
			return err
		}
		for _, u := range fig.Usage[:max(len(fig.Usage)-1, 0)] { // the last is Redis
			pods[i] += u.CPU / fig.PerSecond * 1e6
		}
		redis[i] = redisTotal(fig.Redis).Micros / float64(fig.AllCalls)
	}
	const more = (largePayload - smallPayload) / 1000.0
	c.CallPod, c.CallPodKB = rounded(pods[0]), rounded(max(pods[1]-pods[0], 0)/more)
	c.CallRedis, c.CallRedisKB = rounded(redis[0]), rounded(max(redis[1]-redis[0], 0)/more)
	return nil
}

func connectConstants(ctx context.Context, o *options, c *capacity.Constants) error {
	o.Step("measuring devices that come back")
	storms, _, err := (&lab{options: o}).storms(ctx, quickOr(o, 50, stormDevices))
	if err != nil {
		return err
	}
	c.ConnectPod = rounded(bench.MedianOf(storms, func(s storm) float64 { return micros(s.cpu) }))
	c.ConnectRedis = rounded(bench.MedianOf(storms, func(s storm) float64 { return s.micros }))
	return nil
}

// idleConstants measures what a session takes that does nothing.
func idleConstants(ctx context.Context, o *options, c *capacity.Constants) error {
	o.Step("measuring idle sessions")
	sessions := quickOr(o, 50, residentSessions)
	interval, setting := o.beatSettings()
	f, err := o.startFleet(ctx, 1, setting)
	if err != nil {
		return err
	}
	defer f.close()
	m, devices, err := f.connectIdle(ctx, o, sessions/20, sessions, idleTools)
	if err != nil {
		return err
	}
	defer devices.Close()
	watch, err := bench.StartWatch(ctx, pids(f.pods), f.probe.RedisProbe)
	if err != nil {
		return err
	}
	began := time.Now()
	b, err := f.heartbeat(ctx, len(devices.Sessions()), time.Duration(quickOr(o, 1, 3))*interval)
	if err != nil {
		return err
	}
	refreshes := float64(b.sessions) * float64(time.Since(began)) / float64(interval)
	use, err := watch.RedisUse(ctx)
	if err != nil {
		return err
	}
	c.SessionPod, c.SessionRedis = rounded(m.resident), rounded(m.redis)
	c.RefreshPod = rounded(b.podCPU * micros(interval) / float64(b.sessions))
	c.RefreshRedis = rounded(redisTotal(use).Micros / refreshes)
	c.Redis = redisVersion(ctx)
	return nil
}

// rounded keeps two decimals.
func rounded(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }

func redisVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if fields := strings.Fields(string(out)); err == nil && len(fields) > 2 {
		return strings.TrimPrefix(fields[2], "v=")
	}
	return "unknown"
}

// commit returns the commit of the working tree, and whether it has changes.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// machine names the processor, as Linux does.
func machine() string {
	model := runtime.GOARCH
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer file.Close() //nolint:errcheck // it was only read
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, shared with Redis, devices and callers", model, runtime.NumCPU())
}
