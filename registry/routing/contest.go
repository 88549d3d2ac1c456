package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/registry"
)

// answerWait is how long the device that has a session may take to answer a ping.
const answerWait = 2 * time.Second

// maxContests limits how many successive holders are asked for one claim.
const maxContests = 4

// errContested is the error of a claimer that lost each race for a session. No holder has refused it, so it may retry.
var errContested = registry.Errorf(registry.CodeBusy, "Several connections claim this session at a time. Reconnect in "+
	"a moment.").RetryIn(time.Second)

// Obtain claims a session that another connection holds. It fails with ErrHeldByAnother if that connection keeps the
// session, or if ctx ends first, and with CodeBusy if others were faster maxContests times. said delivers the claimer's
// introduction, once. The caller continues as after Open.
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
	return nil, errContested
}

// contest decides which connection gets the session. gone reports that the holder did not answer.
func (p *Hub) contest(
	ctx context.Context, held *registry.Held, spoken **registry.Introduction, said <-chan registry.Introduction,
) (v verdict, gone bool) {
	answers := make(chan bool, 1)
	var asking sync.WaitGroup
	asked, stop := context.WithCancel(ctx)
	asking.Go(func() { answers <- p.answers(asked, held.Holder) })
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

// answers reports whether the device that holds a session answers a ping, on any pod. It takes no longer than
// answerWait. If the bus cannot carry the ping, it returns true: the device counts as connected.
func (p *Hub) answers(ctx context.Context, holder registry.Session) bool {
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
		err := p.send(ctx, holder.Pod, registry.Envelope{
			Kind: registry.EnvelopePing, Tenant: holder.Tenant, Session: holder.Key.Session,
			Generation: holder.Generation, CallID: id, ReplyTo: p.pod,
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
	holder := registry.Session{Key: e.Key(), Generation: e.Generation}
	answered := func() { p.tryReply(e.ReplyTo, registry.Reply{CallID: e.CallID, Delivered: true}) }
	if !p.pingHere(holder, answered) {
		gone := registry.ErrNotOwner.With(registry.DispatchedNo)
		p.tryReply(e.ReplyTo, registry.Reply{CallID: e.CallID, Err: gone})
	}
}
