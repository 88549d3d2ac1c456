package registrytest

import (
	"context"
	"errors"
	"fmt"

	"github.com/farhand/farhand/registry"
)

// twice is a bus that repeats every reply that may be delivered twice: immediately, and once more when its test asks
// for it. A bus does that if it does not know the fate of the first.
type twice struct {
	registry.Bus
	handled chan registry.Reply // replies that its pod has handled
	again   chan func() error
}

// Reply implements registry.Bus.
func (b twice) Reply(pod string, r registry.Reply) error {
	err := b.Bus.Reply(pod, r)
	if r.Err != nil && r.Err.Dispatched == registry.DispatchedNo {
		return err
	}
	b.again <- func() error { return b.Bus.Reply(pod, r) }
	return errors.Join(err, b.Bus.Reply(pod, r))
}

// Listen implements registry.Bus.
func (b twice) Listen(ctx context.Context, pod string, h registry.BusHandler) error {
	return b.Bus.Listen(ctx, pod, watched{h, b.handled})
}

// watched reports every reply that its handler has handled.
type watched struct {
	registry.BusHandler
	handled chan<- registry.Reply
}

// HandleReply implements registry.BusHandler.
func (h watched) HandleReply(r registry.Reply) {
	h.BusHandler.HandleReply(r)
	h.handled <- r
}

var twiceTests = []subtest{
	{name: "an answer that comes twice counts once", run: func(f *fixture) {
		handled, again, newBus := make(chan registry.Reply, 1024), make(chan func() error, 1024), f.newBus
		f.newBus = func() registry.Bus { return twice{newBus(), handled, again} }
		a, b := f.startPod("a"), f.startPod("b")
		local := NewDevice(nil).Connect(f, b, f.session("s1"), tool("camera", "x"))
		route := registry.Route{Session: local.Session(), Spec: local.Tools()[0]}
		for i, durable := range []bool{false, true, false, true} {
			id, args := fmt.Sprintf("c%d", i), fmt.Sprintf(`{"nonce":%d}`, i)
			f.create(f.record(id))
			res, err := a.Router.Call(f.ctx, registry.Call{
				ID: id, Route: route, Args: registry.MustJSON(args), Timeout: testTimeout, Durable: durable,
			})
			if err != nil || res.Output != args {
				f.Fatalf("call %d: %+v, %v", i, res, err)
			}
			if !durable { // its record is written at its end, or by the answer that finds no waiting caller
				f.moved(id, registry.EventSucceed, registry.Change{Session: f.key("s1"), Result: &res})
			}
			// The second answer may have found the caller still waiting. The third does not.
			f.must(Receive(f, "the repetition", again)())
			for answers := 0; answers < 3; {
				if r := Receive(f, "the answer", handled); r.CallID == id && r.Result != nil {
					answers++
				}
			}
		}
		if n := a.Stats().Pending; n != 0 {
			f.Errorf("%d calls still pending", n)
		}
		for id, want := range map[string]string{
			"c0": "accepted succeeded", "c1": "accepted delivered succeeded",
			"c2": "accepted succeeded", "c3": "accepted delivered succeeded",
		} {
			if r := f.read(id); states(r) != want || r.Late || r.Result == nil {
				f.Errorf("%s: %s, %+v", id, states(r), r)
			}
		}
	}},
}
