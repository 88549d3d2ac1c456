package redisstore

import (
	"context"
	flags "flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/registry"
)

var queueDevices = flags.Int("queue.devices", 100, "devices of BenchmarkQueues, with ten queued calls each")

// BenchmarkQueues fills one Redis with ten queued calls for each of -queue.devices known devices, then delivers them. It
// reports the bytes of a queued call and of a known device in Redis, and the time that the store takes to accept and to
// deliver one.
func BenchmarkQueues(b *testing.B) {
	ctx := context.Background()
	url := redistest.Start(b).URL()
	conn, err := Dial(ctx, Options{URL: url, Limits: registry.Limits{PodLease: time.Minute}, Timeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	s := conn.Store()
	huge := registry.QueueBound{Calls: 1 << 40, Bytes: 1 << 40}
	bounds := registry.QueueBounds{Device: huge, Identity: huge, Tenant: huge}
	tool, err := registry.ToolSpec{Name: "notify", Description: "Notify"}.Normalize()
	if err != nil {
		b.Fatal(err)
	}
	request := []byte(`{"caller":{"tenant":"default"},"tool":"notify","session":"5d1f","target":{"device_id":"phone"},` +
		`"args":"` + strings.Repeat("x", 200) + `","timeout":30000000000,"endpoint":"api","approved":""}`)
	const each = 10
	for b.Loop() {
		before := usedMemory(b, s)
		for at := 0; at < *queueDevices; at += 256 {
			var known []registry.DeviceMemory
			for d := at; d < min(at+256, *queueDevices); d++ {
				known = append(known, registry.DeviceMemory{KnownDevice: registry.KnownDevice{
					Session: registry.Session{Key: registry.Key{Tenant: tenant, Session: fmt.Sprint("s", d)},
						DeviceID: fmt.Sprint("phone-", d)},
					Tools: []registry.ToolSpec{tool}, LastSeen: time.Now(),
				}, Life: time.Hour})
			}
			need(b, s.RememberDevices(ctx, known))
		}
		devices := usedMemory(b, s)
		began := time.Now()
		for n := range *queueDevices * each {
			id, device := registry.NewCallID(), fmt.Sprint("phone-", n%*queueDevices)
			r := registry.NewRecord(id, tenant, "notify", []byte(`{}`))
			r.State, r.HoldMS, r.TimeoutMS, r.Queue, r.Pod = registry.StateQueued, 3_600_000, 30_000, device, "a"
			r.DeviceID, r.SessionID = device, device
			r.DigestArgs()
			_, _, err := s.CreateCall(ctx, r)
			need(b, err)
			_, _, err = s.Enqueue(ctx, registry.QueuedCall{
				Tenant: tenant, CallID: id, Device: device, Identity: "ann", Request: request,
			}, time.Hour, bounds)
			need(b, err)
		}
		accepted := time.Since(began)
		full := usedMemory(b, s)
		began = time.Now()
		for n := range *queueDevices * each {
			deliverHead(b, s, fmt.Sprint("phone-", n%*queueDevices))
		}
		calls := float64(*queueDevices * each)
		b.ReportMetric(float64(devices-before)/float64(*queueDevices), "B/device")
		b.ReportMetric(float64(full-devices)/calls, "B/call")
		b.ReportMetric(float64(accepted.Microseconds())/calls, "µs/accepted")
		b.ReportMetric(float64(time.Since(began).Microseconds())/calls, "µs/delivered")
	}
}

// deliverHead delivers the first call of a queue, as a pod does.
func deliverHead(b *testing.B, s *Store, device string) {
	ctx := b.Context()
	c, ok, err := s.QueueHead(ctx, tenant, device)
	if err != nil || !ok {
		b.Fatal("no call waits", err)
	}
	_, begun, err := s.BeginCall(ctx, tenant, c.CallID, "b", time.Minute)
	if err != nil || !begun {
		b.Fatal("not begun", err)
	}
	_, err = s.MoveCall(ctx, tenant, c.CallID, registry.EventDeliver, registry.Change{Owner: "b"})
	need(b, err)
	_, err = s.MoveCall(ctx, tenant, c.CallID, registry.EventSucceed, registry.Change{
		Result: &registry.Result{Success: true, Output: "ok"}, Session: registry.Key{Tenant: tenant, Session: device},
	})
	need(b, err)
	_, err = s.Dequeue(ctx, tenant, device, c.CallID)
	need(b, err)
}

func need(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
