package routing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// answerWait is how long the device that has a session may take to answer a ping.
const answerWait = 2 * time.Second

// maxContests limits how many successive holders are asked for one claim.
const maxContests = 4

// Obtain claims a session that another connection holds. It fails with ErrHeldByAnother if that connection keeps the
// session, or if ctx ends first. said delivers the claimer's introduction, once. The caller continues as after Open.
func (p *Hub) Obtain(
	ctx context.Context, s registry.Session, c Conn, held *registry.Held, said <-chan registry.Introduction,
) (*LocalSession, error) {
	var spoken *registry.Introduction
	for range maxContests {
		v, gone := p.contest(ctx, held, &spoken, said)
		if v != verdictTake || ctx.Err() != nil { // ctx may have ended together with the verdict
			return nil, registry.ErrHeldByAnother
		}
		l, err := p.Replace(ctx, s, c, held.Holder, gone)
		if !errors.As(err, &held) {
			return l, err
		}
	}
	return nil, registry.ErrHeldByAnother
}

// contest decides which connection gets the session. gone reports that the holder did not answer.
func (p *Hub) contest(
	ctx context.Context, held *registry.Held, spoken **registry.Introduction, said <-chan registry.Introduction,
) (v verdict, gone bool) {
	answers := make(chan bool, 1)
	var asking sync.WaitGroup
	asked, stop := context.WithCancel(ctx)
	asking.Go(func() { answers <- p.Answers(asked, held.Holder) })
	defer asking.Wait()
	defer stop()
	var known *bool
	for {
		if v := decide(held, *spoken, known); v != verdictWait {
			return v, known != nil && !*known
		}
		select {
		case in := <-said:
			*spoken, said = &in, nil
		case alive := <-answers:
			known = &alive
		case <-ctx.Done():
			return verdictRefuse, false
		}
	}
}

// verdict is the decision about a claim of a held session.
type verdict int

const (
	verdictWait   verdict = iota // more information is needed
	verdictTake                  // the claimer gets the session
	verdictRefuse                // the holder keeps it
)

// decide decides a claim. said is nil until the claimer has introduced itself. answers is nil until it is known whether
// the holder answers.
func decide(h *registry.Held, said *registry.Introduction, answers *bool) verdict {
	holder := &h.Holder
	switch {
	case said != nil && proves(h, said.Proof()):
		return verdictTake
	case answers == nil:
		return verdictWait
	case !*answers:
		return verdictTake
	case holder.Can(registry.CapabilityResumeToken): // a device that keeps its token would have presented it
	case holder.DeviceID == "":
		return verdictTake
	case said != nil && said.DeviceID == holder.DeviceID:
		return verdictTake
	}
	if said == nil {
		return verdictWait
	}
	return verdictRefuse
}

// proves reports whether the proof belongs to the holder, or to the device that may take the session back from it.
func proves(h *registry.Held, proof string) bool {
	if proof == "" {
		return false
	}
	return slices.Contains(h.Holder.Proofs, proof) ||
		slices.Contains(h.Holder.ReclaimableBy, proof) && h.At.Before(h.Holder.ReclaimableUntil)
}

// probePrefix is the prefix of the ids of pings between pods.
const probePrefix = "ping-"

// Answers reports whether the device that holds a session answers a ping, on any pod. It takes no longer than
// answerWait. If the bus cannot carry the ping, it returns true: the device counts as connected.
func (p *Hub) Answers(ctx context.Context, holder registry.Session) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	id := probePrefix + uuid.NewString()
	answer, stop := p.pings.listen(id, 1)
	defer stop()
	if holder.Pod == p.pod {
		if !p.pingHere(holder, func() { p.pings.notify(id, true) }) {
			return false
		}
	} else {
		err := p.bus.Send(ctx, holder.Pod, registry.Envelope{
			V: registry.EnvelopeVersion, Kind: registry.EnvelopePing, Tenant: holder.Tenant,
			Session: holder.Key.Session, Generation: holder.Generation, CallID: id, ReplyTo: p.pod,
		})
		if err != nil {
			return registry.AsError(err).Code != registry.CodeNotConnected // no pod listens there
		}
	}
	select {
	case alive := <-answer:
		return alive
	case <-ctx.Done():
		return false
	}
}

// pingHere pings the device that holds a session, by this claim or a later one, if its socket is on this pod. It
// returns false if it is not.
func (p *Hub) pingHere(holder registry.Session, answered func()) bool {
	l := p.Get(holder.Key)
	if l == nil || l.generation() < holder.Generation {
		return false
	}
	l.conn.Ping(answered)
	return true
}

