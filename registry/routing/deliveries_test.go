package routing

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// A tenant whose devices never end their queued calls takes half of a pod's deliveries; the other half is for others.
func TestDeliveriesAreShared(t *testing.T) {
	p := startPod(t, memory.New(memory.Options{}), "a")
	var held []*share.Grant
	defer func() {
		for _, g := range held {
			g.Release()
		}
	}()
	take := func(tenant string) bool {
		g, err := p.Queue.slots.Try(share.Owner{Tenant: tenant}, 1)
		if err == nil {
			held = append(held, g)
		}
		return err == nil
	}
	other := testkit.Alone(t, "deliveries of queued calls", func() error {
		g, err := p.Queue.slots.Try(share.Owner{Tenant: registry.DefaultTenant}, 1)
		if err == nil {
			g.Release()
		}
		return err
	})
	for len(held) <= maxDeliveries && take("hostile") {
	}
	if len(held) != maxDeliveries/2 {
		t.Errorf("one tenant takes %d of %d deliveries", len(held), maxDeliveries)
	}
	other.Crowded()
}

// stuckStarter never ends the start of a call of the tenant "hostile".
type stuckStarter struct {
	began   atomic.Int64
	release chan struct{}
	others  chan registry.QueuedCall
}

func (s *stuckStarter) StartQueued(
	_ context.Context, _ registry.Session, _ func(string) bool, c registry.QueuedCall,
) (bool, error) {
	if c.Tenant == "hostile" {
		s.began.Add(1)
		<-s.release
	} else {
		select {
		case s.others <- c:
		default:
		}
	}
	return false, nil
}

func (s *stuckStarter) WakeDevice(context.Context, string, string) {}

// More devices of one tenant than it may take deliveries never end their calls. A device of another tenant gets its
// call at once.
func TestStuckDeliveriesOfATenantDoNotHoldOthers(t *testing.T) {
	p := startPod(t, memory.New(memory.Options{}), "a")
	starter := &stuckStarter{release: make(chan struct{}), others: make(chan registry.QueuedCall, 1)}
	defer close(starter.release)
	p.Queue.Serve(starter)
	sleepsWithCall := func(tenant, device string) {
		s := registry.Session{Key: registry.Key{Tenant: tenant, Session: device}, DeviceID: device}
		call := registry.QueuedCall{Tenant: tenant, CallID: tenant + device, Device: s.DeviceKey(), Request: []byte("{}")}
		if _, _, err := p.Queue.Enqueue(t.Context(), call, time.Hour); err != nil {
			t.Fatal(err)
		}
		connect(t, p, deafConn{}, func(session *registry.Session) { *session = s })
	}
	for i := range maxDeliveries/2 + 50 {
		sleepsWithCall("hostile", fmt.Sprint("phone-", i))
	}
	testkit.Eventually(t, "the tenant's deliveries", func() bool { return starter.began.Load() == maxDeliveries/2 })
	sleepsWithCall("other", "phone")
	select {
	case <-starter.others:
	case <-time.After(testkit.Limit):
		t.Error("the other tenant's call is not started")
	}
	if n := starter.began.Load(); n != maxDeliveries/2 {
		t.Errorf("one tenant has %d deliveries", n)
	}
}

// Of one user, too: a device of another user of its tenant gets its call at once.
func TestStuckDeliveriesOfAUserDoNotHoldOthers(t *testing.T) {
	p := startPod(t, memory.New(memory.Options{}), "a")
	starter := &stuckUser{stuckStarter{release: make(chan struct{}), others: make(chan registry.QueuedCall, 1)}}
	defer close(starter.release)
	p.Queue.Serve(starter)
	sleepsWithCall := func(user, device string) {
		s := registry.Session{
			Key: registry.Key{Tenant: "t", Session: user + device}, UserID: user, DeviceID: device,
		}
		call := registry.QueuedCall{Tenant: "t", CallID: user + device, Device: s.DeviceKey(), Request: []byte("{}")}
		if _, _, err := p.Queue.Enqueue(t.Context(), call, time.Hour); err != nil {
			t.Fatal(err)
		}
		connect(t, p, deafConn{}, func(session *registry.Session) { *session = s })
	}
	for i := range maxDeliveries/2 + 50 {
		sleepsWithCall("eve", fmt.Sprint("phone-", i))
	}
	testkit.Eventually(t, "the user's deliveries", func() bool { return starter.began.Load() >= maxDeliveries/4 })
	sleepsWithCall("ann", "phone")
	select {
	case <-starter.others:
	case <-time.After(testkit.Limit):
		t.Errorf("the call of another user is not started while one has %d deliveries", starter.began.Load())
	}
}

// stuckUser is a stuckStarter for the calls of the devices of a user.
type stuckUser struct{ stuckStarter }

func (s *stuckUser) StartQueued(
	ctx context.Context, to registry.Session, offers func(string) bool, c registry.QueuedCall,
) (bool, error) {
	if c.Tenant = "other"; to.UserID == "eve" {
		c.Tenant = "hostile"
	}
	return s.stuckStarter.StartQueued(ctx, to, offers, c)
}
