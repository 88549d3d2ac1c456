package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

const longTTL = 30 * time.Minute // nobody refreshes what a benchmark wrote

// slowlog makes the server note commands that take longer, and returns a function that says which there were.
func slowlog(b *testing.B, s *Store, longer time.Duration) func() []string {
	b.Helper()
	ctx, client := context.Background(), s.conn.Client()
	for _, err := range []error{
		client.ConfigSet(ctx, "slowlog-log-slower-than", fmt.Sprint(longer.Microseconds())).Err(),
		client.Do(ctx, "SLOWLOG", "RESET").Err(),
	} {
		if err != nil {
			b.Fatal(err)
		}
	}
	return func() []string {
		var slow []string
		for _, entry := range client.SlowLogGet(ctx, 100).Val() {
			slow = append(slow, fmt.Sprintf("%v %.100q", entry.Duration, entry.Args))
		}
		return slow
	}
}

// BenchmarkGrouped reads a page of the grouped listing of 100,000 sessions with five tools each, with the checks in
// the background as often as they come. There are as many kinds of devices as make the distinct tools.
func BenchmarkGrouped(b *testing.B) {
	const sessions = 100_000
	for _, distinct := range []int{54, 500} {
		b.Run(fmt.Sprintf("%d_tools", distinct), func(b *testing.B) {
			s := storeOn(b, Options{Limits: registry.Limits{SessionTTL: longTTL, PodLease: longTTL}})
			heartbeat(b, s, "pod")
			specs := distinctSpecs(b, distinct)
			kinds := make([][]registry.ToolSpec, distinct/5+1)
			for i := range kinds {
				first := min(5*i, distinct-5)
				kinds[i] = specs[first : first+5]
			}
			fill(b, s, "pod", sessions, ofOneDevice, func(i int) []registry.ToolSpec { return kinds[i%len(kinds)] })
			s.staleCheck.every = 50 * time.Millisecond
			slow := slowlog(b, s, time.Millisecond)
			var longest time.Duration
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				q := registry.OfferedToolQuery{Tenant: registry.DefaultTenant, Limit: 100}
				page, _, err := s.OfferedTools(context.Background(), q)
				if err != nil || len(page) != min(distinct, 100) {
					b.Fatalf("%d groups, %v", len(page), err)
				}
				longest = max(longest, time.Since(start))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "max-ms")
			found := slow()
			b.ReportMetric(float64(len(found)), "slow-commands")
			for _, entry := range found {
				b.Log(entry)
			}
		})
	}
}

// BenchmarkSweep removes what a dead pod of 15,000 sessions left.
func BenchmarkSweep(b *testing.B) {
	const sessions = 15_000
	s := storeOn(b, Options{Limits: registry.Limits{SessionTTL: longTTL, PodLease: longTTL}})
	specs, slowOnes := distinctSpecs(b, 5), 0
	for n := range b.N {
		b.StopTimer()
		pod := fmt.Sprintf("dead-%d", n)
		heartbeat(b, s, pod)
		fill(b, s, pod, sessions, ofOneDevice, func(int) []registry.ToolSpec { return specs })
		err := s.conn.Client().ZAdd(context.Background(), podsKey, redis.Z{Score: 1, Member: pod}).Err()
		if err != nil {
			b.Fatal(err)
		}
		slow := slowlog(b, s, 5*time.Millisecond)
		b.StartTimer()
		if swept := must[[]registry.DeadPod](b)(s.Sweep(context.Background())); len(swept) != 1 {
			b.Fatalf("swept %v", swept)
		}
		b.StopTimer()
		found := slow()
		slowOnes += len(found)
		for _, entry := range found {
			b.Log(entry)
		}
	}
	b.ReportMetric(float64(slowOnes), "slow-commands")
}
