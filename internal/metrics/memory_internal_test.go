package metrics

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

// TestMemoryLimit: the least of GOMEMLIMIT, the own cgroup and those above it.
func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		goLimit int64
		files   map[string]string
		want    int64
	}{
		"no cgroups": {math.MaxInt64, nil, 0},
		"GOMEMLIMIT": {500, nil, 500},
		"version 2": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "0::/system.slice/farhand\n",
			"sys/fs/cgroup/system.slice/farhand/memory.max": "max\n",
			"sys/fs/cgroup/system.slice/memory.max":         "3000\n",
		}, 3000},
		"in a container": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4000\n",
		}, 4000},
		"version 1": {6000, map[string]string{
			"proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/ab\n",
			"sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes": "5000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":           "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":         "1\n",
		}, 5000},
		"version 1 without a limit": {math.MaxInt64, map[string]string{
			"proc/self/cgroup": "2:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0},
	} {
		root := fstest.MapFS{}
		for path, text := range c.files {
			root[path] = &fstest.MapFile{Data: []byte(text)}
		}
		before := debug.SetMemoryLimit(c.goLimit)
		got := memoryLimit(root)
		debug.SetMemoryLimit(before)
		if got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
