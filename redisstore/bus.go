package redisstore

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/farhand/farhand/registry"
)

// Bus is a registry.Bus on Redis: calls travel over a channel per pod, sharded on a Cluster, and answers over a list
// per pod, which keeps them while the pod reconnects. It is safe for concurrent use.
type Bus struct {
	conn *Conn
	log  *slog.Logger

	// Both by pod, so that a Cluster member that hangs holds up only its share.
	outbox  []*batcher[*publication]
	replies []*replyLane

	patience time.Duration   // with an answer that cannot be pushed
	retrying context.Context // ends when there is no time left to push answers again
	giveUp   context.CancelFunc
	counts   busCounts

	mu        sync.Mutex
	listening bool
	closed    bool
	inbox     *subscription
	drain     *replyReader
}

var _ registry.Bus = (*Bus)(nil)

// outboxes is how many batches of calls, and of answers, can be under way on a Cluster.
const outboxes = 8

// Bus returns a bus on the connection, for one pod.
func (c *Conn) Bus() *Bus {
	b := &Bus{conn: c, log: c.opts.Log, patience: replyPatience}
	b.retrying, b.giveUp = context.WithCancel(context.Background())
	n := 1
	if c.cluster() {
		n = outboxes
	}
	for range n {
		b.outbox = append(b.outbox, &batcher[*publication]{
			flush: b.publish, size: func(p *publication) int { return len(p.payload) },
			limits: batchLimits{queueItems: 1 << 16, queueBytes: 256 << 20, flushItems: 512, flushBytes: 4 << 20},
		})
		b.replies = append(b.replies, newReplyLane(b))
	}
	return b
}

// errClosed and errListening are returned for using a bus in an order it does not allow.
var (
	errClosed    = errors.New("the bus is closed")
	errListening = errors.New("the bus is already listening")
	errNoListen  = errors.New("the bus is not listening")
)

// Listen implements registry.Bus.
func (b *Bus) Listen(ctx context.Context, pod string, h registry.BusHandler) error {
	b.mu.Lock()
	switch {
	case b.closed:
		b.mu.Unlock()
		return unavailable("listen", errClosed)
	case b.listening:
		b.mu.Unlock()
		return unavailable("listen", errListening)
	}
	b.listening = true
	b.mu.Unlock()

	in := &receiver{bus: b, handler: h}
	inbox := newSubscription(b.conn, podChannel(pod), b.conn.opts.ProbeInterval, in.message, h.HandleGap)
	if err := inbox.open(ctx); err != nil {
		_ = inbox.close()
		b.mu.Lock()
		b.listening = false
		b.mu.Unlock()
		return unavailable("listen", err)
	}
	drain := newReplyReader(b.conn, podRepliesKey(pod), in.message)

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = inbox.close()
		_ = drain.close()
		return unavailable("listen", errClosed)
	}
	b.inbox, b.drain = inbox, drain
	inbox.start()
	drain.start()
	return nil
}

// shareOf returns the one of several that a pod belongs to.
func shareOf[T any](shares []T, pod string) T {
	if len(shares) == 1 {
		return shares[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod))
	return shares[h.Sum32()%uint32(len(shares))]
}

// Healthy implements registry.Bus.
func (b *Bus) Healthy() error {
	b.mu.Lock()
	inbox, drain, closed := b.inbox, b.drain, b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case inbox == nil:
		return errNoListen
	}
	return errors.Join(inbox.healthy(), drain.healthy())
}

// Close implements registry.Bus. What is still being sent keeps its own time limits; what ctx leaves no time for is
// dropped, logged and counted.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	inbox, drain := b.inbox, b.drain
	b.mu.Unlock()

	var err error
	if inbox != nil {
		err = errors.Join(inbox.close(), drain.close())
	}
	stop := context.AfterFunc(ctx, b.giveUp)
	for _, lane := range b.replies {
		lane.close(ctx)
	}
	stop()
	b.giveUp()
	for _, out := range b.outbox {
		for _, p := range out.close(ctx) {
			p.sender.Sent(registry.StoreUnavailable("send", ctx.Err()).With(registry.DispatchedNo))
		}
	}
	return unavailable("close", err)
}

// receiver hands what arrives to the handler of a bus.
type receiver struct {
	bus     *Bus
	handler registry.BusHandler
}

// message handles what came as one message.
func (r *receiver) message(text string) {
	if err := unpack(text, r.handle); err != nil {
		r.refuse(&badMessage{cause: err})
	}
}

// handle handles one message. Whatever it contains and whatever the handler does, receiving goes on.
func (r *receiver) handle(text string) {
	defer func() {
		if cause := recover(); cause != nil {
			r.bus.counts.panics.Add(1)
			r.bus.log.Error("message handler panicked", "panic", cause)
		}
	}()
	m, err := decodeMessage(text)
	if err != nil {
		var bad *badMessage
		if errors.As(err, &bad) {
			r.refuse(bad)
		}
		return
	}
	switch {
	case m.envelope != nil:
		r.handler.HandleEnvelope(*m.envelope)
	case m.reply != nil:
		r.handler.HandleReply(*m.reply)
	}
}

func (r *receiver) refuse(bad *badMessage) {
	r.bus.counts.malformed.Add(1)
	r.bus.log.Warn("message not understood", "call", bad.callID, "from_pod", bad.replyTo, "error", bad.cause)
	if reply := bad.refusal(); reply != nil {
		if err := r.bus.Reply(bad.replyTo, *reply); err != nil {
			r.bus.log.Warn("refusal not sent", "call", bad.callID, "error", err)
		}
	}
}

// backoff waits longer with every failure in a row. It reports whether to go on.
func backoff(ctx context.Context, failures int) bool { return pause(ctx, backoffAfter(failures)) }

// backoffAfter is 100 ms, doubled with every failure before, at most 2 s.
func backoffAfter(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 5), 2*time.Second)
}

// pause waits. It reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
