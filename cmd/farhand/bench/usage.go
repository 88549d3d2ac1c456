package bench

import (
	"context"
	"strconv"
	"time"
)

// Usage is what one process used during a measurement.
type Usage struct {
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"`    // share of one core
	Memory int64   `json:"memory"` // resident bytes at the end; Redis: used_memory
}

// ProcessUse is what a process has used since its start.
type ProcessUse struct {
	CPU      time.Duration
	Resident int64 // bytes, now
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
	name string
	pid  int
	cpu  time.Duration // used before
	at   time.Time
}

// StartWatch starts to watch the pods with these process ids, and a Redis unless redis is nil. Processes that cannot be
// read are left out.
func StartWatch(ctx context.Context, pids []int, redis *RedisProbe) (*Watch, error) {
	w := &Watch{redis: redis}
	for i, pid := range pids {
		if use, err := ReadProcess(ctx, pid); err == nil {
			w.pods = append(w.pods, watched{name: "pod" + strconv.Itoa(i), pid: pid, cpu: use.CPU, at: time.Now()})
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
		if use, err := ReadProcess(ctx, p.pid); err == nil {
			share := (use.CPU - p.cpu).Seconds() / time.Since(p.at).Seconds()
			list = append(list, Usage{Name: p.name, CPU: share, Memory: use.Resident})
		}
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
