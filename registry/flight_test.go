package registry

import (
	"context"
	"testing"
	"time"
)

// slowClaims is a store that claims durable calls only when told to.
type slowClaims struct {
	*Memory
	asked   chan struct{}
	proceed chan struct{}
}

func (s slowClaims) MoveCall(ctx context.Context, tenant, callID string, e Event, c Change) (Moved, error) {
	if e == EventDeliver {
		s.asked <- struct{}{}
		<-s.proceed
	}
	return s.Memory.MoveCall(ctx, tenant, callID, e, c)
}

type deafConn struct{}

func (deafConn) Deliver(DeviceCall) error { return nil }
func (deafConn) Cancel(string, string)    {}
func (deafConn) Close(CloseCause)         {}

// A connection that ends while a durable call is being claimed has not seen it: its caller hears that nothing ran, and
// the claim is given back.
func TestConnectionEndsDuringClaim(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	store := slowClaims{NewMemory(MemoryOptions{}), make(chan struct{}), make(chan struct{})}
	bus := store.NewBus()
	pod, err := NewPod(PodConfig{Store: store, Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	if err := pod.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = pod.Close(ctx)
		_ = bus.Close(ctx)
	}()
	l, _, err := pod.Presence.Open(ctx, Session{Key: Key{Tenant: "t", Session: "s"}}, deafConn{})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ToolSpec{Name: "tool"}.Normalize()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.PutTools(ctx, []ToolSpec{spec}, nil); err != nil {
		t.Fatal(err)
	}
	rec := NewRecord("c1", "t", "tool", nil)
	rec.SessionID, rec.TimeoutMS = "s", 5000
	if _, created, err := store.CreateCall(ctx, rec); err != nil || !created {
		t.Fatalf("%v, %v", created, err)
	}
	failed := make(chan error, 1)
	go func() {
		route := Route{Session: l.Session(), Spec: spec}
		_, err := pod.Router.Call(ctx, Call{ID: "c1", Route: route, Args: []byte(`{}`), Timeout: 5 * time.Second, Durable: true})
		failed <- err
	}()
	<-store.asked
	l.Close(ctx)
	close(store.proceed)
	if e := AsError(<-failed); e.Code != CodeNotConnected || e.Dispatched != DispatchedNo {
		t.Errorf("%+v", e)
	}
	if r, err := store.ReadCall(ctx, "t", "c1"); err != nil || r.State != StateAccepted || r.Dispatched != DispatchedNo {
		t.Errorf("%+v, %v", r, err)
	}
}
