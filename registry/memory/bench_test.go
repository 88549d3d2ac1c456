package memory_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// BenchmarkListing reads listings of 10,000 sessions with five tools each from the in-memory store.
func BenchmarkListing(b *testing.B) {
	ctx, m := context.Background(), memory.New(memory.Options{})
	if _, err := m.Heartbeat(ctx, "pod-a"); err != nil {
		b.Fatal(err)
	}
	specs := make([]registry.ToolSpec, 5)
	for i := range specs {
		var err error
		specs[i], err = registry.ToolSpec{
			Name: fmt.Sprintf("tool_%d", i), Description: "reads something and returns it",
			Parameters: json.RawMessage(`{"type":"object"}`),
		}.Normalize()
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := range 10_000 {
		id := fmt.Sprintf("s%d", i)
		c, err := m.Claim(ctx, registry.Session{
			Key: registry.Key{Tenant: registry.DefaultTenant, Session: id}, Pod: "pod-a", DeviceID: "device-" + id,
		})
		if err == nil {
			err = m.SetTools(ctx, c.Session, specs)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("grouped", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			groups, _, err := m.OfferedTools(ctx, registry.OfferedToolQuery{Tenant: registry.DefaultTenant})
			if err != nil || len(groups) != len(specs) {
				b.Fatal(len(groups), err)
			}
		}
	})
	for name, q := range map[string]registry.Query{
		"page_of_100": {Tenant: registry.DefaultTenant, Limit: 100},
		"one_session": {Tenant: registry.DefaultTenant, Target: registry.Target{SessionID: "s77"}},
		"one_device":  {Tenant: registry.DefaultTenant, Target: registry.Target{DeviceID: "device-s77"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if entries, _, err := m.List(ctx, q); err != nil || len(entries) == 0 {
					b.Fatal(len(entries), err)
				}
			}
		})
	}
}
