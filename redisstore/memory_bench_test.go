package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// attributes sets what the i-th session says about itself.
type attributes func(s *registry.Session, i int)

// ofOneDevice is a session with a device and a user of its own: both are indexes of one entry.
func ofOneDevice(s *registry.Session, i int) {
	s.DeviceID, s.DeviceName, s.Platform = "device-"+strconv.Itoa(i), "Phone", "android"
	s.UserID = "user-" + strconv.Itoa(i)
}

// ofSharedUser is one of ten sessions of a user.
func ofSharedUser(s *registry.Session, i int) {
	ofOneDevice(s, i)
	s.UserID = "user-" + strconv.Itoa(i/10)
}

func saysNothing(*registry.Session, int) {}

// fill claims sessions of the default tenant on a pod, with many goroutines. tools returns what the i-th offers.
func fill(t testing.TB, s *Store, pod string, sessions int, about attributes, tools func(i int) []registry.ToolSpec) {
	t.Helper()
	ctx := context.Background()
	var next atomic.Int64
	var work sync.WaitGroup
	for range 64 {
		work.Go(func() {
			for i := int(next.Add(1)); i <= sessions && !t.Failed(); i = int(next.Add(1)) {
				key := registry.Key{Tenant: registry.DefaultTenant, Session: uuid.NewString()}
				sess := registry.Session{Key: key, Pod: pod}
				about(&sess, i)
				c, err := s.Claim(ctx, sess)
				if err == nil {
					err = s.SetTools(ctx, c.Session, tools(i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
}

// distinctSpecs returns n tools of different names.
func distinctSpecs(t testing.TB, n int) []registry.ToolSpec {
	t.Helper()
	specs := make([]registry.ToolSpec, n)
	for i := range specs {
		specs[i] = spec(t, fmt.Sprintf("phone_tool_%03d", i), "Reads something and returns it.")
	}
	return specs
}

func usedMemory(t testing.TB, s *Store) int64 {
	t.Helper()
	info := must[string](t)(s.conn.Client().Info(context.Background(), "memory").Result())
	for line := range strings.Lines(info) {
		if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
			return redisconn.Int(strings.TrimSpace(text))
		}
	}
	t.Fatal("no used_memory")
	return 0
}

// BenchmarkSessionMemory prints what an idle session with five tools takes in Redis.
func BenchmarkSessionMemory(b *testing.B) {
	const sessions = 20_000
	for _, c := range []struct {
		name  string
		about attributes
	}{{"nothing_said", saysNothing}, {"ten_of_a_user", ofSharedUser}, {"device_and_user", ofOneDevice}} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				s := storeOn(b, Options{Limits: registry.Limits{SessionTTL: longTTL}})
				pod := routing.NewPodID()
				heartbeat(b, s, pod)
				specs := distinctSpecs(b, 5)
				before := usedMemory(b, s)
				fill(b, s, pod, sessions, c.about, func(int) []registry.ToolSpec { return specs })
				b.ReportMetric(float64(usedMemory(b, s)-before)/sessions, "B/session")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
