package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/sleeping"
)

// A device is remembered with its tools after Redis has lost all: a pod must not trust what it has written before.
func TestKnownDevicesKeepTheirToolsAfterALoss(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	known := sleeping.New(s.Documents())
	device := registry.DeviceMemory{Life: time.Hour, KnownDevice: registry.KnownDevice{
		Session: registry.Session{
			Key: registry.Key{Tenant: tenant, Session: "s"}, DeviceID: "phone", UserID: "ann", Bound: true,
		},
		Tools: distinctSpecs(t, 2), LastSeen: time.Now(),
	}}
	for _, lost := range []bool{false, false, true, false} {
		if lost {
			if err := s.conn.Client().FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := known.RememberDevices(ctx, []registry.DeviceMemory{device, device}); err != nil {
			t.Fatal(err)
		}
		found, _, err := known.KnownDevices(ctx, registry.KnownQuery{
			Tenant: tenant, Target: registry.Target{DeviceID: "phone"},
		})
		if err != nil || len(found) != 1 || len(found[0].Tools) != 2 {
			t.Errorf("after a loss %v: %v, %+v", lost, err, found)
		}
	}
}

// Calls that are queued and cancelled again and again leave nothing without an end, and nothing that grows.
func TestQueuesLeaveNothingBehind(t *testing.T) {
	s, ctx := storeOn(t, Options{Limits: registry.Limits{Retention: time.Minute}}), context.Background()
	bound := registry.QueueBound{Calls: 2, Bytes: 1 << 20}
	size := func() int64 { return must[int64](t)(s.conn.Client().DBSize(ctx).Result()) }
	var after int64
	for i := range 300 {
		c := registry.QueuedCall{
			Tenant: tenant, CallID: fmt.Sprint(i), Device: fmt.Sprintf("udevice-%d", i),
			Identity: fmt.Sprintf("user-%d", i), Request: []byte("{}"),
		}
		_, _, err := s.Enqueue(ctx, c, time.Minute, registry.QueueBounds{Device: bound, Identity: bound, Tenant: bound})
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if removed, err := s.Dequeue(ctx, tenant, c.Device, c.CallID); err != nil || !removed {
			t.Fatalf("call %d: removed %v, %v", i, removed, err)
		}
		switch i {
		case 0:
			after = size()
		case 299:
			if now := size(); now > after {
				t.Errorf("%d keys, %d after the first call", now, after)
			}
		}
	}
	keys := must[[]string](t)(s.conn.Client().Keys(ctx, "*").Result())
	for _, key := range keys {
		if s.conn.Client().PTTL(ctx, key).Val() <= 0 {
			t.Errorf("%s has no TTL", key)
		}
		if n := s.conn.Client().HLen(ctx, key).Val(); n > 2 {
			t.Errorf("%s has %d fields", key, n)
		}
	}
	if len(keys) == 0 {
		t.Error("nothing was looked at")
	}
}

// Every tenant's calls expire, however many tenants have queues.
func TestCallsOfManyTenantsExpire(t *testing.T) {
	s, ctx := storeOn(t, Options{Limits: registry.Limits{Retention: time.Minute}}), context.Background()
	bound := registry.QueueBound{Calls: 2, Bytes: 1 << 20}
	add := func(tenant string, life time.Duration) {
		c := registry.QueuedCall{Tenant: tenant, CallID: tenant, Device: "u", Request: []byte("{}")}
		_, _, err := s.Enqueue(ctx, c, life, registry.QueueBounds{Device: bound, Identity: bound, Tenant: bound})
		if err != nil {
			t.Fatal(err)
		}
	}
	add("due", time.Millisecond)
	for i := range queueTenants {
		add(fmt.Sprintf("later-%d", i), time.Hour)
	}
	for looks := 0; ; looks++ {
		due, err := s.DueQueued(ctx, 10, time.Minute)
		if err != nil || looks > 2 {
			t.Fatalf("not found in %d looks: %v", looks, err)
		}
		if len(due) == 1 && due[0].CallID == "due" {
			break
		}
	}
	if n := s.swept.Load(); n != 0 {
		t.Errorf("the next look skips %d tenants", n)
	}
}

// A device is in the indexes of its last session only, whatever labels and sessions it had: the memory of one device
// does not grow with its connections. So it is when two pods remember it at the same time.
func TestKnownDevicesLeaveTheirFormerIndexes(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	stores := []registry.SleepingStore{sleeping.New(s.Documents()), sleeping.New(s.Documents())}
	remember := func(n int) error {
		return stores[n%2].RememberDevices(ctx, []registry.DeviceMemory{{Life: time.Hour, KnownDevice: registry.KnownDevice{
			Session: registry.Session{
				Key: registry.Key{Tenant: tenant, Session: fmt.Sprintf("s%d", n)}, DeviceID: "phone",
				UserID: "ann", Bound: true, Labels: map[string]string{"n": strconv.Itoa(n), fmt.Sprintf("n%d", n): "x",
					"site": "vienna"},
			},
			Tools: distinctSpecs(t, 2), LastSeen: time.Now(),
		}}})
	}
	if err := remember(0); err != nil {
		t.Fatal(err)
	}
	first, _ := keyspace(t, s.conn)
	for n := range 20 {
		if err := remember(n); err != nil {
			t.Fatal(err)
		}
	}
	var pods sync.WaitGroup
	for pod := range 2 {
		pods.Go(func() {
			for n := range 20 {
				if err := remember(2*n + pod); err != nil {
					t.Error(err)
				}
			}
		})
	}
	pods.Wait()
	if last, _ := keyspace(t, s.conn); len(last) != len(first) {
		t.Errorf("%d keys, at first %d: %v", len(last), len(first), slices.Sorted(maps.Keys(last)))
	}
	found, _, err := stores[0].KnownDevices(ctx, registry.KnownQuery{
		Tenant: tenant, Target: registry.Target{Labels: map[string]string{"site": "vienna"}},
	})
	if err != nil || len(found) != 1 || len(found[0].Tools) != 2 {
		t.Errorf("%v, %+v", err, found)
	}
}

// A device that always offers other tools uses up its own share of the sets that its tenant's devices have, and no
// more: the tools of other devices are remembered, also the very tools that did not fit for it.
func TestADeviceTakesItsShareOfKnownTools(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	known := sleeping.New(s.Documents())
	remembered := func(id string, bound bool, tools registry.ToolSpec) bool {
		t.Helper()
		of := registry.Session{Key: registry.Key{Tenant: tenant, Session: id}, DeviceID: id, UserID: id, Bound: bound}
		if err := known.RememberDevices(ctx, []registry.DeviceMemory{{Life: time.Hour, KnownDevice: registry.KnownDevice{
			Session: of, Tools: []registry.ToolSpec{tools}, LastSeen: time.Now(),
		}}}); err != nil {
			t.Fatal(err)
		}
		found, _, err := known.KnownDevices(ctx, registry.KnownQuery{Tenant: tenant,
			Target: registry.Target{DeviceID: id}})
		if err != nil || len(found) != 1 {
			t.Fatalf("%s: %v, %+v", id, err, found)
		}
		return len(found[0].Tools) == 1
	}
	large := func(name string) registry.ToolSpec { // of more than a 64th of what the tenant may have
		return registry.ToolSpec{
			Name: name, Description: strings.Repeat("x", registry.MaxKnownTools/64),
			Parameters: []byte(`{"type":"object"}`),
		}
	}
	for n := range 6 {
		if got := remembered("greedy", true, large(fmt.Sprintf("tool%d", n))); got != (n < 3) {
			t.Fatalf("set %d is remembered: %v", n, got)
		}
	}
	if !remembered("same", true, large("tool5")) || !remembered("other", false, large("other")) {
		t.Error("the tools of other devices are not remembered")
	}
	again := sleeping.New(s.Documents()) // another pod, which knows of nothing that is full or stored
	var batch []registry.DeviceMemory
	both := []string{"greedy", "beside"}
	for _, id := range both {
		of := registry.Session{Key: registry.Key{Tenant: tenant, Session: id}, DeviceID: id, UserID: id, Bound: true}
		batch = append(batch, registry.DeviceMemory{Life: time.Hour, KnownDevice: registry.KnownDevice{
			Session: of, Tools: []registry.ToolSpec{large("shared")}, LastSeen: time.Now(),
		}})
	}
	if err := again.RememberDevices(ctx, batch); err != nil {
		t.Fatal(err)
	}
	for _, id := range both { // a set has one name, so both find what one of them stored
		found, _, err := again.KnownDevices(ctx, registry.KnownQuery{Tenant: tenant,
			Target: registry.Target{DeviceID: id}})
		if err != nil || len(found) != 1 || len(found[0].Tools) != 1 {
			t.Errorf("in one batch, %s: %v, %+v", id, err, found)
		}
	}
}

// A set that is more than half of its device's share is stored again before it expires.
func TestALargeSetOfToolsIsRenewed(t *testing.T) {
	s, ctx := storeOn(t, Options{}), context.Background()
	tools := []registry.ToolSpec{{
		Name: "large", Description: strings.Repeat("x", registry.MaxKnownTools/24),
		Parameters: []byte(`{"type":"object"}`),
	}}
	of := registry.Session{Key: registry.Key{Tenant: tenant, Session: "s"}, DeviceID: "d", UserID: "u", Bound: true}
	for _, life := range []time.Duration{time.Hour, 10 * time.Hour} { // the second outlives what is stored
		one := registry.DeviceMemory{Life: life, KnownDevice: registry.KnownDevice{
			Session: of, Tools: tools, LastSeen: time.Now(),
		}}
		if err := sleeping.New(s.Documents()).RememberDevices(ctx, []registry.DeviceMemory{one}); err != nil {
			t.Fatal(err)
		}
	}
	keys, _ := keyspace(t, s.conn)
	for key := range keys {
		if left := s.conn.Client().PTTL(ctx, key).Val(); strings.Contains(key, ":doc:s.") && left < 9*time.Hour {
			t.Errorf("%s lives another %v", key, left)
		}
	}
}
