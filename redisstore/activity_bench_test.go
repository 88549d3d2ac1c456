package redisstore

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// benchActivity is the line of a light call that another pod delivered.
func benchActivity() registry.Activity {
	call := registry.NewRecord(registry.NewCallID(), tenant, "read_battery", json.RawMessage(`{}`))
	call.SessionID, call.DeviceID, call.Pod, call.TimeoutMS = "phone-1", "device-1", "host-8b0f6a52", 30_000
	call.ArgsDigest = strings.Repeat("0123456789abcdef", 4)
	call.Apply(registry.EventRoute, registry.Change{}, time.Now().UTC())
	call.Apply(registry.EventSucceed, registry.Change{Result: &registry.Result{Success: true}}, time.Now().UTC())
	return registry.Activity{
		Tenant: tenant, Type: registry.ActivityCall, At: time.Now().UTC(), Pod: call.Pod, SessionID: call.SessionID,
		DeviceID: call.DeviceID, Call: &call,
	}
}

// BenchmarkAppendActivity writes batches of a busy pod to a feed that is full. It is per line, also what Redis is busy
// with.
func BenchmarkAppendActivity(b *testing.B) {
	s, ctx := storeOn(b, Options{}), context.Background()
	batch := make([]registry.Activity, 512)
	for i := range batch {
		batch[i] = benchActivity()
	}
	write := func(n int) {
		for i := range n {
			batch[i].Call.CallID = registry.NewCallID()
		}
		if err := s.AppendActivity(ctx, batch[:n]); err != nil {
			b.Fatal(err)
		}
	}
	for range 1 + s.activities/len(batch) {
		write(len(batch))
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := redisBusy(b, s)
	for left := b.N; left > 0; left -= len(batch) {
		write(min(left, len(batch)))
	}
	b.ReportMetric(float64(redisBusy(b, s)-before)/float64(time.Microsecond)/float64(b.N), "redis-µs/op")
}

// redisBusy returns how much processor time the server has used.
func redisBusy(b *testing.B, s *Store) (sum time.Duration) {
	b.Helper()
	for line := range strings.Lines(must[string](b)(s.conn.Client().Info(context.Background(), "cpu").Result())) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			sum += time.Duration(must[float64](b)(strconv.ParseFloat(value, 64)) * float64(time.Second))
		}
	}
	return sum
}
