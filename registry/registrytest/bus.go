package registrytest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/farhand/farhand/registry"
)

// outcomes is a registry.SendCallback that forwards every outcome.
type outcomes chan error

func (c outcomes) Sent(err error) { c <- err }

func (f *fixture) listen(pod string, h registry.BusHandler) registry.Bus {
	f.Helper()
	bus := f.newBus()
	f.must(bus.Listen(f.ctx, pod, h))
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := bus.Close(ctx); err != nil {
			f.Errorf("close bus: %v", err)
		}
	})
	return bus
}

var busTests = []subtest{
	{name: "an envelope and its reply arrive whole", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		inA, inB := NewInbox(), NewInbox()
		busA, busB := f.listen(a, inA), f.listen(b, inB)
		f.must(errors.Join(busA.Healthy(), busB.Healthy()))
		sent := registry.Envelope{
			V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, Tenant: f.tenant, Session: "s1", Generation: 7,
			CallID: "c1", Tool: "camera", Args: registry.MustJSON(`{"big":12345678901234567890,"s":"é\u0000"}`),
			TimeoutMS: 1234, ReplyTo: a,
		}
		for _, said := range []struct{ durable, exact bool }{{false, false}, {true, false}, {false, true}} {
			sent.Durable, sent.Exact = said.durable, said.exact
			f.must(busA.Send(f.ctx, b, sent))
			if got := Receive(f, "the envelope", inB.Envelopes); !reflect.DeepEqual(got, sent) {
				f.Errorf("envelope %+v\nwant     %+v", got, sent)
			}
		}
		for _, r := range []registry.Reply{
			{V: registry.EnvelopeVersion, CallID: "c1", Delivered: true},
			{V: registry.EnvelopeVersion, CallID: "c1", Delivered: true, Running: true},
			{V: registry.EnvelopeVersion, CallID: "c1", Wake: true},
			{V: registry.EnvelopeVersion, CallID: "c1", Result: output("out"), Tenant: "t", Session: "s"},
			{V: registry.EnvelopeVersion, CallID: "c2",
				Err: registry.Errorf(registry.CodeBusy, "wait").With(registry.DispatchedNo)},
		} {
			f.must(busB.Reply(a, r))
			if got := Receive(f, "the reply", inA.Replies); !reflect.DeepEqual(got, r) {
				f.Errorf("reply %+v\nwant  %+v", got, r)
			}
		}
	}},
	{name: "sending to nobody says so", run: func(f *fixture) {
		bus := f.listen(f.pod("a"), NewInbox())
		err := bus.Send(f.ctx, "nobody-"+f.id,
			registry.Envelope{V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, CallID: "c"})
		if !errors.Is(err, registry.ErrNoReceiver) {
			f.Errorf("got %v", err)
		}
		if d := registry.AsError(err).Dispatched; d != registry.DispatchedNo {
			f.Errorf("dispatched %q", d)
		}
	}},
	{name: "the callback of an asynchronous send is called once", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		in := NewInbox()
		bus, _ := f.listen(a, NewInbox()), f.listen(b, in)
		sent := make(outcomes, 10)
		for i, pod := range []string{b, "nobody-" + f.id, b} {
			e := registry.Envelope{
				V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, CallID: fmt.Sprint(i),
				Args: registry.MustJSON(`{}`),
			}
			pending, err := bus.SendAsync(f.ctx, pod, e, sent)
			f.must(err)
			switch err := Receive[error](f, "the outcome", sent); {
			case pod == b && err != nil, pod != b && !errors.Is(err, registry.ErrNoReceiver):
				f.Errorf("sent to %s: %v", pod, err)
			}
			if pending.Cancel() {
				f.Errorf("what was sent to %s is said to be cancelled", pod)
			}
		}
		for _, want := range []string{"0", "2"} {
			if got := Receive(f, "the envelope", in.Envelopes).CallID; got != want {
				f.Errorf("received %s, want %s", got, want)
			}
		}
		if len(sent) != 0 {
			f.Errorf("called %d times more", len(sent))
		}
	}},
	{name: "a pod can send to itself", run: func(f *fixture) {
		a, in := f.pod("a"), NewInbox()
		bus := f.listen(a, in)
		f.must(bus.Send(f.ctx, a,
			registry.Envelope{V: registry.EnvelopeVersion, Kind: registry.EnvelopeEvict, Session: "s"}))
		if got := Receive(f, "the envelope", in.Envelopes); got.Session != "s" {
			f.Errorf("got %+v", got)
		}
	}},
	{name: "many at once arrive exactly once each", run: func(f *fixture) {
		const senders, each = 8, 100
		a, b := f.pod("a"), f.pod("b")
		inA, inB := NewInbox(), NewInbox()
		busA, busB := f.listen(a, inA), f.listen(b, inB)
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := range each {
					id := fmt.Sprintf("%d-%d", s, i)
					e := registry.Envelope{V: registry.EnvelopeVersion, Kind: registry.EnvelopeCall, CallID: id}
					result := &registry.Result{Output: strings.Repeat("x", 100)}
					r := registry.Reply{V: registry.EnvelopeVersion, CallID: id, Result: result}
					if err := errors.Join(busA.Send(f.ctx, b, e), busB.Reply(a, r)); err != nil {
						f.Errorf("send and reply: %v", err)
					}
				}
			})
		}
		calls, answers := make(map[string]int), make(map[string]int)
		for range senders * each {
			calls[Receive(f, "an envelope", inB.Envelopes).CallID]++
			answers[Receive(f, "a reply", inA.Replies).CallID]++
		}
		wg.Wait()
		if len(calls) != senders*each || len(answers) != senders*each {
			f.Errorf("%d distinct calls and %d distinct answers of %d", len(calls), len(answers), senders*each)
		}
	}},
	{name: "a closed bus receives nothing and refuses", run: func(f *fixture) {
		a, b := f.pod("a"), f.pod("b")
		busA := f.listen(a, NewInbox())
		busB := f.listen(b, NewInbox())
		f.must(busB.Close(f.ctx))
		if busB.Healthy() == nil {
			f.Error("a closed bus says it is healthy")
		}
		f.eventually("nobody listens any more", func() bool {
			err := busA.Send(f.ctx, b, registry.Envelope{V: registry.EnvelopeVersion, CallID: "c"})
			return errors.Is(err, registry.ErrNoReceiver)
		})
	}},
}
