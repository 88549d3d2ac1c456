package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what one process used while something ran.
type Usage struct {
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"`    // share of one core
	Memory int64   `json:"memory"` // resident bytes at the end; Redis: used_memory
}

// clockTicks is how many ticks of /proc/PID/stat make a second, on every Linux there is.
const clockTicks = 100

// Watch is some processes whose use of the machine is of interest.
type Watch []watched

// watched is a process whose use of the machine is of interest.
type watched struct {
	name string
	pid  int
	cpu  time.Duration
	at   time.Time
}

// WatchPIDs starts to watch. Processes that cannot be read, or a machine without /proc, are left out.
func WatchPIDs(names []string, pids []int) Watch {
	var all Watch
	for i, pid := range pids {
		if cpu, err := cpuTime(pid); err == nil {
			all = append(all, watched{name: names[i], pid: pid, cpu: cpu, at: time.Now()})
		}
	}
	return all
}

// Usage returns what the processes used since they are watched.
func (all Watch) Usage() []Usage {
	var list []Usage
	for _, w := range all {
		cpu, err := cpuTime(w.pid)
		if err != nil {
			continue
		}
		rss, _ := ResidentBytes(w.pid)
		list = append(list, Usage{Name: w.name, CPU: (cpu - w.cpu).Seconds() / time.Since(w.at).Seconds(), Memory: rss})
	}
	return list
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

// cpuTime returns the CPU time, user and system, a process has used so far.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; the fields after it are numbers.
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / clockTicks, nil
}

// ResidentBytes returns the memory of a process that is in RAM.
func ResidentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == "Rss:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/smaps_rollup has no Rss", pid)
}
