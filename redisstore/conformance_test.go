package redisstore_test

import (
	"context"
	"testing"

	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/registrytest"
)

func TestConformanceSingle(t *testing.T) {
	registrytest.Run(t, opener(redistest.Single(t)))
}

func TestConformanceCluster(t *testing.T) {
	registrytest.Run(t, opener(redistest.Cluster(t).URL))
}

// opener gives every subtest a store of its own on shared servers.
func opener(url string) registrytest.Open {
	return func(t *testing.T, o registrytest.Options) (registry.Store, func() registry.Bus) {
		conn, err := redisstore.Dial(context.Background(), redisstore.Options{
			URL: url, SessionTTL: o.SessionTTL, PodLease: o.PodLease,
			Retention: o.Retention, IdempotencyTTL: o.IdempotencyTTL, ActivityCap: o.ActivityCap, ActivityBytes: o.ActivityBytes,
			HistoryTTL: o.HistoryTTL, HistoryCap: o.HistoryCap,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn.Store(), func() registry.Bus { return conn.Bus() }
	}
}
