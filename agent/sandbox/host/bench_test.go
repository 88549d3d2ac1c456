//go:build linux

package host_test

import (
	"bytes"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/sandbox"
	"github.com/farhand/farhand/agent/sandbox/host"
)

// BenchmarkTrue prints the median of running true, by os/exec and by both forms of the engine, in turns.
func BenchmarkTrue(b *testing.B) {
	w := newWorkspace(b)
	limits := sandbox.Limits{Memory: 1 << 30, Processes: 64, CPU: time.Minute, FileSize: 1 << 30}
	command := sandbox.Command{Args: []string{"/usr/bin/true"}, Limits: limits}
	engine := newEngine(b, host.Config{})
	ways := []struct {
		name string
		run  func()
	}{
		{"exec-ns", func() {
			var stdout, stderr bytes.Buffer
			cmd := exec.Command("/usr/bin/true")
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}},
		{"host-ns", func() { run(b, engine, w, command) }},
	}
	if host.Probe() == nil {
		confined := newEngine(b, host.Config{Landlock: true})
		ways = append(ways, struct {
			name string
			run  func()
		}{"landlock-ns", func() { run(b, confined, w, command) }})
	}
	times := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, way := range ways {
			start := time.Now()
			way.run()
			times[i] = append(times[i], time.Since(start))
		}
	}
	for i, way := range ways {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][len(times[i])/2]), way.name)
	}
}
