package registry

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// slowSweeps is a store that cleans up as long as it is let.
type slowSweeps struct{ *Memory }

func (slowSweeps) Sweep(ctx context.Context) ([]string, error) {
	<-ctx.Done()
	return nil, StoreUnavailable("sweep", ctx.Err())
}

// A pod that cleans up after others keeps its own lease, however short that is.
func TestLongSweepDoesNotCostTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = time.Second
		store := slowSweeps{NewMemory(MemoryOptions{PodLease: lease})}
		startPod(t, store, "a", func(c *PodConfig) { c.PodLease = lease })
		for range 100 {
			time.Sleep(lease / 10)
			if live, err := store.Live(t.Context()); err != nil || !slices.Contains(live, "a") {
				t.Fatalf("live are %v, %v", live, err)
			}
		}
	})
}