// handlePing pings a device for another pod.
func (p *Hub) handlePing(e registry.Envelope) {
	reply := func(r registry.Reply) {
		r.V, r.CallID = registry.EnvelopeVersion, e.CallID
		if err := p.bus.Reply(e.ReplyTo, r); err != nil {
			p.log.Debug("sign of life not sent", "session", e.Session, "pod", e.ReplyTo, "error", err)
		}
	}
	holder := registry.Session{Key: e.Key(), Generation: e.Generation}
	if !p.pingHere(holder, func() { reply(registry.Reply{Delivered: true}) }) {
		reply(registry.Reply{Err: registry.ErrNotOwner.With(registry.DispatchedNo)})
	}
}

// handlePong handles another pod's answer to a ping. It returns false if the reply is not a pong.
func (p *Hub) handlePong(r registry.Reply) bool {
	if !strings.HasPrefix(r.CallID, probePrefix) {
		return false
	}
	p.pings.notify(r.CallID, r.Delivered)
	return true
}

// Hold stores the record of a durable call that waits for a person. No pod holds the call itself: Begin starts it, on
// any pod, or Refuse ends it. The results are those of Start.
func (c *Calls) Hold(ctx context.Context, rec registry.Record) (stored registry.Record, created bool, err error) {
	rec.Pod = c.pod
	rec.DigestArgs()
	ctx, cancel := inTime(ctx)
	defer cancel()
	return c.store.CreateCall(ctx, rec)
}

// Attend runs wait, on the calling goroutine, for a light call that waits for a person or a device. Meanwhile every pod
// can look the call up and cancel it, which ends wait's context. The caller must end the call with Finish, and may run
// it before. Attend writes to rec only before wait begins.
func (c *Calls) Attend(ctx context.Context, rec *registry.Record, wait func(context.Context) error) error {
	p, leave := c.router.await(rec)
	defer leave()
	rec.Pod = c.pod
	line := c.rec.keepRunning(rec)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-p.ready:
				if p.progress().cancelled {
					cancel(callCancelled(registry.DispatchedNo))
				}
			}
		}
	})
	defer func() {
		close(done)
		watching.Wait()
	}()
	stored, stop := context.WithTimeout(ctx, lastLook)
	c.rec.waitFor(stored, line) // so that every pod finds the call
	stop()
	err := wait(ctx)
	if p.progress().cancelled && !errors.Is(err, registry.CodeCancelled) { // the canceller already got this outcome
		return callCancelled(registry.DispatchedNo)
	}
	return err
}

// Begin starts a held call on this pod, and charges its slot to the requester. It returns false, and does not start
// run, if the call was begun before or has ended.
func (c *Calls) Begin(
	ctx context.Context, of share.Owner, callID string, timeout time.Duration,
	run func(context.Context, registry.Record) (registry.Result, error),
) (begun bool, err error) {
	place, err := c.enter(of)
	if err != nil {
		return false, err
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	rec, begun, err := c.store.BeginCall(ctx, of.Tenant, callID, c.pod, timeout)
	if err != nil || !begun {
		place.Release()
		return begun, err
	}
	c.active.Store(callID, nil)
	c.running.Go(func() {
		defer place.Release()
		defer c.active.Delete(callID)
		res, err := run(c.ctx, rec)
		if errors.Is(context.Cause(c.ctx), registry.ErrAbandoned) {
			return // the next reader of the record ends it
		}
		c.complete(rec, res, err)
	})
	return true, nil
}

// Refuse ends a held call that must not run, and reports whether it was still held.
func (c *Calls) Refuse(ctx context.Context, tenant, callID string, why *registry.Error) (bool, error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	moved, err := c.store.MoveCall(ctx, tenant, callID, registry.EventReject,
		registry.Change{Err: why.With(registry.DispatchedNo)})
	if err != nil || !moved.Applied {
		return false, err
	}
	rec := moved.Record
	notifyWatchers(c.bus, c.log, moved)
	c.watchers.notify(callID, struct{}{})
	if rec.IdempotencyKey != "" {
		if err := c.store.FreeKey(ctx, tenant, rec.IdempotencyKey, callID); err != nil {
			c.log.Warn("idempotency key not freed", "call", callID, "error", err)
		}
	}
	final := rec.Summary()
	c.rec.activity(registry.Activity{
		Tenant: tenant, Type: registry.ActivityCall, SessionID: rec.SessionID, DeviceID: rec.DeviceID, Call: &final,
	})
	return true, nil
}
