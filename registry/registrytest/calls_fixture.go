package registrytest

import (
	"fmt"
	"strings"
	"time"

	"github.com/farhand/farhand/registry"
)

// record returns a new call to session s1.
func (f *fixture) record(id string) registry.Record {
	return registry.Record{
		CallID: id, Tenant: f.tenant, Tool: "camera", SessionID: "s1", UserID: "u1", Turn: "turn-1", Pod: "asked",
		Source: registry.SourceLocal, Mode: registry.ModeAsync, TimeoutMS: time.Minute.Milliseconds(),
	}
}

func (f *fixture) create(r registry.Record) registry.Record {
	f.Helper()
	stored, created, err := f.store.CreateCall(f.ctx, r)
	if err != nil || !created || stored.CallID != r.CallID {
		f.Fatalf("create %s: %v, %v", r.CallID, created, err)
	}
	return stored
}

// known creates a call that already exists, and returns the existing one.
func (f *fixture) known(r registry.Record) registry.Record {
	f.Helper()
	stored, created, err := f.store.CreateCall(f.ctx, r)
	if err != nil || created {
		f.Fatalf("create %s: %v, %v", r.CallID, created, err)
	}
	return stored
}

func (f *fixture) read(id string) registry.Record {
	f.Helper()
	r, err := f.store.ReadCall(f.ctx, f.tenant, id)
	f.must(err)
	return r
}

func (f *fixture) watch(id, pod string) registry.Record {
	f.Helper()
	r, err := f.store.WatchCall(f.ctx, f.tenant, id, pod)
	f.must(err)
	return r
}

func (f *fixture) moved(id string, e registry.Event, c registry.Change) registry.Moved {
	f.Helper()
	m, err := f.store.MoveCall(f.ctx, f.tenant, id, e, c)
	f.must(err)
	return m
}

// move is moved for an event that must apply.
func (f *fixture) move(id string, e registry.Event, c registry.Change) registry.Moved {
	f.Helper()
	m := f.moved(id, e, c)
	if !m.Applied {
		f.Fatalf("%s of %s did not apply in state %s", e, id, m.Record.State)
	}
	return m
}

// step moves a call by an event with its usual change.
func (f *fixture) step(id string, e registry.Event) registry.Moved {
	f.Helper()
	return f.move(id, e, f.change(e))
}

// change returns the usual change of an event.
func (f *fixture) change(e registry.Event) registry.Change {
	switch e {
	case registry.EventSucceed:
		return registry.Change{Session: f.key("s1"), Result: output("out")}
	case registry.EventFail:
		return registry.Change{Session: f.key("s1"), Result: &registry.Result{Error: "no", Output: "no"}}
	case registry.EventRoute:
		return registry.Change{Session: f.key("s1"), DeviceID: "d1"}
	case registry.EventDeliver:
		return registry.Change{Owner: "owner"}
	case registry.EventLose:
		return registry.Change{Err: registry.Errorf(registry.CodeLost, "lost").With(registry.DispatchedUnknown)}
	default:
		return registry.Change{}
	}
}

// output returns a successful result whose numbers do not fit a double.
func output(text string) *registry.Result {
	structured := registry.MustJSON(`{"n":12345678901234567890,"a":[],"o":{},"h":"<&>"}`)
	return &registry.Result{Success: true, Output: text, Structured: structured}
}

func states(r registry.Record) string {
	var path []string
	for _, s := range r.Timeline {
		path = append(path, string(s.State))
	}
	return strings.Join(path, " ")
}

// keyed returns a new call with an idempotency key.
func (f *fixture) keyed(id, key string) registry.Record {
	r := f.record(id)
	r.IdempotencyKey, r.RequestDigest = key, "digest"
	return r
}

// wantHolder checks which call has the key k.
func (f *fixture) wantHolder(id string) {
	f.Helper()
	if r, err := f.store.CallByKey(f.ctx, f.tenant, "k"); err != nil || r.CallID != id {
		f.Errorf("the key belongs to %q, %v, want %q", r.CallID, err, id)
	}
}

func (f *fixture) keep(records ...registry.Record) {
	f.Helper()
	f.must(f.store.KeepCalls(f.ctx, records))
}

func (f *fixture) freeKey(tenant, callID string) {
	f.Helper()
	f.must(f.store.FreeKey(f.ctx, tenant, "k", callID))
}

// note appends n numbered events.
func (f *fixture) note(id string, n int) {
	f.Helper()
	var events []registry.CallEvent
	for i := range n {
		progress := float64(i)
		events = append(events, registry.CallEvent{
			Tenant: f.tenant, CallID: id, Type: registry.CallEventProgress, Progress: &progress,
			Message: fmt.Sprintf("<%d>", i), Chunk: "\x00é", At: time.UnixMilli(int64(i)).UTC(),
		})
	}
	f.must(f.store.AppendCallEvents(f.ctx, events))
}

func (f *fixture) events(id, after string) []registry.CallEvent {
	f.Helper()
	const page = 900
	var events []registry.CallEvent
	for {
		more, err := f.store.CallEvents(f.ctx, f.tenant, id, after, page)
		f.must(err)
		if events = append(events, more...); len(more) < page {
			return events
		}
		after = more[page-1].ID
	}
}
