package registrytest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/routing"
)

// Device is a routing.Conn that answers by itself. Tests of other packages also use it.
type Device struct {
	// Answer runs once per call, in its own goroutine. A nil result leaves the call unanswered.
	Answer func(routing.DeviceCall) *registry.Result

	mu        sync.Mutex
	local     *routing.LocalSession
	calls     []routing.DeviceCall
	closed    chan routing.CloseCause
	cancelled chan string
}

// NewDevice returns a device; a nil answer echoes the arguments.
func NewDevice(answer func(routing.DeviceCall) *registry.Result) *Device {
	if answer == nil {
		answer = func(c routing.DeviceCall) *registry.Result {
			return &registry.Result{Success: true, Output: c.Args.String()}
		}
	}
	return &Device{Answer: answer, closed: make(chan routing.CloseCause, 16), cancelled: make(chan string, 64)}
}

// silent returns a device that never answers.
func silent() *Device { return NewDevice(func(routing.DeviceCall) *registry.Result { return nil }) }

// reporting returns a device that never answers, and reports every call.
func reporting(calls chan<- struct{}) *Device {
	return NewDevice(func(routing.DeviceCall) *registry.Result { calls <- struct{}{}; return nil })
}

// newCall returns a call to a route with a new id.
func newCall(route registry.Route, args string, timeout time.Duration) registry.Call {
	return registry.Call{
		ID: registry.NewCallID(), Route: route, Args: registry.MustJSON(args), Timeout: timeout,
	}
}

// Connect opens a session for the device on a pod, closes it when the test ends, and registers tools.
func (d *Device) Connect(
	t testing.TB, pod *routing.Pod, s registry.Session, tools ...registry.ToolSpec,
) *routing.LocalSession {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	l, _, err := pod.Hub.Open(ctx, s, d)
	if held := (*registry.Held)(nil); errors.As(err, &held) {
		l, err = pod.Hub.Replace(ctx, s, d, held.Holder, true)
	}
	if err != nil {
		t.Fatalf("open session: %v", err)
	}
	d.mu.Lock()
	d.local = l
	d.mu.Unlock()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		l.Close(ctx)
	})
	if err := l.PutTools(ctx, tools, nil); err != nil {
		t.Fatalf("register: %v", err)
	}
	return l
}

// Ping implements routing.Conn: the device always answers.
func (*Device) Ping(answered func()) { answered() }

// Owner implements routing.Conn.
func (*Device) Owner() share.Owner { return share.Owner{} }

// Pulse implements routing.Conn.
func (d *Device) Pulse() registry.Pulse { return registry.Pulse{} }

// Deliver implements routing.Conn.
func (d *Device) Deliver(c routing.DeviceCall) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	l := d.local
	go func() {
		if r := d.Answer(c); r != nil {
			l.Complete(c.ID, *r, func(bool) {})
		}
	}()
	return nil
}

// Cancel implements routing.Conn.
func (d *Device) Cancel(callID, _ string) {
	select {
	case d.cancelled <- callID:
	default:
	}
}

// Cancelled returns a channel of the ids of cancelled calls.
func (d *Device) Cancelled() <-chan string { return d.cancelled }

// Close implements routing.Conn.
func (d *Device) Close(cause routing.CloseCause) {
	select {
	case d.closed <- cause:
	default:
	}
}

// Closed returns a channel of the causes for which the device was closed.
func (d *Device) Closed() <-chan routing.CloseCause { return d.closed }

// Calls returns the calls so far.
func (d *Device) Calls() []routing.DeviceCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]routing.DeviceCall(nil), d.calls...)
}

// startPod starts a complete pod on the fixture's store.
func (f *fixture) startPod(name string) *routing.Pod {
	f.Helper()
	bus := f.newBus()
	pod, err := routing.NewPod(routing.PodConfig{
		ID: name + "-" + f.id, Store: f.store, Bus: bus, Limits: lasting,
	})
	if err != nil {
		f.Fatal(err)
	}
	f.must(pod.Start(f.ctx))
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := errors.Join(pod.Close(ctx), bus.Close(ctx)); err != nil {
			f.Errorf("close pod: %v", err)
		}
	})
	return pod
}

// call resolves and calls a tool through a pod.
func (f *fixture) call(pod *routing.Pod, session, name, args string, timeout time.Duration) (registry.Result, error) {
	route, err := pod.Router.Resolve(f.ctx, f.tenant, name, registry.Target{SessionID: session}, registry.SelectNone)
	if err != nil {
		return registry.Result{}, err
	}
	return pod.Router.Call(f.ctx, newCall(route, args, timeout))
}

