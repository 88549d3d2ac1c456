package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// Bounds of what an idle session with five tools takes.
const (
	podSessionBytes   = 14_000
	redisSessionBytes = 1_000
	idleTools         = 5
	idleSettle        = 1500 * time.Millisecond // for what is written after a registration
	quickSettle       = 100 * time.Millisecond
)

// memoryFigures are bytes for each idle session.
type memoryFigures struct {
	sessions   int
	resident   float64 // of the pod
	heap       float64 // of the pod
	stacks     float64 // of the pod
	redis      float64
	goroutines float64
}

// idleMemory measures what idle sessions take, each time in a fresh pod and a fresh Redis.
func (l *lab) idleMemory(ctx context.Context) (memoryFigures, error) {
	sessions := 10_000
	if l.Quick {
		sessions = 100
	}
	var runs []memoryFigures
	for range l.Repeat {
		f, err := l.idleOnce(ctx, sessions, idleTools)
		if err != nil {
			return f, err
		}
		l.Step("%d idle sessions: %.1f KB resident (heap %.1f, stacks %.1f), %.0f bytes in Redis, each",
			sessions, f.resident/1e3, f.heap/1e3, f.stacks/1e3, f.redis)
		runs = append(runs, f)
	}
	return memoryFigures{
		sessions:   sessions,
		resident:   bench.MedianOf(runs, func(f memoryFigures) float64 { return f.resident }),
		heap:       bench.MedianOf(runs, func(f memoryFigures) float64 { return f.heap }),
		stacks:     bench.MedianOf(runs, func(f memoryFigures) float64 { return f.stacks }),
		redis:      bench.MedianOf(runs, func(f memoryFigures) float64 { return f.redis }),
		goroutines: bench.MedianOf(runs, func(f memoryFigures) float64 { return f.goroutines }),
	}, nil
}

// idleOnce connects some sessions first, so that what a pod needs once is there before it is weighed.
func (o *options) idleOnce(ctx context.Context, sessions, tools int) (memoryFigures, error) {
	m := memoryFigures{sessions: sessions}
	f, err := o.startFleet(ctx, 1)
	if err != nil {
		return m, err
	}
	defer f.close()
	devices, err := bench.ConnectSwarm(ctx, f.pods[0].url, benchToken, "first", max(sessions/2, 10), tools)
	if err != nil {
		return m, err
	}
	defer devices.Close()
	before, err := f.weigh(ctx)
	if err != nil {
		return m, err
	}
	o.Note("connecting %d devices with %d tools", sessions, tools)
	if err := devices.Add(f.pods[0].url, "idle", sessions); err != nil {
		return m, err
	}
	after, err := f.weigh(ctx)
	if err != nil {
		return m, err
	}
	each := func(before, after int64) float64 { return float64(after-before) / float64(sessions) }
	m.resident, m.redis = each(before.resident, after.resident), each(before.redis, after.redis)
	m.heap, m.stacks = each(int64(before.Heap), int64(after.Heap)), each(int64(before.Stacks), int64(after.Stacks))
	m.goroutines = each(int64(before.Goroutines), int64(after.Goroutines))
	if err := devices.Lost(); err != nil {
		return m, err
	}
	return m, f.profile("idle", f.pods, func() error { return nil })
}

// weight is what a fleet of one pod holds in memory.
type weight struct {
	memoryUse
	resident int64
	redis    int64
}

// weigh lets the fleet come to rest, has the pod collect its garbage, and then reads what is left.
func (f *fleet) weigh(ctx context.Context) (w weight, err error) {
	time.Sleep(f.settle)
	if w.memoryUse, err = f.pods[0].memory(); err != nil {
		return w, err
	}
	if w.resident, err = bench.ResidentBytes(f.pods[0].pid()); err != nil {
		return w, err
	}
	w.redis, err = f.probe.memoryOfSessions(ctx)
	return w, err
}

// rowPodMemory: what the process grows by with every idle session.
func rowPodMemory(_ context.Context, l *lab) ([]verdict, error) {
	m, err := l.memory()
	if err != nil {
		return nil, err
	}
	return []verdict{{
		What: "memory per idle session with five tools, in the pod", Target: "≤ 14 KB", Met: m.resident <= podSessionBytes,
		Measured: fmt.Sprintf("%.1f KB", m.resident/1e3),
		Detail: fmt.Sprintf("growth of the resident set (smaps_rollup) with %d sessions, after the pod collected its garbage and gave back what is free; "+
			"in use: heap %.1f KB, stacks %.1f KB; goroutines: %.1f", m.sessions, m.heap/1e3, m.stacks/1e3, m.goroutines),
	}}, nil
}

// rowRedisMemory: what Redis grows by with every idle session.
func rowRedisMemory(_ context.Context, l *lab) ([]verdict, error) {
	m, err := l.memory()
	if err != nil {
		return nil, err
	}
	return []verdict{{
		What: "the same, in Redis", Target: "≤ 1 KB", Met: m.redis <= redisSessionBytes, Measured: fmt.Sprintf("%.0f bytes", m.redis),
		Detail: "growth of used_memory without clients' buffers and without the capped feed of activity",
	}}, nil
}
