package routing

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/memory"
)

// instantConn answers a call before it has taken it.
type instantConn struct {
	deafConn
	session *LocalSession
}

func (c *instantConn) Deliver(call DeviceCall) error {
	c.session.Complete(call.ID, registry.Result{Success: true, Output: "done"}, func(bool) {})
	return nil
}

// BenchmarkLocalCall is a call to a device of the same pod that answers at once, from the router to the socket and
// back.
func BenchmarkLocalCall(b *testing.B) {
	ctx, store := context.Background(), memory.New(memory.Options{})
	bus := store.NewBus()
	pod, err := NewPod(PodConfig{Store: store, Bus: bus})
	if err != nil {
		b.Fatal(err)
	}
	if err := pod.Start(ctx); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = pod.Close(ctx)
		_ = bus.Close(ctx)
	}()
	conn := &instantConn{}
	conn.session, _, err = pod.Hub.Open(ctx, registry.Session{Key: registry.Key{Tenant: "t", Session: "s"}}, conn)
	if err != nil {
		b.Fatal(err)
	}
	spec, err := registry.ToolSpec{Name: "tool"}.Normalize()
	if err == nil {
		err = conn.session.PutTools(ctx, []registry.ToolSpec{spec}, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
	route, args := registry.Route{Session: conn.session.Session(), Spec: spec}, registry.MustJSON(`{}`)
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		call := registry.Call{ID: "c" + strconv.Itoa(n), Route: route, Args: args, Timeout: time.Minute}
		if res, err := pod.Router.Call(ctx, call); err != nil || res.Output != "done" {
			b.Fatal(res, err)
		}
	}
}
