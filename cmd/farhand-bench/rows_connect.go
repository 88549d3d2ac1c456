package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// stormDevices is how many devices disconnect and reconnect at the same time.
const stormDevices = 4000

// storm is the cost of devices that disconnect and reconnect, for each of them.
type storm struct {
	perSecond float64
	commands  float64
	micros    float64 // in Redis, for those commands
	cpu       time.Duration
	redis     bench.RedisUse
}

// storms measures devices that lose their connections and reconnect, all at the same time. Redis knows their five
// tools. lost says that some did not come back.
func (l *lab) storms(ctx context.Context, devices int) (storms []storm, lost, err error) {
	f, err := l.startFleet(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	defer f.close()
	swarm, err := bench.ConnectSwarm(ctx, f.pods[0].url, benchToken, "storm", devices, idleTools)
	if err != nil {
		return nil, nil, err
	}
	defer func() { swarm.Close() }()
	for range min(l.Repeat, slowRepeat) {
		time.Sleep(f.settle) // background writes belong to the previous storm
		watch, err := bench.StartWatch(ctx, pids(f.pods), f.probe.RedisProbe)
		if err != nil {
			return nil, nil, err
		}
		began := time.Now()
		swarm.Close()
		back := time.Now()
		next, err := bench.ConnectSwarm(ctx, f.pods[0].url, benchToken, "storm", devices, idleTools)
		if err != nil {
			return nil, nil, err
		}
		swarm = next
		took := time.Since(back)
		time.Sleep(f.settle)
		s, err := stormCost(ctx, watch, devices, time.Since(began))
		if err != nil {
			return nil, nil, err
		}
		s.perSecond = float64(devices) / took.Seconds()
		l.Step("%d devices came back: %.0f/s, %.1f commands and %.0f µs of Redis, %s of the pod, each",
			devices, s.perSecond, s.commands, s.micros, bench.Short(s.cpu))
		storms = append(storms, s)
	}
	return storms, swarm.Lost(), nil
}

// rowConnects measures a storm of reconnects.
func rowConnects(ctx context.Context, l *lab) ([]verdict, error) {
	devices := quickOr(l.options, 50, stormDevices)
	storms, lost, err := l.storms(ctx, devices)
	if err != nil {
		return nil, err
	}
	median := func(of func(storm) float64) float64 { return bench.MedianOf(storms, of) }
	cpu := bench.MedianOf(storms, func(s storm) time.Duration { return s.cpu })
	return []verdict{{
		What:   fmt.Sprintf("%d devices with five known tools are dropped and come back", devices),
		Target: "no errors", Met: lost == nil,
		Measured: fmt.Sprintf("%.0f devices/s; each %.1f Redis commands, %.0f µs of Redis, %.0f µs of the pod",
			median(func(s storm) float64 { return s.perSecond }), median(func(s storm) float64 { return s.commands }),
			median(func(s storm) float64 { return s.micros }), micros(cpu)),
		Detail: "the end of the old connection and what is written in the background are in it; commands of scripts " +
			"count beside the script, in time, too; of the last storm, for each device: " +
			redisText(storms[len(storms)-1].redis, float64(devices)),
	}}, nil
}

// stormCost returns the usage for each device since the watch began, length ago.
func stormCost(ctx context.Context, watch *bench.Watch, devices int, length time.Duration) (s storm, err error) {
	if s.redis, err = watch.RedisUse(ctx); err != nil {
		return s, err
	}
	total := redisTotal(s.redis)
	s.commands, s.micros = total.Count/float64(devices), total.Micros/float64(devices)
	usage, err := watch.Usage(ctx)
	for _, u := range usage[:max(len(usage)-1, 0)] { // the last is Redis
		s.cpu += time.Duration(u.CPU * float64(length) / float64(devices))
	}
	return s, err
}
