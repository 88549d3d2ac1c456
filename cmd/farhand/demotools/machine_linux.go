package demotools

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

func readFacts() facts {
	release := readPairs("/etc/os-release", "=")
	f := facts{
		platform: release["ID"], version: release["VERSION_ID"], kernel: readText("/proc/sys/kernel/osrelease"),
	}
	if f.platform == "debian" { // names its point releases only here
		f.version = cmp.Or(readText("/etc/debian_version"), f.version)
	}
	var seconds float64
	if _, err := fmt.Sscan(readText("/proc/uptime"), &seconds); err == nil {
		f.uptime = time.Duration(seconds) * time.Second
	}
	var l loadReading
	if _, err := fmt.Sscan(readText("/proc/loadavg"), &l.One, &l.Five, &l.Fifteen); err == nil {
		f.load = &l
	}
	memory := readPairs("/proc/meminfo", ":")
	if total := kilobytes(memory["MemTotal"]); total > 0 {
		f.memory = &memoryReading{Total: total, Available: kilobytes(memory["MemAvailable"])}
	}
	return f
}

// readPairs returns the values of a file by their names, which stand before the separator on each line.
func readPairs(path, separator string) map[string]string {
	pairs := make(map[string]string)
	for line := range strings.Lines(readText(path)) {
		name, value, _ := strings.Cut(line, separator)
		pairs[name] = strings.Trim(value, "\" \n")
	}
	return pairs
}

// kilobytes returns the bytes of a text like "1024 kB", 0 for others.
func kilobytes(text string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(text, " kB"), 10, 64)
	return n << 10
}
