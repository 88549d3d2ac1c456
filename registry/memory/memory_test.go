package memory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
	"github.com/farhand/farhand/registry/registrytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryConformance(t *testing.T) {
	registrytest.Run(t, func(_ *testing.T, o registrytest.Options) (registry.Store, func() registry.Bus) {
		m := memory.New(memory.Options{
			SessionTTL: o.SessionTTL, PodLease: o.PodLease,
			Retention: o.Retention, IdempotencyTTL: o.IdempotencyTTL, ActivityCap: o.ActivityCap, ActivityBytes: o.ActivityBytes,
			HistoryTTL: o.HistoryTTL, HistoryCap: o.HistoryCap,
		})
		return m, func() registry.Bus { return m.NewBus() }
	})
}
