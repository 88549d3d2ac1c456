package group

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Why the children that still run are cancelled, and no further ones start.
var (
	errDecided = errors.New("group: the mode has what it asks for")
	errCrowd   = errors.New("group: more devices need approval than one question can name")
)

// run is one group call. Its methods run on the goroutine of the tool's Execute, unless they say otherwise.
type run struct {
	service *Service
	args    Args
	sink    Sink
	by      share.Owner
	targets targets
	places  chan struct{} // as many as children may run at a time; held until the sink has the row
	moved   chan struct{} // a child has ended without success, which a race waits for

	counts registry.GroupCounts
	queued []string // ids of the children that wait for their devices
	held   []*held  // children that need approval
	cut    bool     // not every device was called
	failed error    // why the devices could not all be read or called
}

// held is a child that needs approval.
type held struct {
	target  target
	session registry.Session
	asked   *agent.Suspended
	by      string // who allowed it
	refused error  // why it must not run
}

// ended is what a child reports: a row, or that it is held.
type ended struct {
	row  Row
	held *held
	slot *share.Grant
}

// do calls the devices and returns why the call did not get what its mode asks for; empty: no reason is known.
func (r *run) do(ctx context.Context) string {
	stopped := r.phase(ctx, r.targets)
	waiting := make(list, 0, len(r.held))
	for _, h := range r.held {
		waiting = append(waiting, target{held: h})
	}
	r.cut = stopped != nil
	if len(waiting) > 0 && !r.decided() {
		r.decide(ctx, stopped)
		r.cut = r.phase(ctx, &waiting) != nil || r.cut
	}
	r.counts.Skipped = r.targets.skipped() + waiting.skipped()
	switch {
	case r.failed != nil:
		return "Not all devices were found: " + registry.AsError(r.failed).Message
	case ctx.Err() != nil:
		return "The time of the call ended before all devices had answered."
	case errors.Is(stopped, errCrowd):
		return tooMany().Message
	}
	return ""
}

// phase starts a child for each target until the call is decided, and waits until all have ended. It returns why not
// every target was called; nil: all were.
func (r *run) phase(ctx context.Context, from targets) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	starting, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	results := make(chan ended)
	var running sync.WaitGroup
	running.Go(func() {
		r.start(starting, from, func(t target) { running.Go(func() { results <- r.prepared(ctx, r.call(ctx, t)) }) })
	})
	go func() {
		running.Wait()
		close(results)
	}()
	for e := range results {
		r.take(e)
		e.slot.Release()
		<-r.places
		switch {
		case r.decided():
			stop(errDecided)
		case e.held != nil && len(r.held) > registry.MaxApprovedDevices:
			enough(errCrowd)
		}
	}
	return context.Cause(starting)
}

