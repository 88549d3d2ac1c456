package registry

import (
	"context"
	"errors"
	"testing"
	"time"
)

// cutBus is a bus whose calls arrive, but whose sender stops waiting before it hears so.
type cutBus struct {
	Bus
	giveUp context.CancelFunc
}

func (b cutBus) Send(ctx context.Context, pod string, e Envelope) error {
	err := b.Bus.Send(ctx, pod, e)
	if e.Kind == EnvelopeCall && err == nil {
		b.giveUp()
		return StoreUnavailable("send", ctx.Err()).With(DispatchedUnknown)
	}
	return err
}

// hearingConn tells of the calls that are cancelled.
type hearingConn struct {
	deafConn
	cancelled chan string
}

func (c hearingConn) Cancel(callID, _ string) { c.cancelled <- callID }

// A call may have reached the device although its caller stopped waiting while it was being sent. The device is told.
func TestCallerGivesUpWhileSending(t *testing.T) {
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	calling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	store := NewMemory(MemoryOptions{})
	open := func(bus Bus) *Pod {
		pod, err := NewPod(PodConfig{Store: store, Bus: bus})
		if err != nil {
			t.Fatal(err)
		}
		if err := pod.Start(ctx); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = pod.Close(context.Background())
			_ = bus.Close(context.Background())
		})
		return pod
	}
	asking, owning := open(cutBus{store.NewBus(), giveUp}), open(store.NewBus())
	conn := hearingConn{cancelled: make(chan string, 1)}
	l, _, err := owning.Presence.Open(ctx, Session{Key: Key{Tenant: "t", Session: "s"}}, conn)
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
	route, err := asking.Router.Resolve(ctx, "t", "tool", Target{SessionID: "s"}, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = asking.Router.Call(calling, Call{ID: "c1", Route: route, Timeout: 5 * time.Second})
	if e := AsError(err); !errors.Is(err, CodeCancelled) || e.Dispatched != DispatchedUnknown {
		t.Errorf("the caller heard %v, dispatched %s", err, e.Dispatched)
	}
	select {
	case id := <-conn.cancelled:
		if id != "c1" {
			t.Errorf("%s was cancelled", id)
		}
	case <-ctx.Done():
		t.Error("the device was not told")
	}
}
