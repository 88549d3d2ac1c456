package routing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/farhand/farhand/registry"
)

// simCaller makes one request, as agent.Invoker does.
type simCaller struct {
	sim  *simulation
	pod  *simPod
	plan callPlan
	id   string
}

// joinGrace is how much longer than a call may take its record is waited for.
const joinGrace = 100 * time.Millisecond

// ask makes the requests of a step.
func (s *simulation) ask(plan callPlan) {
	s.request(plan, plan.pod, plan.nonce+"-a")
	switch plan.shape {
	case shapeKeyed, shapeLongKey:
		s.after(plan.later, func() { s.request(plan, plan.again, plan.nonce+"-b") })
	case shapeCancelled, shapeRevoked:
		s.after(plan.later, func() { s.cancel(plan, plan.nonce+"-a") })
	case shapeAsync:
		for n := range 3 {
			s.after(plan.later*time.Duration(n+1), func() { s.follow(plan, plan.nonce+"-a", n) })
		}
	}
}

// after does something later, in time with nothing else.
func (s *simulation) after(wait time.Duration, do func()) {
	s.work.Add(1)
	time.AfterFunc(wait, func() {
		defer s.work.Done()
		do()
	})
}

// request has a pod take a request, if there is one.
func (s *simulation) request(plan callPlan, slot int, id string) {
	p := s.near(slot)
	if p == nil {
		return
	}
	c := &simCaller{sim: s, pod: p, plan: plan, id: id}
	s.work.Add(1)
	p.mu.Lock()
	p.calls.Add(1)
	p.mu.Unlock()
	s.begin(request{id: id, plan: plan, pod: p.id, asked: time.Now()})
	started := make(chan struct{})
	go func() {
		defer s.work.Done()
		defer p.calls.Done()
		select {
		case <-started:
		case <-p.killed:
			return
		}
		c.run()
	}()
	p.to(func() { close(started) })
}

// asker is the key under which a context says who asks: of two who ask for the same at the same instant each has a
// fate.
type asker struct{}

func named(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, asker{}, who)
}

func askerOf(ctx context.Context) string {
	who, _ := ctx.Value(asker{}).(string)
	return who
}

func (c *simCaller) run() {
	ctx, cancel := context.WithCancel(named(c.pod.requests, c.id))
	defer cancel()
	if c.plan.shape == shapeDisconnected {
		stop := time.AfterFunc(c.plan.later, cancel)
		defer stop.Stop()
	}
	var heard outcome
	if c.plan.durable() {
		heard = c.durable(ctx)
	} else {
		heard = c.light(ctx)
	}
	if c.pod.pass(c.sim.fates.of("heard", c.id)) && !errors.Is(context.Cause(c.pod.requests), registry.ErrAbandoned) {
		heard.at, heard.offered = time.Now(), c.sim.devices[c.plan.device].lastOffer()
		c.sim.hear(c.id, heard)
	}
}

// record begins the record of the call.
func (c *simCaller) record() registry.Record {
	rec := registry.NewRecord(c.id, simTenant, simTools[c.plan.tool].Name, c.args())
	rec.SessionID, rec.TimeoutMS = c.sim.devices[c.plan.device].key.Session, c.plan.timeout.Milliseconds()
	return rec
}

func (c *simCaller) args() []byte { return fmt.Appendf(nil, `{"nonce":"%s"}`, c.plan.nonce) }

