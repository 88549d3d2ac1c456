package bench

import (
	"context"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// Usage is what one process used during a measurement.
type Usage struct {
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"`    // share of one core
	Memory int64   `json:"memory"` // resident bytes at the end; Redis: used_memory
}

// Watch measures the usage of pods and a Redis.
type Watch struct {
	pods   []watched
	redis  *RedisProbe // may be nil
	before RedisLoad
	used   RedisUse // before
}

// watched is the process of a pod.
type watched struct {
	name    string
	process *process.Process
	cpu     float64 // seconds used before
	at      time.Time
}

// StartWatch starts to watch the pods with these process ids, and a Redis unless redis is nil. Processes that cannot be
// read are left out.
func StartWatch(ctx context.Context, pids []int, redis *RedisProbe) (*Watch, error) {
	w := &Watch{redis: redis}
	for i, pid := range pids {
		p, err := process.NewProcessWithContext(ctx, int32(pid))
		if err != nil {
			continue
		}
		if times, err := p.TimesWithContext(ctx); err == nil {
			w.pods = append(w.pods, watched{
				name: "pod" + strconv.Itoa(i), process: p, cpu: times.User + times.System, at: time.Now(),
			})
		}
	}
	var err error
	if redis != nil {
		if w.before, err = redis.Load(ctx); err == nil {
			w.used, err = redis.Use(ctx)
		}
	}
	return w, err
}

// RedisUse returns what Redis did since StartWatch. It returns nil if no Redis is watched.
func (w *Watch) RedisUse(ctx context.Context) (RedisUse, error) {
	if w.redis == nil {
		return nil, nil
	}
	now, err := w.redis.Use(ctx)
	if err != nil {
		return nil, err
	}
	return now.Since(w.used), nil
}

// Usage returns the usage since StartWatch: the pods in their order, then Redis.
func (w *Watch) Usage(ctx context.Context) ([]Usage, error) {
	var list []Usage
	for _, p := range w.pods {
		times, err := p.process.TimesWithContext(ctx)
		if err != nil {
			continue
		}
		u := Usage{Name: p.name, CPU: (times.User + times.System - p.cpu) / time.Since(p.at).Seconds()}
		if memory, err := p.process.MemoryInfoWithContext(ctx); err == nil {
			u.Memory = int64(memory.RSS)
		}
		list = append(list, u)
	}
	if w.redis == nil {
		return list, nil
	}
	after, err := w.redis.Load(ctx)
	if err != nil {
		return nil, err
	}
	seconds := after.At.Sub(w.before.At).Seconds()
	cpu := (after.CPU - w.before.CPU).Seconds() / seconds
	return append(list, Usage{Name: "redis", CPU: cpu, Memory: after.Memory}), nil
}

// ResidentBytes returns the resident memory of a process.
func ResidentBytes(ctx context.Context, pid int) (int64, error) {
	p, err := process.NewProcessWithContext(ctx, int32(pid))
	if err != nil {
		return 0, err
	}
	memory, err := p.MemoryInfoWithContext(ctx)
	if err != nil {
		return 0, err
	}
	return int64(memory.RSS), nil
}

func medianUsage(runs []Figures) []Usage {
	var list []Usage
	for i, u := range runs[0].Usage {
		for _, r := range runs {
			if len(r.Usage) != len(runs[0].Usage) {
				return runs[0].Usage // a process came or went in between
			}
		}
		u.CPU = MedianOf(runs, func(r Figures) float64 { return r.Usage[i].CPU })
		u.Memory = MedianOf(runs, func(r Figures) int64 { return r.Usage[i].Memory })
		list = append(list, u)
	}
	return list
}
