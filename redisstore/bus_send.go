package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/registry"
)

const (
	sendTimeout = 800 * time.Millisecond // for one batch to leave: one connection from the pool, one round trip
	repliesTTL  = 60 * time.Second       // of a reply list; its pod reads at once or never
)

// BusStats counts what a bus had to put up with since it was made.
type BusStats struct {
	RepliesRefused   int64 // not queued: too much was waiting
	RepliesPublished int64 // the list did not take them, so they went over the channel
	RepliesRepeated  int64 // tries to push an answer again that were put off after one failed
	RepliesLost      int64 // could not be delivered; their callers time out
	Malformed        int64 // messages that were not understood
	Resubscribed     int64 // times the subscription was rebuilt
	Panics           int64 // of the handler
}

type busCounts struct {
	refused, published, repeated, lost, malformed, panics atomic.Int64
}

// Stats returns the counters.
func (b *Bus) Stats() BusStats {
	s := BusStats{
		RepliesRefused: b.counts.refused.Load(), RepliesPublished: b.counts.published.Load(),
		RepliesRepeated: b.counts.repeated.Load(), RepliesLost: b.counts.lost.Load(), Malformed: b.counts.malformed.Load(), Panics: b.counts.panics.Load(),
	}
	b.mu.Lock()
	inbox := b.inbox
	b.mu.Unlock()
	if inbox != nil {
		s.Resubscribed = inbox.rebuilt.Load()
	}
	return s
}

// publication is an envelope on its way.
type publication struct {
	ctx     context.Context // of the sender
	channel string
	payload []byte

	done      chan struct{} // closed when the rest is set
	receivers int64
	err       error
	fate      registry.Dispatched // with err
}

func (p *publication) finish(receivers int64, err error, fate registry.Dispatched) {
	p.receivers, p.err, p.fate = receivers, err, fate
	close(p.done)
}

func (p *publication) outcome() error {
	switch {
	case p.err != nil:
		return registry.StoreUnavailable("send", p.err).With(p.fate)
	case p.receivers == 0:
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
	calls := make([]*call, len(batch))
	for i, p := range batch {
		calls[i] = out.do(command, p.channel, p.payload)
	}
	_ = out.run(ctx) // every call has its own error
	for i, p := range batch {
		if err := calls[i].err(); err != nil {
			p.finish(0, err, dispatched(err))
		} else {
			p.finish(calls[i].int(), nil, "")
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
