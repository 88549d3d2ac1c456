package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// device is a session with a socket that is only a channel.
type device struct {
	f       *fleet
	local   *routing.LocalSession
	answer  func(routing.DeviceCall) (registry.Result, bool) // false: stay silent
	calls   chan routing.DeviceCall
	cancels chan string // ids of calls nobody waits for any more
	closed  chan routing.CloseCause
	work    sync.WaitGroup
	pulse   atomic.Pointer[registry.Pulse] // nil: no pong has come
}

// echo answers with the arguments it was sent.
func echo(c routing.DeviceCall) (registry.Result, bool) {
	return registry.NewResult(true, c.Args, ""), true
}

// silent never answers.
func silent(routing.DeviceCall) (registry.Result, bool) { return registry.Result{}, false }

// connect opens a session on a pod. The device answers calls with answer.
func (f *fleet) connect(pod int, s registry.Session, answer func(routing.DeviceCall) (registry.Result, bool),
	tools ...registry.ToolSpec) *device {
	f.Helper()
	s.Tenant = registry.DefaultTenant
	d := &device{
		f: f, answer: answer, calls: make(chan routing.DeviceCall, 64), cancels: make(chan string, 64),
		closed: make(chan routing.CloseCause, 4),
	}
	local, _, err := f.pods[pod].Hub.Open(f.Context(), s, d)
	f.must(err)
	d.local = local
	f.must(local.PutTools(f.Context(), tools, nil))
	f.Cleanup(func() { d.gone(); d.work.Wait() })
	return d
}

// session names a session and nothing else of it.
func session(id string) registry.Session { return registry.Session{Key: registry.Key{Session: id}} }

// gone is what a socket does when its connection has ended.
func (d *device) gone() {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	d.local.Close(ctx)
}

func (*device) Ping(answered func()) { answered() }

// Owner implements routing.Conn.
func (*device) Owner() share.Owner { return share.Owner{} }

// Pulse implements routing.Conn.
func (d *device) Pulse() registry.Pulse {
	if p := d.pulse.Load(); p != nil {
		return *p
	}
	return registry.Pulse{}
}

// Deliver implements routing.Conn. What it starts is counted before anybody can learn that there is something to
// wait for.
func (d *device) Deliver(c routing.DeviceCall) error {
	d.work.Add(1)
	d.calls <- c
	go func() {
		defer d.work.Done()
		if r, ok := d.answer(c); ok {
			d.settle(c.ID, r)
		}
	}()
	return nil
}

// settle sends an answer and waits until the pod has acknowledged it. It reports whether it changed anything.
func (d *device) settle(callID string, r registry.Result) bool {
	ignored := make(chan bool, 1)
	d.local.Complete(callID, r, func(i bool) { ignored <- i })
	return !<-ignored
}

// Cancel implements routing.Conn.
func (d *device) Cancel(callID, _ string) { d.cancels <- callID }

// cancelled waits until the device is told that nobody waits for a call any more.
func (d *device) cancelled() string {
	d.f.Helper()
	return await(d.f.T, "the device to be told of a cancelled call", d.cancels)
}

// await receives from a channel, or fails when nothing comes.
func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(testTimeout):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// Close implements routing.Conn.
func (d *device) Close(cause routing.CloseCause) {
	d.work.Add(1)
	d.closed <- cause
	go func() {
		defer d.work.Done()
		d.gone()
	}()
}

// delivered waits for the next call to reach the device.
func (d *device) delivered() routing.DeviceCall {
	d.f.Helper()
	return await(d.f.T, "a call to reach the device", d.calls)
}

// tool makes a definition; the parameters accept everything unless given.
func tool(name, description string, parameters ...string) registry.ToolSpec {
	spec := registry.ToolSpec{Name: name, Description: description}
	if len(parameters) > 0 {
		spec.Parameters = json.RawMessage(parameters[0])
	}
	spec, err := spec.Normalize()
	if err != nil {
		panic(err)
	}
	return spec
}

// tools makes definitions that differ by name only.
func tools(names ...string) []registry.ToolSpec {
	var specs []registry.ToolSpec
	for _, n := range names {
		specs = append(specs, tool(n, "does "+n))
	}
	return specs
}

// logBuffer collects log lines of concurrent writers.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
