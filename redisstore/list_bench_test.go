package redisstore

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"testing"

	"github.com/farhand/farhand/registry"
)

// BenchmarkListing reads listings of 10,000 sessions with five tools each from a Redis.
func BenchmarkListing(b *testing.B) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.Skip("redis-server is not on the PATH")
	}
	const sessions = 10_000
	s := storeOn(b, Options{})
	heartbeat(b, s, "pod-a")
	specs := make([]registry.ToolSpec, 5)
	for i := range specs {
		specs[i] = spec(b, fmt.Sprintf("tool_%d", i), "reads something and returns it")
	}
	var fill sync.WaitGroup
	for w := range 32 {
		fill.Go(func() {
			for i := w; i < sessions; i += 32 {
				putTools(b, s, claim(b, s, fmt.Sprintf("s%d", i), "pod-a"), specs...)
			}
		})
	}
	fill.Wait()
	ctx := context.Background()
	b.Run("grouped", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			groups, _, err := s.OfferedTools(ctx, registry.OfferedToolQuery{Tenant: tenant})
			if err != nil || len(groups) != len(specs) {
				b.Fatal(len(groups), err)
			}
		}
	})
	for name, q := range map[string]registry.Query{
		"page_of_100": {Tenant: tenant, Limit: 100},
		"one_session": {Tenant: tenant, Target: registry.Target{SessionID: "s77"}},
		"one_device":  {Tenant: tenant, Target: registry.Target{DeviceID: "device-s77"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if entries, _, err := s.List(ctx, q); err != nil || len(entries) == 0 {
					b.Fatal(len(entries), err)
				}
			}
		})
	}
}
