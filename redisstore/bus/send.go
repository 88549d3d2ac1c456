package bus

import (
	"context"
	"errors"
	"time"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// repliesTTL is the TTL of a list of replies. Its pod reads it immediately or never.
const repliesTTL = 60 * time.Second

// Send implements registry.Bus.
func (b *Bus) Send(ctx context.Context, pod string, e registry.Envelope) error {
	o := &outcome{done: make(chan struct{})}
	pending, err := b.SendAsync(ctx, pod, e, o)
	if err != nil {
		return err
	}
	return o.await(ctx, pending, b.conn.Timeout())
}

// SendAsync implements registry.Bus.
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

// outcome is the result of sending an envelope, for Send to wait for.
type outcome struct {
	done chan struct{} // closed when err is set
	err  error
}

// Sent implements registry.SendCallback.
func (o *outcome) Sent(err error) {
	o.err = err
	close(o.done)
}

// await waits until an envelope has been sent with its batch, at most atMost. The wait for the previous batch counts,
// because a caller must notice soon that Redis does not answer.
func (o *outcome) await(ctx context.Context, pending registry.PendingSend, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	cause := context.DeadlineExceeded
	select {
	case <-o.done:
		return o.err
	case <-timer.C:
	case <-ctx.Done():
		cause = ctx.Err()
	}
	if pending.Cancel() {
		return registry.StoreUnavailable("send", cause).With(registry.DispatchedNo)
	}
	select {
	case <-o.done: // at the same moment, or before it could be cancelled
		return o.err
	default:
		return registry.StoreUnavailable("send", cause).With(registry.DispatchedUnknown)
	}
}

// errRefused is the cause when the queue is full or the bus is closed.
var errRefused = errors.New("too much is waiting to be sent, or the bus is closed")

// pendingEnvelope is an envelope that is queued or being sent.
type pendingEnvelope struct {
	ctx     context.Context // of the sender
	sender  registry.SendCallback
	queue   *batcher[*pendingEnvelope]
	pod     string
	payload []byte
}

// Cancel implements registry.PendingSend.
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
			sent, commands = append(sent, p), append(commands, pipe.Do(publish, channel, p.payload))
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

// publishError returns the error for the senders of a packet to a pod.
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
			return registry.StoreUnavailable("send", err).With(registry.DispatchedUnknown)
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

// Reply implements registry.Bus.
func (b *Bus) Reply(pod string, r registry.Reply) error {
	payload, err := encodeReply(r)
	if err != nil {
		return registry.Errorf(registry.CodeInvalidResult, "The result is not valid JSON.")
	}
	reply := &pendingReply{pod: pod, callID: r.CallID, payload: payload, once: atMostOnce(r)}
	if !shareOf(b.replies, pod).first.submit(reply, false) {
		b.counts.refused.Add(1)
		return registry.StoreUnavailable("reply", errRefused)
	}
	return nil
}

func (b *Bus) lostReplies(replies []*pendingReply, cause error) {
	b.counts.lost.Add(int64(len(replies)))
	b.opts.Log.Error("answers not delivered; their callers will time out",
		"answers", len(replies), "first_call", replies[0].callID, "error", cause)
}
