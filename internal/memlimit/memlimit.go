// Package memlimit says how much memory this process may use.
package memlimit

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// Bytes returns how many bytes of memory this process may use: the least of GOMEMLIMIT, the limits of its control
// groups and the machine's memory, as far as the system tells. It is 0 if nothing is known, as on other systems than
// Linux.
func Bytes() int64 {
	return under("/", debug.SetMemoryLimit(-1)) // a negative limit changes nothing
}

// under returns what Bytes does, for a file system below root and a limit of Go's.
func under(root string, goLimit int64) int64 {
	least := int64(math.MaxInt64)
	lower := func(n int64) {
		if n > 0 {
			least = min(least, n)
		}
	}
	lower(goLimit)
	read := func(path ...string) string {
		text, _ := os.ReadFile(filepath.Join(append([]string{root}, path...)...)) // what is not there limits nothing
		return string(text)
	}
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64) // "max" is no limit
		return n
	}
	for line := range strings.Lines(read("proc/meminfo")) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			lower(1024 * number(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
		}
	}
	for line := range strings.Lines(read("proc/self/cgroup")) {
		_, group, _ := strings.Cut(strings.TrimSpace(line), ":")
		controller, at, _ := strings.Cut(group, ":")
		dir, file := "sys/fs/cgroup", "memory.max"
		switch controller {
		case "": // version 2
		case "memory":
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at = filepath.Clean("/" + at); ; at = filepath.Dir(at) {
			lower(number(read(dir, at, file)))
			if at == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}
