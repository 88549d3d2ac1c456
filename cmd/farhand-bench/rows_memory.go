package main

import (
	"context"
	"fmt"
	"time"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// Limits of an idle session with five tools.
const (
	podSessionBytes   = 14_000
	redisSessionBytes = 1_000
	idleTools         = 5
	idleSettle        = 1500 * time.Millisecond // for writes after a registration
	quickSettle       = 100 * time.Millisecond
)

// idleFigures are bytes for each idle session.
type idleFigures struct {
	sessions   int
	resident   float64 // of the pod
	heap       float64 // of the pod
	stacks     float64 // of the pod
	goroutines float64
	redis      float64
	connect    time.Duration // of all of them
}

// idleMemory measures the memory of idle sessions, each time in a fresh pod and a fresh Redis.
func (l *lab) idleMemory(ctx context.Context) (idleFigures, error) {
	sessions := quickOr(l.options, 100, 10_000)
	var runs []idleFigures
	for range min(l.Repeat, slowRepeat) {
		m, err := l.idleOnce(ctx, sessions)
		if err != nil {
			return m, err
		}
		l.Step("%d idle sessions: %.1f KB resident (heap %.1f, stacks %.1f), %.0f bytes in Redis, each",
			sessions, m.resident/1e3, m.heap/1e3, m.stacks/1e3, m.redis)
		runs = append(runs, m)
	}
	median := func(figure func(idleFigures) float64) float64 { return bench.MedianOf(runs, figure) }
	return idleFigures{
		sessions:   sessions,
		resident:   median(func(m idleFigures) float64 { return m.resident }),
		heap:       median(func(m idleFigures) float64 { return m.heap }),
		stacks:     median(func(m idleFigures) float64 { return m.stacks }),
		redis:      median(func(m idleFigures) float64 { return m.redis }),
		goroutines: median(func(m idleFigures) float64 { return m.goroutines }),
	}, nil
}

func (o *options) idleOnce(ctx context.Context, sessions int) (idleFigures, error) {
	f, err := o.startFleet(ctx, 1)
	if err != nil {
		return idleFigures{}, err
	}
	defer f.close()
	m, devices, err := f.connectIdle(ctx, o, sessions/2, sessions, idleTools)
	if err != nil {
		return m, err
	}
	defer devices.Close()
	return m, f.profile("idle", f.pods, nil)
}

// connectIdle connects idle devices and returns the memory of each. It first connects others, so that memory that a pod
// needs only once is allocated before the first measurement. The swarm has all devices. The caller must close it.
func (f *fleet) connectIdle(
	ctx context.Context, o *options, others, sessions, tools int,
) (m idleFigures, devices *bench.Swarm, err error) {
	url := f.pods[0].url
	swarm, err := bench.ConnectSwarm(ctx, url, benchToken, "first", max(others, 10), tools)
	if err != nil {
		return m, nil, err
	}
	defer func() {
		if err != nil { // the named results may be nil here
			swarm.Close()
		}
	}()
	before, err := f.weigh(ctx)
	if err != nil {
		return m, nil, err
	}
	o.Note("connecting %d devices with %d tools", sessions, tools)
	began := time.Now()
	if err := swarm.Add(url, "idle", sessions); err != nil {
		return m, nil, err
	}
	m.sessions, m.connect = sessions, time.Since(began)
	after, err := f.weigh(ctx)
	if err != nil {
		return m, nil, err
	}
	n := float64(sessions)
	m.resident, m.redis = (after.resident-before.resident)/n, (after.redis-before.redis)/n
	m.heap, m.stacks = (after.heap-before.heap)/n, (after.stacks-before.stacks)/n
	m.goroutines = (after.goroutines - before.goroutines) / n
	return m, swarm, swarm.Lost()
}

// weight is the memory of a fleet of one pod, in bytes.
type weight struct {
	heap, stacks, goroutines, resident, redis float64
}

// weigh lets the fleet settle, makes the pod collect its garbage, and reads the remaining memory.
func (f *fleet) weigh(ctx context.Context) (w weight, err error) {
	time.Sleep(f.settle)
	use, err := f.pods[0].memory()
	if err != nil {
		return w, err
	}
	process, err := bench.ReadProcess(ctx, f.pods[0].pid())
	if err != nil {
		return w, err
	}
	redis, err := f.probe.memoryOfSessions(ctx)
	return weight{
		heap: float64(use.Heap), stacks: float64(use.Stacks), goroutines: float64(use.Goroutines),
		resident: float64(process.Resident), redis: float64(redis),
	}, err
}

// rowPodMemory measures by how much the process grows with each idle session.
func rowPodMemory(_ context.Context, l *lab) ([]verdict, error) {
	m, err := l.memory()
	if err != nil {
		return nil, err
	}
	return []verdict{{
		What: "memory per idle session with five tools, in the pod", Target: "≤ 14 KB",
		Met: m.resident <= podSessionBytes, Measured: fmt.Sprintf("%.1f KB", m.resident/1e3),
		Detail: fmt.Sprintf("growth of the resident set with %d sessions, after the pod collected its garbage and "+
			"gave back what is free; in use: heap %.1f KB, stacks %.1f KB; goroutines: %.1f",
			m.sessions, m.heap/1e3, m.stacks/1e3, m.goroutines),
	}}, nil
}

// rowRedisMemory measures by how much Redis grows with each idle session.
func rowRedisMemory(_ context.Context, l *lab) ([]verdict, error) {
	m, err := l.memory()
	if err != nil {
		return nil, err
	}
	return []verdict{{
		What: "the same, in Redis", Target: "≤ 1 KB",
		Met: m.redis <= redisSessionBytes, Measured: fmt.Sprintf("%.0f bytes", m.redis),
		Detail: "growth of used_memory without clients' buffers and without the capped feed of activity",
	}}, nil
}
