package redisstore

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// BenchmarkClusterTenants shows what one tenant limits on a Cluster of three masters with a replica each: devices with
// five known tools that connect, and listings. A tenant's directory is in a slot each for sessions, sets, members and
// version, so it is the busiest master that counts. Processor time is what the operating system sees.
func BenchmarkClusterTenants(b *testing.B) {
	const connecting = 32 // at once
	for _, tenants := range []string{"one, at one master", "one, spread", "100"} {
		cluster := redistest.ReplicatedCluster(b)
		s := storeOn(b, Options{URL: cluster.URL, Limits: registry.Limits{SessionTTL: longTTL, PodLease: longTTL}})
		heartbeat(b, s, "pod")
		specs := distinctSpecs(b, 5)
		measure := func(name string, op func(n int) error) {
			b.Run(tenants+"/"+name, func(b *testing.B) {
				before := memberTimes(b, cluster)
				var next atomic.Int64
				var all sync.WaitGroup
				b.ResetTimer()
				for range connecting {
					all.Go(func() {
						for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
							if err := op(n); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				busiest, total := 0.0, 0.0
				for i, at := range memberTimes(b, cluster) {
					busiest, total = max(busiest, at-before[i]), total+at-before[i]
				}
				b.ReportMetric(busiest/float64(b.N), "busiest-µs/op")
				b.ReportMetric(total/float64(b.N), "members-µs/op")
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
			})
		}
		var opened atomic.Int64
		tenantOf := func(n int) string { return fmt.Sprintf("tenant-%d", n%100) }
		if tenants != "100" {
			name := tenantOn(b, s, newToolSet(specs).hash, tenants == "one, spread")
			tenantOf = func(int) string { return name }
		}
		measure("connect", func(int) error {
			n := int(opened.Add(1))
			c, err := s.Claim(context.Background(), registry.Session{
				Key: registry.Key{Tenant: tenantOf(n), Session: fmt.Sprintf("session-%d", n)}, Pod: "pod",
				Generation: registry.AnyHolder,
				DeviceID:   fmt.Sprintf("device-%d", n), UserID: fmt.Sprintf("user-%d", n),
			})
			if err != nil {
				return err
			}
			return s.SetTools(context.Background(), c.Session, specs)
		})
		measure("grouped", func(n int) error {
			q := registry.OfferedToolQuery{Tenant: tenantOf(n), Limit: 100}
			_, _, err := s.OfferedTools(context.Background(), q)
			return err
		})
		measure("page", func(n int) error {
			_, _, err := s.List(context.Background(), registry.Query{Tenant: tenantOf(n), Limit: 100})
			return err
		})
		measure("version", func(n int) error {
			_, err := s.Version(context.Background(), tenantOf(n))
			return err
		})
	}
}

// tenantOn returns a tenant whose directory is at one of three masters, or as far spread as it can be.
func tenantOn(b *testing.B, s *Store, set string, spread bool) string {
	b.Helper()
	for n := 0; ; n++ {
		name, masters := fmt.Sprintf("tenant-%d", n), make(map[int64]bool)
		for _, key := range []string{
			sessionsIndex(name), membersIndex(name, set), offersIndex(name), versionKey(name),
		} {
			slot, err := s.conn.Client().ClusterKeySlot(context.Background(), key).Result()
			if err != nil {
				b.Fatal(err)
			}
			masters[slot*3/(1<<14)] = true // as redis-cli deals them out
		}
		if len(masters) == 1 && !spread || len(masters) == 3 && spread {
			return name
		}
	}
}

var processTime = regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`)

// memberTimes returns the processor time of each member, in µs.
func memberTimes(b *testing.B, cluster *redistest.Servers) []float64 {
	b.Helper()
	var times []float64
	for _, s := range append(append([]*redistest.Server(nil), cluster.Masters...), cluster.Replicas...) {
		out, err := s.Command("info", "cpu")
		if err != nil {
			b.Fatal(err)
		}
		sum := 0.0
		for _, m := range processTime.FindAllStringSubmatch(out, -1) {
			n, _ := strconv.ParseFloat(m[1], 64)
			sum += n * 1e6
		}
		times = append(times, sum)
	}
	return times
}
