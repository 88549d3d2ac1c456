package bus

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// defaultRetryFor is how long a failed reply is pushed again. A failover, a restart or a network outage often takes
// seconds, and most callers wait longer.
const defaultRetryFor = 5 * time.Second

// pendingReply is a reply that is queued or being sent.
type pendingReply struct {
	pod     string
	callID  string
	payload []byte
	once    bool     // must not arrive twice
	failed  *failure // nil before the first failure
}

func (r *pendingReply) to() string      { return r.pod }
func (r *pendingReply) message() []byte { return r.payload }

// failure is the retry state of a reply that could not be pushed.
type failure struct {
	tries int       // failed attempts
	due   time.Time // of the next attempt
	until time.Time // no attempt after that
}

// atMostOnce reports whether a reply must not be pushed again if the first push may have worked. A result may be pushed
// twice: the first counts, and the second finds no pending call and a final record. An error that says that the device
// was not reached must not. Its caller may look the session up and send the call again under the same id, and would
// take the second copy for the reply to that.
func atMostOnce(r registry.Reply) bool {
	return r.Err != nil && r.Err.Dispatched == registry.DispatchedNo
}

// replyQueue sends the replies for a share of the pods. Failed replies wait for a retry in a separate batcher, so that
// they do not delay others.
type replyQueue struct {
	bus     *Bus
	first   *batcher[*pendingReply]
	retries *batcher[*pendingReply]
}

func newReplyQueue(b *Bus) *replyQueue {
	size := func(r *pendingReply) int { return len(r.payload) }
	q := &replyQueue{bus: b}
	q.first = &batcher[*pendingReply]{
		flush: q.push, size: size,
		limits: batchLimits{queueItems: 8192, queueBytes: 64 << 20, flushItems: 512, flushBytes: 4 << 20},
	}
	q.retries = &batcher[*pendingReply]{
		flush: q.pushAgain, size: size,
		limits: batchLimits{queueItems: 8192, queueBytes: 32 << 20, flushItems: 512, flushBytes: 4 << 20},
	}
	return q
}

// close delivers the queued replies until ctx ends, and drops the rest.
func (q *replyQueue) close(ctx context.Context) {
	for _, queue := range []*batcher[*pendingReply]{q.first, q.retries} { // failures of the first go to the second
		if dropped := queue.close(ctx); len(dropped) > 0 {
			q.bus.lostReplies(dropped, ctx.Err())
		}
	}
}

// pushAgain pushes failed replies once they are due.
func (q *replyQueue) pushAgain(batch []*pendingReply) {
	if !pause(q.bus.retrying, time.Until(batch[0].failed.due)) {
		q.bus.lostReplies(batch, errStopped)
		return
	}
	q.push(batch)
}

// errStopped is the cause when the bus is closed and has no time left for retries.
var errStopped = errors.New("the bus is closed")

// push appends replies to the lists of their pods.
func (q *replyQueue) push(batch []*pendingReply) {
	ctx, cancel := context.WithTimeout(context.Background(), q.bus.conn.Timeout())
	defer cancel()
	sorted := byPod(batch)
	pipe := q.bus.conn.Pipeline()
	commands := make(map[string]*redisconn.Command, len(sorted))
	for pod, replies := range sorted {
		args := []any{repliesTTL.Milliseconds()}
		for _, p := range packets(replies) {
			args = append(args, p.payload)
		}
		q.bus.counts.repliesSent.Add(int64(len(replies)))
		q.bus.counts.replyPackets.Add(int64(len(args) - 1))
		commands[pod] = pipe.Eval(scriptPush, []string{podRepliesKey(pod)}, args...)
	}
	if pipe.Exec(ctx) == nil {
		return
	}
	for pod, replies := range sorted {
		var refused redis.Error
		switch err := commands[pod].Err(); {
		case err == nil:
		case dispatched(err) == registry.DispatchedNo && errors.As(err, &refused):
			q.publish(ctx, pod, replies, err)
		default: // a client that cannot push cannot publish
			q.retry(replies, err)
		}
	}
}

// publish sends replies that the server did not append to the list over the channel. A Redis that is out of memory
// rejects writes, but still publishes.
func (q *replyQueue) publish(ctx context.Context, pod string, replies []*pendingReply, cause error) {
	b := q.bus
	b.opts.Log.Error("answers not stored, publishing them instead", "pod", pod, "answers", len(replies), "error", cause)
	publish := publishCommand(b.conn)
	pipe := b.conn.Pipeline()
	commands := make([]*redisconn.Command, len(replies))
	for i, r := range replies {
		commands[i] = pipe.Do(publish, podChannel(pod), r.payload)
	}
	_ = pipe.Exec(ctx) // every command has its own error
	for i, c := range commands {
		switch {
		case c.Err() != nil:
			q.retry(replies[i:i+1], c.Err())
		case c.Int() == 0: // no subscriber: not at this moment, or no longer
			q.retry(replies[i:i+1], cause)
		default:
			b.counts.published.Add(1)
		}
	}
}

// retry queues replies for another attempt, or drops them.
func (q *replyQueue) retry(replies []*pendingReply, cause error) {
	now := time.Now()
	unknown := dispatched(cause) == registry.DispatchedUnknown
	var lost []*pendingReply
	for _, r := range replies {
		if r.failed == nil {
			r.failed = &failure{until: now.Add(q.bus.retryFor)}
		}
		r.failed.due = now.Add(backoffAfter(r.failed.tries))
		r.failed.tries++
		if unknown && r.once || r.failed.due.After(r.failed.until) || !q.retries.requeue(r) {
			lost = append(lost, r)
			continue
		}
		q.bus.counts.retried.Add(1)
	}
	if n := len(replies) - len(lost); n > 0 {
		q.bus.opts.Log.Warn("answers not delivered, trying again",
			"answers", n, "first_call", replies[0].callID, "error", cause)
	}
	if len(lost) > 0 {
		q.bus.lostReplies(lost, cause)
	}
}
