package bus

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

func (b *Bus) Send(ctx context.Context, pod string, e registry.Envelope) error {
	done := make(outcome, 1)
	pending, err := b.SendAsync(ctx, pod, e, done)
	if err != nil {
		return err
	}
	return done.await(ctx, pending, b.conn.Timeout())
}

// outcome gets the result of SendAsync.
type outcome chan error

func (o outcome) Sent(err error) { o <- err }

// await waits until an envelope has been sent with its batch, at most atMost. The wait for the previous batch counts,
// because a caller must notice soon that Redis does not answer.
func (o outcome) await(ctx context.Context, pending registry.PendingSend, atMost time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case err := <-o:
		return err
	case <-ctx.Done():
	}
	cancelled := registry.StoreUnavailable("send", ctx.Err())
	if pending.Cancel() {
		return cancelled.With(registry.DispatchedNo)
	}
	select {
	case err := <-o: // at the same moment, or before it could be cancelled
		return err
	default:
		return cancelled.With(registry.DispatchedUnknown)
	}
}

func (b *Bus) SendAsync(
	ctx context.Context, pod string, e registry.Envelope, s registry.SendCallback,
) (registry.PendingSend, error) {
	if err := ctx.Err(); err != nil {
		return nil, registry.StoreUnavailable("send", err).With(registry.DispatchedNo)
	}
	payload, err := encodeEnvelope(e)
	if err != nil {
		refusal := registry.Errorf(registry.CodeInvalidRequest, "The arguments are not valid JSON.")
		return nil, refusal.With(registry.DispatchedNo)
	}
	queue := shareOf(b.envelopes, pod)
	p := &pendingEnvelope{ctx: ctx, sender: s, queue: queue, pod: pod, payload: payload}
	if !queue.submit(p, true) {
		b.counts.unsent.Add(1)
		return nil, registry.StoreUnavailable("send", errRefused).With(registry.DispatchedNo)
	}
	return p, nil
}

// errRefused is the cause when the queue is full or the bus is closed.
var errRefused = errors.New("the send queue is full, or the bus is closed")

// pendingEnvelope is an envelope that is queued or being sent.
type pendingEnvelope struct {
	ctx     context.Context // of the sender
	sender  registry.SendCallback
	queue   *batcher[*pendingEnvelope]
	pod     string
	payload []byte
}

func (p *pendingEnvelope) Cancel() bool { return p.queue.cancel(p) }

func (p *pendingEnvelope) to() string      { return p.pod }
func (p *pendingEnvelope) message() []byte { return p.payload }

// publishCommand is the command that publishes to a channel. On a Cluster the channels are sharded: publisher and
// subscriber connect to the master that owns the channel's slot.
func publishCommand(conn *redisconn.Conn) string {
	if conn.IsCluster() {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// publish sends envelopes on one connection from the pool, in one round trip. If there is only one, the context of its
// sender also bounds it.
func (b *Bus) publish(batch []*pendingEnvelope) {
	parent := context.Background()
	if len(batch) == 1 {
		parent = batch[0].ctx
	}
	ctx, cancel := context.WithTimeout(parent, b.conn.Timeout())
	defer cancel()
	publish := publishCommand(b.conn)
	pipe := b.conn.Pipeline()
	var sent []packet[*pendingEnvelope]
	var commands []*redisconn.Command
	for pod, envelopes := range byPod(batch) {
		channel := podChannel(pod)
		for _, p := range packets(envelopes) {
			sent, commands = append(sent, p),
				append(commands, pipe.Do(publish, channel, b.opts.Signer.Sign(pod, p.payload)))
		}
	}
	b.counts.callsSent.Add(int64(len(batch)))
	b.counts.callPackets.Add(int64(len(sent)))
	_ = pipe.Exec(ctx) // every command has its own error
	for i, c := range commands {
		err := b.publishError(ctx, sent[i].items[0].pod, c)
		for _, p := range sent[i].items {
			p.sender.Sent(err)
		}
	}
}

func (b *Bus) publishError(ctx context.Context, pod string, published *redisconn.Command) error {
	if err := published.Err(); err != nil {
		return registry.StoreUnavailable("send", err).With(dispatched(err))
	}
	if published.Int() > 0 {
		return nil
	}
	if b.conn.IsCluster() {
		switch n, err := subscribers(ctx, b.conn, podChannel(pod)); {
		case err != nil:
			return registry.AsError(err).With(registry.DispatchedUnknown)
		case n > 0:
			return nil
		}
	}
	return registry.ErrNoReceiver
}

// subscribers returns how many subscribers a channel has at the Cluster master that owns its slot. The result of
// SPUBLISH is not always that number: a replica that was the master when the client last asked also runs SPUBLISH. It
// passes the message on to its master, and counts its own subscribers. A script is redirected to the master.
func subscribers(ctx context.Context, conn *redisconn.Conn, channel string) (int64, error) {
	c, err := conn.Eval(ctx, scriptSubscribers, []string{channel})
	return c.Int(), err
}

func (b *Bus) Reply(pod string, r registry.Reply) error {
	payload, err := encodeReply(r)
	if err != nil {
		return registry.Errorf(registry.CodeInvalidResult, "The result is not valid JSON.")
	}
	reply := &pendingReply{pod: pod, callID: r.CallID, payload: payload, result: r.Result != nil}
	reply.once = r.Err != nil && r.Err.Dispatched == registry.DispatchedNo
	if r.Result != nil {
		cost := min(len(payload)+replyOverhead, replyBytes)
		reply.held, err = b.results.Try(share.Owner{Tenant: r.Owner}, int64(cost))
	}
	if err != nil || !shareOf(b.replies, pod).queueOf(reply).submit(reply, false) {
		reply.held.Release()
		b.counts.refused.Add(1)
		return registry.StoreUnavailable("reply", errRefused)
	}
	return nil
}

func (b *Bus) lostReplies(replies []*pendingReply, cause error) {
	releaseAll(replies)
	b.counts.lost.Add(int64(len(replies)))
	b.opts.Log.Error("answers not delivered; their callers will time out",
		"answers", len(replies), "first_call", replies[0].callID, "error", cause)
}
