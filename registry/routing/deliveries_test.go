package routing

import (
	"testing"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A tenant whose devices never end their queued calls takes half of a pod's deliveries; the other half is for others.
func TestDeliveriesAreShared(t *testing.T) {
	p := startPod(t, memory.New(memory.Options{}), "a")
	var held []*share.Grant
	defer func() {
		for _, g := range held {
			g.Release()
		}
	}()
	take := func(tenant string) bool {
		g, err := p.Queue.places.Try(share.Owner{Tenant: tenant}, 1)
		if err == nil {
			held = append(held, g)
		}
		return err == nil
	}
	for len(held) <= maxDeliveries && take("hostile") {
	}
	if len(held) != maxDeliveries/2 {
		t.Errorf("one tenant takes %d of %d deliveries", len(held), maxDeliveries)
	}
	if !take(registry.DefaultTenant) {
		t.Error("another tenant gets no delivery")
	}
}