var routingTests = []subtest{
	{name: "every pod reaches every device, each answer its own question", run: func(f *fixture) {
		pods := []*routing.Pod{f.startPod("a"), f.startPod("b"), f.startPod("c")}
		for i, pod := range pods {
			NewDevice(nil).Connect(f, pod, f.session(fmt.Sprintf("s%d", i)), tool("echo", "x"))
		}
		together(90, func(i int) {
			args := fmt.Sprintf(`{"nonce":%d}`, i)
			res, err := f.call(pods[i%3], fmt.Sprintf("s%d", i/3%3), "echo", args, testTimeout)
			if err != nil || !res.Success || res.Output != args {
				f.Errorf("call %d: %+v, %v", i, res, err)
			}
		})
		for _, pod := range pods {
			if n := pod.Stats().Pending; n != 0 {
				f.Errorf("%d calls still pending", n)
			}
		}
	}},
	{name: "a failure of the tool is a result, not an error", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		NewDevice(func(routing.DeviceCall) *registry.Result {
			r := registry.NewResult(false, registry.JSON{}, "Camera permission denied")
			return &r
		}).Connect(f, b, f.session("s1"), tool("camera", "x"))
		for _, pod := range []*routing.Pod{a, b} {
			res, err := f.call(pod, "s1", "camera", `{}`, testTimeout)
			if err != nil || res.Success || res.Error != "Camera permission denied" || res.Output != res.Error {
				f.Errorf("%+v, %v", res, err)
			}
		}
	}},
	{name: "parts of a result reach every pod and the record", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		parts := []registry.Part{
			{Type: registry.PartImage, MIMEType: "image/png", Name: "a.png", Data: []byte("\x00\xff\x89PNG"), Size: 6},
			{Type: registry.PartFile, MIMEType: "video/mp4", URL: "https://example.com/1", Size: 1 << 40},
			{Type: registry.PartAudio, MIMEType: "audio/ogg", Size: 7},
		}
		s := f.session("s1")
		l := NewDevice(func(routing.DeviceCall) *registry.Result {
			return &registry.Result{Success: true, Output: "seen", Parts: parts}
		}).Connect(f, b, s, tool("tool", "x"))
		for _, pod := range []*routing.Pod{a, b} {
			res, err := f.call(pod, "s1", "tool", `{}`, testTimeout)
			if err != nil || !reflect.DeepEqual(res.Parts, parts) {
				f.Errorf("%+v, %v", res, err)
			}
		}
		f.durable(a, l.Session(), "kept")
		if r := f.settled("kept", registry.StateSucceeded); !reflect.DeepEqual(r.Result.Parts, parts) {
			f.Errorf("kept %+v", r.Result)
		}
	}},
	{name: "a silent device times out when asked to", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		silent().Connect(f, b, f.session("s1"), tool("sleep", "x"))
		for name, pod := range map[string]*routing.Pod{"remote": a, "local": b} {
			start := time.Now()
			_, err := f.call(pod, "s1", "sleep", `{}`, time.Second)
			f.wantCode(err, registry.CodeTimeout, registry.DispatchedYes)
			if took := time.Since(start); took < time.Second {
				f.Errorf("%s: took %v", name, took)
			}
		}
	}},
	{name: "a slow device past the loss limit is waited for", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		release := make(chan struct{})
		NewDevice(func(c routing.DeviceCall) *registry.Result {
			<-release
			return &registry.Result{Success: true, Output: "late"}
		}).Connect(f, b, f.session("s1"), tool("slow", "x"))
		timer := time.AfterFunc(2500*time.Millisecond, func() { close(release) })
		defer timer.Stop()
		res, err := f.call(a, "s1", "slow", `{}`, testTimeout)
		if err != nil || res.Output != "late" {
			f.Errorf("%+v, %v", res, err)
		}
	}},
	{name: "no device answers at once", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		l := NewDevice(nil).Connect(f, b, f.session("s1"), tool("echo", "x"))
		route, err := a.Router.Resolve(f.ctx, f.tenant, "echo", registry.Target{SessionID: "s1"}, registry.SelectNone)
		f.must(err)
		l.Close(f.ctx)
		_, err = a.Router.Call(f.ctx, newCall(route, `{}`, testTimeout))
		f.wantCode(err, registry.CodeNotConnected, registry.DispatchedNo)
		f.wantCode(errOf(f.call(a, "s1", "echo", `{}`, testTimeout)), registry.CodeNotConnected)
		f.wantCode(errOf(f.call(a, "never", "echo", `{}`, testTimeout)), registry.CodeSessionNotFound)
	}},
	{name: "calls in flight fail when the device goes", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		asked := make(chan struct{}, 2)
		l := reporting(asked).Connect(f, b, f.session("s1"), tool("hang", "x"))
		failed := make(chan error, 2)
		for _, pod := range []*routing.Pod{a, b} {
			go func() {
				_, err := f.call(pod, "s1", "hang", `{}`, time.Minute)
				failed <- err
			}()
		}
		Receive(f, "the first call", asked)
		Receive(f, "the second call", asked)
		l.Close(f.ctx)
		for range 2 {
			err := Receive(f, "the failure", failed)
			f.wantCode(err, registry.CodeConnectionLost, registry.DispatchedYes)
		}
	}},
	{name: "a call follows a device that moved", run: func(f *fixture) {
		a, b, c := f.startPod("a"), f.startPod("b"), f.startPod("c")
		old := NewDevice(nil)
		oldLocal := old.Connect(f, b, f.session("s1"), tool("echo", "x"))
		route, err := a.Router.Resolve(f.ctx, f.tenant, "echo", registry.Target{SessionID: "s1"}, registry.SelectNone)
		f.must(err)
		moved := NewDevice(nil)
		moved.Connect(f, c, f.session("s1"), tool("echo", "x"))
		if cause := Receive(f, "the eviction", old.Closed()); cause != routing.CloseReplaced {
			f.Errorf("closed because %s", cause)
		}
		oldLocal.Close(f.ctx) // late, like that of a half-open socket
		res, err := a.Router.Call(f.ctx, newCall(route, `{"n":1}`, testTimeout))
		if err != nil || res.Output != `{"n":1}` || len(moved.Calls()) != 1 || len(old.Calls()) != 0 {
			f.Errorf("%+v, %v; old device saw %d, new %d", res, err, len(old.Calls()), len(moved.Calls()))
		}
		f.wantList(registry.Query{}, "s1(echo)")
	}},
	{name: "an answer to no open call changes nothing", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		d := NewDevice(nil)
		l := d.Connect(f, b, f.session("s1"), tool("echo", "x"))
		ignored := make(chan bool, 1)
		l.Complete("never", registry.Result{Success: true}, func(i bool) { ignored <- i })
		if !Receive(f, "the acknowledgement", ignored) {
			f.Error("an unknown call was settled")
		}
		f.must(errOf(f.call(a, "s1", "echo", `{}`, testTimeout)))
		l.Complete(d.Calls()[0].ID, registry.Result{Success: true}, func(i bool) { ignored <- i })
		if !Receive(f, "the acknowledgement", ignored) {
			f.Error("a call was settled twice")
		}
	}},
	{name: "a session takes so many calls at once and no more", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		asked := make(chan struct{}, routing.DefaultMaxInFlight)
		l := reporting(asked).Connect(f, b, f.session("s1"), tool("hang", "x"))
		var wg sync.WaitGroup
		for range routing.DefaultMaxInFlight {
			wg.Go(func() { _, _ = f.call(a, "s1", "hang", `{}`, time.Minute) })
		}
		for range routing.DefaultMaxInFlight {
			Receive(f, "a call", asked)
		}
		f.wantCode(errOf(f.call(a, "s1", "hang", `{}`, time.Minute)), registry.CodeBusy, registry.DispatchedNo)
		l.Close(f.ctx)
		wg.Wait()
	}},
	{name: "a caller that stops waiting leaves nothing behind", run: func(f *fixture) {
		a, b := f.startPod("a"), f.startPod("b")
		asked := make(chan struct{}, 1)
		reporting(asked).Connect(f, b, f.session("s1"), tool("hang", "x"))
		route, err := a.Router.Resolve(f.ctx, f.tenant, "hang", registry.Target{}, registry.SelectNone)
		f.must(err)
		ctx, cancel := context.WithCancel(f.ctx)
		failed := make(chan error, 1)
		go func() {
			_, err := a.Router.Call(ctx, newCall(route, `{}`, time.Minute))
			failed <- err
		}()
		Receive(f, "the call", asked)
		cancel()
		f.wantCode(Receive(f, "the end", failed), registry.CodeCancelled)
		if n := a.Stats().Pending; n != 0 {
			f.Errorf("%d calls still pending", n)
		}
	}},
}
