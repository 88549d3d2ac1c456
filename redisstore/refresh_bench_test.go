package redisstore

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// BenchmarkRefresh refreshes sessions of a pod 256 at a time, as a pod does, each with a pong since the last time.
// B/session is the garbage of one session.
func BenchmarkRefresh(b *testing.B) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.Skip("redis-server is not on the PATH")
	}
	five, shapes := distinctSpecs(b, 5), distinctSpecs(b, 1000)
	for _, c := range []struct {
		name     string
		sessions int
		tools    func(i int) []registry.ToolSpec
	}{
		{"5_tools_of_all", 2048, func(int) []registry.ToolSpec { return five }},
		{"100_tools_of_1000", 512, func(i int) []registry.ToolSpec {
			first := i * 7919 % len(shapes)
			list := slices.Concat(shapes, shapes)[first : first+100]
			slices.SortFunc(list, func(x, y registry.ToolSpec) int { return strings.Compare(x.Name, y.Name) })
			return list
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := storeOn(b, Options{Limits: registry.Limits{SessionTTL: longTTL}})
			heartbeat(b, s, "pod")
			entries := benchEntries(b, s, c.sessions, c.tools)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for at := time.Now(); b.Loop(); at = at.Add(20 * time.Second) {
				for i := range entries {
					entries[i].Pulse = registry.NewPulse(at.Add(time.Duration(i)*time.Millisecond), 40*time.Millisecond)
				}
				for batch := range slices.Chunk(entries, refreshChunk) {
					missing, lost, err := s.Refresh(context.Background(), batch)
					if err != nil || len(missing)+len(lost) != 0 {
						b.Fatal(len(missing), len(lost), err)
					}
				}
			}
			runtime.ReadMemStats(&after)
			perSession := float64(b.N * c.sessions)
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/perSession, "B/session")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/perSession, "allocs/session")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/perSession, "µs/session")
		})
	}
}

// benchEntries claims sessions, and returns them with their tools.
func benchEntries(b *testing.B, s *Store, n int, tools func(i int) []registry.ToolSpec) []registry.Entry {
	b.Helper()
	entries := make([]registry.Entry, n)
	var fill sync.WaitGroup
	for w := range 16 {
		fill.Go(func() {
			for i := w; i < n; i += 16 {
				entries[i] = putTools(b, s, claim(b, s, fmt.Sprintf("s%d", i), "pod"), tools(i)...)
			}
		})
	}
	fill.Wait()
	return entries
}
