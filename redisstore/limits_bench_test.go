package redisstore_test

import (
	"errors"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

// evalTime finds the time of scripts in the statistics of Redis.
var evalTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// BenchmarkTake charges windows, one for each of 256 identities, alone and as 64 callers at once.
func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	conn, err := redisstore.Dial(b.Context(), redisstore.Options{URL: server.URL()})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	store := conn.Store()
	var n atomic.Int64
	take := func() {
		w := registry.Window{
			Name: "user-" + strconv.FormatInt(n.Add(1)%256, 10), Limit: registry.MaxWindowLimit, Period: time.Minute,
		}
		if _, _, err := store.Take(b.Context(), "t", []registry.Window{w}); err != nil {
			b.Error(err)
		}
	}
	measure := func(name string, run func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			_, err := server.Command("CONFIG", "RESETSTAT")
			b.ReportAllocs()
			run(b)
			stats, failure := server.Command("INFO", "commandstats")
			if err = errors.Join(err, failure); err != nil {
				b.Fatal(err)
			}
			if found := evalTime.FindStringSubmatch(stats); found != nil {
				usec, _ := strconv.ParseFloat(found[1], 64)
				b.ReportMetric(usec/float64(b.N), "redis-µs/op")
			}
		})
	}
	measure("alone", func(b *testing.B) {
		for range b.N {
			take()
		}
	})
	measure("64", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				take()
			}
		})
	})
}
