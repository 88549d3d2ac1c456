package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// machine is how much processor time was used since the machine started.
type machine struct {
	all    time.Duration // that all cores had
	others time.Duration // that processes used which are not of this test
}

// lookAtMachine needs Linux, as the attack suite does.
func lookAtMachine(t *testing.T) machine {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var m machine
	// user, nice, system, idle, iowait, irq, softirq, steal; the rest is counted in these already
	for i, field := range strings.Fields(line)[1:9] {
		d := ticks(t, field)
		m.all += d
		if i != 3 && i != 4 {
			m.others += d
		}
	}
	m.others -= familyTime(t)
	return m
}

// leftSince returns the share of the machine, above 0 and at most 1, that others left to this test.
func (m machine) leftSince(before machine) float64 {
	return min(1, max(0.05, 1-float64(m.others-before.others)/float64(m.all-before.all)))
}

// tooManyLate reports whether too many of the calls were late for the store: any while more than half of the machine
// was left, else more than one, and more than one in a hundred.
func tooManyLate(late, calls int, left float64) bool {
	return late > 0 && (left > 0.5 || late > max(1, calls/100))
}

// patient makes calls again that the store, the other pod or the HTTP server did not answer in time, as happens on a
// machine that is busy with other work. On one that is not, check makes it a failure.
type patient struct {
	before machine
	again  atomic.Int64
}

func bePatient(t *testing.T) *patient { return &patient{before: lookAtMachine(t)} }

func (p *patient) call(t *testing.T, url, path, body string) answer {
	t.Helper()
	for began := time.Now(); ; p.again.Add(1) {
		status, raw, err := tryRequest(t, http.MethodPost, url+path, body)
		a := answer{status: status}
		if err == nil {
			err = json.Unmarshal(raw, &a)
		}
		late := err != nil || a.Code == "store_unavailable" || a.Code == "lost"
		if !late || time.Since(began) > waitLimit {
			return a
		}
	}
}

func (p *patient) check(t *testing.T) {
	t.Helper()
	left := lookAtMachine(t).leftSince(p.before)
	t.Logf("%d calls were made again; %.0f %% of the machine were left to this test", p.again.Load(), 100*left)
	if p.again.Load() > 0 && left > 0.5 {
		t.Errorf("%d calls were made again, though the machine was not busy", p.again.Load())
	}
}

// familyTime returns how long this process, those it started, and those they started have run.
func familyTime(t *testing.T) time.Duration {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	parents, times := make(map[string]string), make(map[string]time.Duration)
	for _, path := range paths {
		fields, err := statOf(path)
		if err != nil {
			continue // it has ended
		}
		pid := filepath.Base(filepath.Dir(path))
		parents[pid] = fields[1]
		for _, field := range fields[11:15] { // its own, and that of children that have ended
			times[pid] += ticks(t, field)
		}
	}
	var sum time.Duration
	self := strconv.Itoa(os.Getpid())
	for pid := range times {
		for of := pid; of != ""; of = parents[of] {
			if of == self {
				sum += times[pid]
				break
			}
		}
	}
	return sum
}

// cpuTime returns how long the pod's threads have run.
func cpuTime(t *testing.T, p *pod) time.Duration {
	t.Helper()
	fields, err := statOf(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return ticks(t, fields[11]) + ticks(t, fields[12])
}

// statOf returns the fields of a process's stat file that follow the name.
func statOf(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold spaces
	return strings.Fields(rest), err
}

// ticks reads a time in units of USER_HZ, which is 100 on every Linux.
func ticks(t *testing.T, field string) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(field)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * 10 * time.Millisecond
}
