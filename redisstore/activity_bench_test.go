package redisstore

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"syscall"
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

// BenchmarkAppendActivity writes batches to a feed that is full: small ones, as the pods of a large fleet have, and
// those of a busy pod. It is per line, also what this process and Redis are busy with.
func BenchmarkAppendActivity(b *testing.B) {
	for _, lines := range []int{48, 512} {
		b.Run(strconv.Itoa(lines), func(b *testing.B) { benchAppend(b, lines) })
	}
}

func benchAppend(b *testing.B, lines int) {
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
	for range 1 + s.opts.ActivityCap/len(batch) {
		write(len(batch))
	}
	b.ReportAllocs()
	b.ResetTimer()
	before, own := redisBusy(b, s), ownBusy(b)
	for left := b.N; left > 0; left -= lines {
		write(min(left, lines))
	}
	perLine := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(b.N) }
	b.ReportMetric(perLine(ownBusy(b)-own), "own-µs/op")
	b.ReportMetric(perLine(redisBusy(b, s)-before), "redis-µs/op")
}

// ownBusy returns how much processor time this process has used.
func ownBusy(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
