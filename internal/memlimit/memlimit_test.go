package memlimit

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestTheLeastLimitCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		files   map[string]string
		goLimit int64
		want    int64
	}{
		"nothing is known": {nil, math.MaxInt64, 0},
		"the machine": {map[string]string{"proc/meminfo": "MemTotal:       2048 kB\nMemFree: 1 kB\n"},
			math.MaxInt64, 2 << 20},
		"GOMEMLIMIT": {map[string]string{"proc/meminfo": "MemTotal: 2048 kB\n"}, 1000, 1000},
		"a parent group": {map[string]string{"proc/meminfo": "MemTotal: 2048 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1048576\n"},
			math.MaxInt64, 1 << 20},
		"a container": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "512\n"},
			math.MaxInt64, 512},
		"version 1": {map[string]string{
			"proc/self/cgroup": "3:cpu:/x\n2:memory:/docker/ab\n",
			"sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes": "700\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":           "9223372036854771712\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":         "1\n",
		}, math.MaxInt64, 700},
	} {
		root := t.TempDir()
		for file, text := range tt.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := under(root, tt.goLimit); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
	if Bytes() < 0 {
		t.Error("this machine's limit is negative")
	}
}
