package metrics

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// noLimit is above any memory. cgroups without a limit have one of almost 2^63 bytes.
const noLimit = math.MaxInt64 / 2

// memoryLimit returns how many bytes the process may use: GOMEMLIMIT or the limits of its cgroups, versions 1 and 2,
// whichever is least. It returns 0 without a limit. root is the root of the file system.
func memoryLimit(root fs.FS) int64 {
	limit := debug.SetMemoryLimit(-1)
	own, _ := fs.ReadFile(root, "proc/self/cgroup") // other systems have none
	for line := range strings.Lines(string(own)) {
		_, group, _ := strings.Cut(strings.TrimSpace(line), ":")
		controller, at, _ := strings.Cut(group, ":")
		dir, file := "sys/fs/cgroup", "memory.max"
		switch controller {
		case "memory":
			dir, file = dir+"/memory", "memory.limit_in_bytes"
		case "":
		default:
			continue
		}
		for at = path.Clean("/" + at); ; at = path.Dir(at) {
			text, _ := fs.ReadFile(root, path.Join(dir, at, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
			if at == "/" {
				break
			}
		}
	}
	if limit > noLimit {
		return 0
	}
	return limit
}

func memory(limit int64) []current {
	var all []series
	if limit > 0 {
		all = append(all, series{n: float64(limit)})
	}
	return []current{gauge("farhand_memory_limit_bytes",
		"Memory that the process may use: GOMEMLIMIT or the limit of its cgroup. Without a limit there is no series.",
		labeled(all))}
}

// readMemoryLimit reads the limit of this process. It may change while the process runs.
func readMemoryLimit() int64 { return memoryLimit(os.DirFS("/")) }
