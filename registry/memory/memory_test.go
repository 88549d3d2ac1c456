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
	registrytest.Run(t, func(_ *testing.T, l registry.Limits) (registry.Store, func() registry.Bus) {
		m := memory.New(memory.Options{Limits: l})
		return m, func() registry.Bus { return m.NewBus() }
	})
}