func (c *simCaller) resolve(ctx context.Context, deadline time.Time, rec *registry.Record) (registry.Route, error) {
	d := c.sim.devices[c.plan.device]
	target := registry.Target{SessionID: d.key.Session}
	if c.plan.named {
		target.DeviceID = d.id
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	route, err := c.pod.pod.Router.Resolve(ctx, simTenant, simTools[c.plan.tool].Name, target, registry.SelectNone)
	if err == nil {
		rec.DeviceID = route.Session.DeviceID
	}
	return route, err
}

func (c *simCaller) light(ctx context.Context) outcome {
	deadline := time.Now().Add(c.plan.timeout)
	rec := c.record()
	route, err := c.resolve(ctx, deadline, &rec)
	var res registry.Result
	if left := time.Until(deadline); err == nil && left <= 0 {
		err = registry.Errorf(registry.CodeTimeout, "The time was up.").With(registry.DispatchedNo)
	} else if err == nil {
		res, err = c.call(ctx, registry.Call{
			ID: c.id, Route: route, Args: registry.MustJSON(string(c.args())), Timeout: left, Record: &rec,
		}, deadline)
	}
	// of several that end together, too
	time.Sleep(c.sim.fates.of("finish", c.id).span(time.Microsecond, 20*time.Microsecond))
	c.pod.pod.Calls.Finish(&rec, res, err)
	return c.outcome(c.id, res, err)
}

// call makes a call, and makes it again if the device defines its tool otherwise by now.
func (c *simCaller) call(ctx context.Context, call registry.Call, deadline time.Time) (registry.Result, error) {
	for range 2 {
		res, err := c.pod.pod.Router.Call(ctx, call)
		if !errors.Is(err, registry.CodeStaleRoute) {
			return res, err
		}
		timed, cancel := context.WithDeadline(ctx, deadline)
		call.Route, err = c.pod.pod.Router.ResolveAgain(timed, call.Route)
		cancel()
		if err != nil {
			return registry.Result{}, err
		}
		call.Timeout, call.Attempt = max(time.Millisecond, time.Until(deadline)), call.Attempt+1
	}
	return c.pod.pod.Router.Call(ctx, call)
}

func (c *simCaller) durable(ctx context.Context) outcome {
	asked := time.Now()
	deadline := asked.Add(c.plan.timeout)
	rec := c.record()
	async := !c.plan.keyed()
	rec.RequestDigest = c.plan.nonce
	if !async {
		rec.IdempotencyKey = "key-" + c.plan.nonce
	} else {
		rec.Mode = registry.ModeAsync
	}
	route, refused := c.resolve(ctx, deadline, &rec)
	calls := c.pod.pod.Calls
	timed, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var stored registry.Record
	if refused != nil {
		if async {
			calls.Finish(&rec, registry.Result{}, refused)
			return c.outcome(c.id, registry.Result{}, refused)
		}
		var err error
		if stored, err = calls.ByKey(timed, simTenant, rec.IdempotencyKey); err != nil {
			if registry.IsCallNotFound(err) {
				err = refused
				calls.Finish(&rec, registry.Result{}, refused)
			}
			return c.outcome(c.id, registry.Result{}, registry.AsError(err).With(registry.DispatchedNo))
		}
	} else {
		var err error
		stored, _, err = calls.Start(timed, rec, func(run context.Context) (registry.Result, error) {
			of := rec
			return c.call(run, registry.Call{
				ID: c.id, Route: route, Args: registry.MustJSON(string(c.args())),
				Timeout: max(time.Millisecond, time.Until(deadline)), Durable: true, Record: &of,
			}, deadline)
		})
		if err != nil {
			if e := registry.AsError(err); e.Dispatched == "" {
				err = e.With(registry.DispatchedNo)
			}
			return c.outcome(c.id, registry.Result{}, err)
		}
	}
	if async {
		return outcome{callID: stored.CallID, accepted: true}
	}
	return c.join(ctx, stored, asked)
}

// join waits for the end of the call that has the key.
func (c *simCaller) join(ctx context.Context, rec registry.Record, asked time.Time) outcome {
	if !rec.State.Final() {
		wait := time.Until(asked.Add(time.Duration(rec.TimeoutMS)*time.Millisecond + joinGrace))
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		var err error
		id := rec.CallID
		if rec, err = c.pod.pod.Calls.WaitOutcome(ctx, simTenant, id, wait); err != nil {
			return c.outcome(id, registry.Result{}, registry.AsError(err).With(registry.DispatchedUnknown))
		}
	}
	if !rec.State.Final() {
		dispatched := rec.Dispatched
		if dispatched != registry.DispatchedYes {
			dispatched = registry.DispatchedUnknown
		}
		o := c.outcome(rec.CallID, registry.Result{},
			registry.Errorf(registry.CodeTimeout, "It is still %s.", rec.State).With(dispatched))
		o.accepted = true
		return o
	}
	res, err := rec.Outcome()
	return c.outcome(rec.CallID, res, err)
}

func (c *simCaller) outcome(callID string, res registry.Result, err error) outcome {
	if err == nil {
		return outcome{callID: callID, answered: true, success: res.Success, output: res.Output}
	}
	e := registry.AsError(err)
	if e.Dispatched == "" {
		e = e.With(registry.DispatchedNo) // as agent.Invoker completes what happened before the call
	}
	return outcome{callID: callID, code: e.Code, dispatched: e.Dispatched}
}

// cancel cancels the call of a request, at some pod.
func (s *simulation) cancel(plan callPlan, id string) {
	p := s.near(plan.again)
	if p == nil {
		return
	}
	s.work.Add(1)
	p.calls.Add(1)
	p.to(func() { s.trace("cancel %s at %s", id, p.id) })
	go func() {
		defer s.work.Done()
		defer p.calls.Done()
		if !p.pass(s.fates.of("cancel", id)) {
			return
		}
		ctx, cancel := context.WithTimeout(named(p.requests, "cancel "+id), 5*time.Second)
		defer cancel()
		rec, err := p.pod.Calls.Cancel(ctx, simTenant, id)
		s.trace("cancelled %s: %s %v", id, rec.State, err)
	}()
}

// follow reads the record of a call, at some pod, and waits a little for its end.
func (s *simulation) follow(plan callPlan, id string, n int) {
	p := s.near(plan.again + n)
	if p == nil {
		return
	}
	s.work.Add(1)
	p.calls.Add(1)
	go func() {
		defer s.work.Done()
		defer p.calls.Done()
		if !p.pass(s.fates.of("follow", id, fmt.Sprint(n))) {
			return
		}
		ctx, cancel := context.WithTimeout(named(p.requests, fmt.Sprint("follow ", id, n)), 5*time.Second)
		defer cancel()
		rec, err := p.pod.Calls.Wait(ctx, simTenant, id, plan.later)
		if err == nil && p.pass(s.fates.of("followed", id, fmt.Sprint(n))) {
			s.see(id, rec)
		}
	}()
}
