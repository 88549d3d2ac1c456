package redisstore

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	sendTimeout = 800 * time.Millisecond // for one batch to leave: one connection from the pool, one round trip
	repliesTTL  = 60 * time.Second       // of a reply list; its pod reads at once or never
)

// BusStats says what waits in a bus, and counts what it had to put up with since it was made.
type BusStats struct {
	RepliesRefused   int64 // not queued: too much was waiting
	RepliesPublished int64 // the list did not take them, so they went over the channel
	RepliesRepeated  int64 // tries to push an answer again that were put off after one failed
	RepliesLost      int64 // could not be delivered; their callers time out
	Malformed        int64 // messages that were not understood
	Resubscribed     int64 // times the subscription was rebuilt
	Panics           int64 // of the handler
	CallsRefused     int64 // envelopes not queued: too much was waiting

	CallsQueued, CallBytesQueued     int64 // wait to be sent now
	RepliesQueued, ReplyBytesQueued  int64 // wait to be sent now
	RepliesPutOff, PutOffBytesQueued int64 // failed, and wait to be tried again
}

type busCounts struct {
	refused, published, repeated, lost, malformed, panics, unsent atomic.Int64
}

// Stats returns the counters.
func (b *Bus) Stats() BusStats {
	s := BusStats{
		RepliesRefused: b.counts.refused.Load(), RepliesPublished: b.counts.published.Load(),
		CallsRefused: b.counts.unsent.Load(), RepliesRepeated: b.counts.repeated.Load(), RepliesLost: b.counts.lost.Load(), Malformed: b.counts.malformed.Load(), Panics: b.counts.panics.Load(),
	}
	for _, out := range b.outbox {
		addWaiting(out, &s.CallsQueued, &s.CallBytesQueued)
	}
	for _, lane := range b.replies {
		addWaiting(lane.fresh, &s.RepliesQueued, &s.ReplyBytesQueued)
		addWaiting(lane.again, &s.RepliesPutOff, &s.PutOffBytesQueued)
	}
	b.mu.Lock()
	inbox := b.inbox
	b.mu.Unlock()
	if inbox != nil {
		s.Resubscribed = inbox.rebuilt.Load()
	}
	return s
}

func addWaiting[T comparable](b *batcher[T], items, bytes *int64) {
	n, size := b.waiting()
	*items, *bytes = *items+int64(n), *bytes+int64(size)
}

// Send implements registry.Bus.
func (b *Bus) Send(ctx context.Context, pod string, e registry.Envelope) error {
	s := &sending{done: make(chan struct{})}
	posted, err := b.Post(ctx, pod, e, s)
	if err != nil {
		return err
	}
	return s.wait(ctx, posted)
}

// Post implements registry.Bus.
func (b *Bus) Post(ctx context.Context, pod string, e registry.Envelope, s registry.Sender) (registry.Posted, error) {
	if err := ctx.Err(); err != nil {
		return nil, registry.StoreUnavailable("send", err).With(registry.DispatchedNo)
	}
	payload, err := encodeEnvelope(e)
	if err != nil {
		return nil, registry.Errorf(registry.CodeInvalidRequest, "The arguments are not valid JSON.").With(registry.DispatchedNo)
	}
	out := shareOf(b.outbox, pod)
	p := &publication{ctx: ctx, sender: s, out: out, pod: pod, payload: payload}
	if !out.submit(p, true) {
		b.counts.unsent.Add(1)
		return nil, registry.StoreUnavailable("send", errRefused).With(registry.DispatchedNo)
	}
	return p, nil
}

// sending is the waiting of Send.
type sending struct {
	done chan struct{} // closed when err is set
	err  error
}

// Sent implements registry.Sender.
func (s *sending) Sent(err error) {
	s.err = err
	close(s.done)
}

// wait waits until an envelope has left with its batch. The waiting for the batch before counts: a caller must hear soon
// that Redis does not answer.
func (s *sending) wait(ctx context.Context, posted registry.Posted) error {
	timer := time.NewTimer(sendTimeout)
	defer timer.Stop()
	cause := context.DeadlineExceeded
	select {
	case <-s.done:
		return s.err
	case <-timer.C:
	case <-ctx.Done():
		cause = ctx.Err()
	}
	if posted.Withdraw() {
		return registry.StoreUnavailable("send", cause).With(registry.DispatchedNo)
	}
	select {
	case <-s.done: // at the same moment, or before it could be taken back
		return s.err
	default:
		return registry.StoreUnavailable("send", cause).With(registry.DispatchedUnknown)
	}
}

// errRefused is the cause when more waits to be sent than is reasonable, or the bus is closed.
var errRefused = errors.New("too much is waiting to be sent, or the bus is closed")

// publication is an envelope on its way.
type publication struct {
	ctx     context.Context // of the sender
	sender  registry.Sender
	out     *batcher[*publication]
	pod     string
	payload []byte
}

// Withdraw implements registry.Posted.
func (p *publication) Withdraw() bool { return p.out.withdraw(p) }

func (p *publication) to() string      { return p.pod }
func (p *publication) message() []byte { return p.payload }

// outcome is what the sender of an envelope hears.
func outcome(receivers int64, err error) error {
	switch {
	case err != nil:
		return registry.StoreUnavailable("send", err).With(dispatched(err))
	case receivers == 0:
		return registry.ErrNoReceiver
	default:
		return nil
	}
}

// publishCommand is the command that reaches a channel. On a Cluster the channels are sharded: publisher and
// subscriber meet at the member that owns the channel's slot, so the number of receivers is true there too.
func (c *Conn) publishCommand() string {
	if c.cluster() {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// publish sends envelopes. A lonely one is bound by its sender's context, several by a time limit of their own.
func (b *Bus) publish(batch []*publication) {
	parent := context.Background()
	if len(batch) == 1 {
		parent = batch[0].ctx
	}
	ctx, cancel := context.WithTimeout(parent, sendTimeout)
	defer cancel()
	command := b.conn.publishCommand()
	out := b.conn.batch()
	var sent []parcel[*publication]
	var calls []*call
	for pod, publications := range byPod(batch) {
		channel := podChannel(pod)
		for _, p := range parcels(publications) {
			sent, calls = append(sent, p), append(calls, out.do(command, channel, p.payload))
		}
	}
	_ = out.run(ctx) // every call has its own error
	for i, c := range calls {
		told := outcome(c.int(), c.err())
		for _, p := range sent[i].items {
			p.sender.Sent(told)
		}
	}
}

// Reply implements registry.Bus.
func (b *Bus) Reply(pod string, r registry.Reply) error {
	payload, err := encodeReply(r)
	if err != nil {
		return registry.Errorf(registry.CodeInvalidResult, "The result is not valid JSON.")
	}
	reply := &pendingReply{pod: pod, callID: r.CallID, payload: payload, once: onlyOnce(r)}
	if !shareOf(b.replies, pod).fresh.submit(reply, false) {
		b.counts.refused.Add(1)
		return registry.StoreUnavailable("reply", errRefused)
	}
	return nil
}

func (b *Bus) lostReplies(replies []*pendingReply, cause error) {
	b.counts.lost.Add(int64(len(replies)))
	b.log.Error("answers not delivered; their callers will time out",
		"answers", len(replies), "first_call", replies[0].callID, "error", cause)
}
