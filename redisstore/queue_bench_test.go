package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/sleeping"
)

// queuedOfDevice is how many calls wait for each device of BenchmarkQueue.
const queuedOfDevice = 10

// BenchmarkQueue remembers devices and queues ten calls for each, with their records, then delivers some. It prints
// what that takes in Redis, and the time of each step with 64 callers at once, beside the same of an asynchronous call.
func BenchmarkQueue(b *testing.B) {
	for _, devices := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(devices), func(b *testing.B) {
			for range b.N {
				benchmarkQueue(b, devices)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func benchmarkQueue(b *testing.B, devices int) {
	s := storeOn(b, Options{Limits: registry.Limits{Retention: time.Hour}})
	ctx := context.Background()
	q := queueBench{TB: b, s: s, request: make([]byte, 700)} // such as farhand writes for small arguments
	for i := range q.request {
		q.request[i] = 'x'
	}
	memory, calls := usedMemory(b, s), devices*queuedOfDevice
	known, tools := sleeping.New(s.Documents()), distinctSpecs(b, 5)
	q.report("remember", devices, func(i int) error {
		return known.RememberDevices(ctx, []registry.DeviceMemory{{
			KnownDevice: registry.KnownDevice{Session: q.session(i), Tools: tools, LastSeen: time.Now()},
			Life:        time.Hour,
		}})
	})
	b.ReportMetric(float64(usedMemory(b, s)-memory)/float64(devices), "B/device")
	memory = usedMemory(b, s)
	ids := make([]string, calls)
	q.report("enqueue", calls, func(i int) error {
		ids[i] = uuid.NewString()
		return q.enqueue(ids[i], i%devices)
	})
	b.ReportMetric(float64(usedMemory(b, s)-memory)/float64(calls), "B/call")
	q.report("deliver", min(calls, 20_000), func(i int) error { return q.deliver(i % devices) })
	q.report("async", 20_000, func(int) error { return q.async(uuid.NewString()) })
}

// queueBench works on one tenant.
type queueBench struct {
	testing.TB
	s       *Store
	request []byte
}

func (q queueBench) session(i int) registry.Session {
	return registry.Session{
		Key: registry.Key{Tenant: registry.DefaultTenant, Session: fmt.Sprintf("session-%d", i)}, Bound: true,
		DeviceID: fmt.Sprintf("device-%d", i), UserID: fmt.Sprintf("user-%d", i), Name: "Phone", Platform: "android",
	}
}

// report runs work n times, 64 at a time, and reports the time of each.
func (q queueBench) report(step string, n int, work func(i int) error) {
	var next atomic.Int64
	var working sync.WaitGroup
	began := time.Now()
	for range 64 {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := work(i); err != nil {
					q.Errorf("%s: %v", step, err)
					return
				}
			}
		})
	}
	working.Wait()
	q.TB.(*testing.B).ReportMetric(float64(time.Since(began).Microseconds())/float64(n), "µs/"+step)
}

func (q queueBench) record(id string, state registry.State) registry.Record {
	return registry.Record{
		Tenant: registry.DefaultTenant, CallID: id, Tool: "phone_tool_001", SessionID: "session-1", Pod: "pod-1",
		Mode: registry.ModeAsync, State: state, Caller: "token", UserID: "ann", TimeoutMS: 30_000, ArgsDigest: "digest",
		RequestDigest: "digest",
	}
}

func (q queueBench) enqueue(id string, i int) error {
	of := q.session(i)
	rec := q.record(id, registry.StateQueued)
	rec.HoldMS, rec.Queue = time.Hour.Milliseconds(), of.DeviceKey()
	rec.SessionID, rec.DeviceID = of.Key.Session, of.DeviceID
	if _, _, err := q.s.CreateCall(context.Background(), rec); err != nil {
		return err
	}
	none := registry.QueueBound{Calls: 1 << 40, Bytes: 1 << 40}
	_, _, err := q.s.Enqueue(context.Background(), registry.QueuedCall{
		Tenant: rec.Tenant, CallID: id, Device: rec.Queue, Identity: of.UserID, Request: q.request,
	}, time.Hour, registry.QueueBounds{Device: none, Identity: none, Tenant: none})
	return err
}

// deliver does what a pod does for the first call of a queue.
func (q queueBench) deliver(i int) error {
	ctx, of := context.Background(), q.session(i)
	c, ok, err := q.s.QueueHead(ctx, of.Key.Tenant, of.DeviceKey())
	if err != nil || !ok {
		return fmt.Errorf("head of %d: %v %w", i, ok, err)
	}
	if _, begun, err := q.s.BeginCall(ctx, c.Tenant, c.CallID, "pod-1", time.Minute); err != nil || !begun {
		return fmt.Errorf("begun %v: %w", begun, err)
	}
	if err := q.run(c.CallID); err != nil {
		return err
	}
	if _, err = q.s.ReadCall(ctx, c.Tenant, c.CallID); err == nil {
		_, err = q.s.Dequeue(ctx, c.Tenant, c.Device, c.CallID)
	}
	return err
}

// run moves a call that has begun to its end.
func (q queueBench) run(id string) error {
	for _, event := range []registry.Event{registry.EventDeliver, registry.EventSucceed} {
		change := registry.Change{}
		if event == registry.EventSucceed {
			change.Result, change.Here = &registry.Result{Success: true, Output: "done"}, true
		}
		if _, err := q.s.MoveCall(context.Background(), registry.DefaultTenant, id, event, change); err != nil {
			return err
		}
	}
	return nil
}

func (q queueBench) async(id string) error {
	if _, _, err := q.s.CreateCall(context.Background(), q.record(id, registry.StateAccepted)); err != nil {
		return err
	}
	return q.run(id)
}
