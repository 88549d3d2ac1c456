package routing

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"time"

	"github.com/farhand/farhand/internal/cache"
	"github.com/farhand/farhand/registry"
)

// handleCall is called by the bus with a call for a socket of this pod.
func (r *Router) handleCall(e registry.Envelope) {
	// The calling pod sends a call again only for a newer claim of the session, or in another attempt.
	if !r.seen.add(e.CallID, e.Attempt, e.Generation) {
		r.counts.add(&r.counts.ReceivedTwice, 1)
		r.log.Warn("call received twice, delivered once", "call", e.CallID)
		return
	}
	if e.V != registry.EnvelopeVersion {
		r.refuse(e.ReplyTo, e.CallID, errVersions())
		return
	}
	// The store has the generation of a claim that is being restored before this pod does.
	l := r.hub.Get(e.Key())
	early := l != nil && l.generation() < e.Generation
	if !e.Durable && !early {
		r.deliverFor(context.Background(), e) // uses no store, so it does not wait
		return
	}
	later := func(ctx context.Context) {
		if early {
			l.awaitWrites()
		}
		r.deliverFor(ctx, e)
	}
	if !r.tasks.start(r.hub.payer(e.Key()), later) {
		busy := registry.Errorf(registry.CodeBusy, "The pod with the device's connection is too busy. Retry after a "+
			"moment.")
		r.refuse(e.ReplyTo, e.CallID, busy.With(registry.DispatchedNo))
	}
}

// deliverFor delivers the call of an envelope, if its session is here.
func (r *Router) deliverFor(ctx context.Context, e registry.Envelope) {
	pod, l := e.ReplyTo, r.hub.Get(e.Key())
	if l == nil || !holds(l.generation(), e) {
		r.refuse(pod, e.CallID, registry.ErrNotOwner.With(registry.DispatchedNo))
		return
	}
	timeout := time.Duration(e.TimeoutMS) * time.Millisecond
	ctx = r.tracer.Join(ctx, e.Trace)
	c := DeviceCall{
		ID: e.CallID, Tool: e.Tool, Args: e.Args, Timeout: timeout, Order: e.Order,
		Age: time.Duration(e.AgeMS) * time.Millisecond, Approved: e.Approved,
		UserID: strings.Clone(e.UserID),
	}
	// e and its strings hold the arguments, which nothing may keep once the device has them.
	tenant := l.key.Tenant
	onReply := func(reply registry.Reply) {
		if reply.Owner = tenant; reply.Result != nil {
			r.answerResult(pod, reply)
			return
		}
		r.answer(pod, reply)
	}
	_, _, err := l.deliver(ctx, c, basis{e.Spec, e.Attributes}, e.Durable, onReply)
	if err == nil {
		if e.Order != registry.OrderNone {
			r.answer(pod, registry.Reply{CallID: c.ID, InOrder: true})
		}
		return
	}
	// The calling pod will read the session from the store, so the changes must be there first.
	later := func(context.Context) {
		l.awaitWrites()
		r.refuse(pod, c.ID, err)
	}
	if !errors.Is(err, registry.CodeStaleRoute) || !r.tasks.start(r.hub.payer(e.Key()), later) {
		r.refuse(pod, c.ID, err)
	}
}

// staleWait is how long a rejection may wait for the store. It is shorter than the 2 s that the calling pod
// waits for a receipt.
const staleWait = 500 * time.Millisecond

// refuse tells the pod that waits for a call that the device has not received it.
func (r *Router) refuse(pod, callID string, err error) {
	r.answer(pod, registry.Reply{CallID: callID, Err: registry.AsError(err)})
}

func (r *Router) answer(pod string, reply registry.Reply) {
	reply.V = registry.EnvelopeVersion
	if err := r.bus.Reply(pod, reply); err != nil {
		r.log.Error("answer not sent; its caller will time out", "call", reply.CallID, "pod", pod, "error", err)
	}
}

// answerResult answers a call with its result. If that cannot be sent, the caller learns that the tool has run, and
// must not repeat the call. The result of a durable call is in its record.
func (r *Router) answerResult(pod string, reply registry.Reply) {
	reply.V = registry.EnvelopeVersion
	err := r.bus.Reply(pod, reply)
	if err == nil {
		return
	}
	r.log.Warn("result dropped; its caller gets lost", "call", reply.CallID, "pod", pod, "error", err)
	r.answer(pod, registry.Reply{CallID: reply.CallID, Err: registry.ResultNotSent()})
}

// holds reports whether a claim with that generation may take the call e. An older claim is about to be replaced by the
// claim that the caller knows. A newer claim may be another user's, which matters to callers that asked for more than
// the session's id.
func holds(generation int64, e registry.Envelope) bool {
	return generation == e.Generation || generation > e.Generation && !e.Exact
}

// handleReply is called by the bus with the replies of other pods.
func (r *Router) handleReply(reply registry.Reply) {
	if !r.pending.deliver(reply) {
		r.storeMissedAnswer(reply)
	}
}

// storeMissedAnswer stores an answer that came just after the wait had ended, because the device has
// heard that its answer counts. The answer to a durable call is already in the record, and has no tenant.
func (r *Router) storeMissedAnswer(reply registry.Reply) {
	if reply.Result == nil || reply.Tenant == "" {
		return
	}
	key := registry.Key{Tenant: reply.Tenant, Session: reply.Session}
	r.tasks.start(r.hub.payer(key), func(ctx context.Context) {
		r.hub.storeLateAnswer(ctx, key, nil, reply.CallID, *reply.Result, 1, func(registry.Moved, error) {})
	})
}

// seenLimit is how many calls are remembered at least.
const seenLimit = 1 << 15

// seenCalls remembers recent calls, so that a message delivered twice (such as one that a client library re-sent after
// a lost reply) reaches the device once. It is safe for concurrent use.
type seenCalls struct {
	seeds [2]maphash.Seed
	calls *cache.Cache[seenCall, struct{}]
}

// seenCall is one attempt of a call to one claim of a session. Its id is stored as a hash of 128 bits under secret
// seeds, because every garbage collection would scan tens of thousands of strings.
type seenCall struct {
	id         [2]uint64
	attempt    int64
	generation int64
}

func newSeenCalls() *seenCalls {
	return &seenCalls{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		calls: cache.New[seenCall, struct{}](seenLimit, 0),
	}
}

// has reports whether the call is remembered.
func (s *seenCalls) has(id string, generation int64) bool {
	return s.calls.Has(s.key(id, 0, generation))
}

// add remembers an attempt of a call. It reports whether the attempt is new to that generation.
func (s *seenCalls) add(id string, attempt, generation int64) bool {
	_, known := s.calls.GetOrPut(s.key(id, attempt, generation), struct{}{}, 1)
	return !known
}

func (s *seenCalls) key(id string, attempt, generation int64) seenCall {
	return seenCall{[2]uint64{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id)}, attempt, generation}
}