// start runs on a goroutine of its own: it calls launch for each target, when the target has a place among the
// children of this call and a slot of the pod. ctx ends when no further children may start.
func (r *run) start(ctx context.Context, from targets, launch func(target)) {
	for first := true; ; first = false {
		if !first && r.args.Mode == registry.GroupRace && !r.waitTurn(ctx) {
			return
		}
		select {
		case r.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		slot, err := r.service.slots.Acquire(ctx, r.by, 1)
		t, more := target{}, false
		if err != nil {
			err = registry.Errorf(registry.CodeBusy, "Too many group calls wait on this pod. Retry after a moment.")
		} else {
			t, more, err = from.next(ctx)
		}
		if err != nil && ctx.Err() == nil {
			r.failed = err
		}
		if err != nil || !more {
			slot.Release()
			<-r.places
			return
		}
		t.slot = slot
		launch(t)
	}
}

// waitTurn waits until the next device of a race may be called. It returns false if the call has ended.
func (r *run) waitTurn(ctx context.Context) bool {
	timer := time.NewTimer(time.Duration(r.args.StaggerMS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.moved:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// call runs a child, on a goroutine of its own.
func (r *run) call(ctx context.Context, t target) (e ended) {
	e.slot = t.slot
	if t.away {
		e.row = Row{
			SessionID: t.at.SessionID, State: registry.StateRejected,
			Err: registry.UnknownSession().With(registry.DispatchedNo),
		}
		return e
	}
	c := agent.ChildCall{
		DeviceCall: agent.DeviceCall{
			Tool: r.args.Tool, Args: r.args.Args, Target: t.at, Select: registry.SelectNewest,
			Timeout: time.Duration(r.args.TimeoutMS) * time.Millisecond, Queue: r.args.Queue.ttl(),
		},
		Route: t.route, Asleep: t.asleep,
	}
	if h := t.held; h != nil {
		t = h.target
		c.Route, c.Target, c.Asleep = t.route, t.at, t.asleep
		c.Asked, c.AllowedBy, c.Refused = h.asked, h.by, h.refused
		if c.Route.Session.Key == (registry.Key{}) { // the session that was asked about, of those with the device id
			c.Target.SessionID = h.session.Key.Session
			if h.refused != nil {
				c.Route.Session = h.session // for its record
			}
		}
	}
	if c.Route.Session.Key != (registry.Key{}) {
		c.Target = registry.Target{SessionID: c.Route.Session.Key.Session}
	}
	out, err := agent.CallChild(ctx, c)
	if out.Suspended != nil {
		e.held = &held{target: t, session: out.Session, asked: out.Suspended}
		return e
	}
	e.row = Row{
		SessionID: cmp.Or(out.Session.Key.Session, c.Target.SessionID),
		DeviceID:  cmp.Or(out.Session.DeviceID, c.Target.DeviceID), Outcome: out, State: out.State,
	}
	if err != nil {
		e.row.Err = registry.AsError(err)
		e.row.State = StateOf(e.row.Err)
	}
	return e
}

// prepared has the sink prepare the row of a child, unless it is held.
func (r *run) prepared(ctx context.Context, e ended) ended {
	if e.held == nil {
		r.sink.Prepare(ctx, &e.row)
	}
	return e
}

// StateOf returns the final state of a child without a result.
func StateOf(err *registry.Error) registry.State {
	switch registry.EndEvent(registry.Result{}, err) {
	case registry.EventReject:
		return registry.StateRejected
	case registry.EventCancel:
		return registry.StateCancelled
	case registry.EventTimeOut:
		return registry.StateTimedOut
	default:
		return registry.StateLost
	}
}

// take counts what a child reports, and hands its row to the sink.
func (r *run) take(e ended) {
	if e.held != nil {
		r.held = append(r.held, e.held)
	} else {
		e.row.CountIn(&r.counts)
		if e.row.State == registry.StateQueued {
			r.queued = append(r.queued, e.row.Outcome.CallID)
		}
		r.sink.Put(e.row)
	}
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// decided reports whether no further result matters.
func (r *run) decided() bool { return r.args.Mode != registry.GroupAll && r.reached() }

// reached reports whether the call has what its mode asks for.
func (r *run) reached() bool {
	switch r.args.Mode {
	case registry.GroupAll:
		return r.failed == nil && !r.cut && r.counts.Failed+r.counts.Cancelled == 0
	case registry.GroupQuorum:
		return r.counts.Succeeded >= r.args.Quorum
	default:
		return r.counts.Succeeded > 0
	}
}

// decide gets a decision about the held children: one question for each subject, all at the same time. stopped is why
// the first phase ended early.
func (r *run) decide(ctx context.Context, stopped error) {
	subjects := make(map[string][]*held)
	for _, h := range r.held {
		s := h.asked.Subject()
		subjects[s] = append(subjects[s], h)
	}
	var asking sync.WaitGroup
	for _, about := range subjects {
		if errors.Is(stopped, errCrowd) || len(subjects) > maxQuestions {
			answer(about, "", tooMany())
			continue
		}
		asking.Go(func() {
			children := make([]*agent.Suspended, 0, len(about))
			for _, h := range about {
				children = append(children, h.asked)
			}
			by, err := agent.AskTogether(ctx, children)
			answer(about, by, err)
		})
	}
	asking.Wait()
}

// maxQuestions is how many questions one group call asks at a time: the devices belong to several people, or define the
// tool differently.
const maxQuestions = 8

func answer(about []*held, by string, refused error) {
	for _, h := range about {
		h.by, h.refused = by, refused
	}
}

func tooMany() *registry.Error {
	return registry.Errorf(registry.CodeApprovalDenied, "The calls need a person's approval, and are for more than %d "+
		"devices or %d owners. Narrow devices down.", registry.MaxApprovedDevices, maxQuestions).
		With(registry.DispatchedNo)
}
