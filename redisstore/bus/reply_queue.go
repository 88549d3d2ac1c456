package bus

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/internal/signed"
	"github.com/farhand/farhand/registry"
)

// repliesTTL is the TTL of a list of replies. Its pod reads it immediately or never.
const repliesTTL = 60 * time.Second

// defaultRetryFor is how long a failed reply is pushed again. A failover, a restart or a network outage often takes
// seconds, and most callers wait longer.
const defaultRetryFor = 5 * time.Second

// Bytes of the list of a pod that does not read its replies. Long ones leave the rest to short ones, so that the
// callers of other tenants still get theirs, and those of the long ones get lost.
const (
	replyListBytes = 128 << 20
	shortListBytes = 64 << 20 // more, for replies that travel in packets
)

// pendingReply is a reply that is queued or being sent.
type pendingReply struct {
	pod     string
	callID  string
	payload []byte
	result  bool // of a tool that has run

	// once says that the reply must not be pushed again if the first push may have worked. A result may be pushed
	// twice: the first counts, and the second finds no pending call and a final record. An error that says that the
	// device was not reached must not. Its caller may look the session up and send the call again under the same id,
	// and would take the second copy for the reply to that.
	once bool

	held  *share.Grant // its part of Bus.results until it was sent or has failed; nil: none
	tries int          // failed attempts
	due   time.Time    // of the next attempt
	until time.Time    // no attempt after that; zero before the first failure
}

func (r *pendingReply) to() string      { return r.pod }
func (r *pendingReply) message() []byte { return r.payload }

// Results that wait to be sent are shared among tenants: the devices of one tenant may answer many calls at once, each
// with megabytes. A single tenant gets half. Other replies are short, and have the rest of their queue.
const (
	replyBytes    = 128 << 20 // of results
	replyOverhead = 8 << 10   // what a result costs besides its bytes, so that their number is also shared
	shortReplies  = 8192

	longReply = 64 << 10 // bytes from which a reply waits in a queue of its own
)

func releaseAll(replies []*pendingReply) {
	for _, r := range replies {
		r.held.Release()
	}
}

// replyQueue sends the replies for a share of the pods. Long replies, and failed ones that wait for a retry, have
// batchers of their own, so that they do not delay others. No pod gets a reply to a call after its result, so it does
// not matter what overtakes a result.
type replyQueue struct {
	bus     *Bus
	first   *batcher[*pendingReply]
	long    *batcher[*pendingReply]
	retries *batcher[*pendingReply]
}

func newReplyQueue(b *Bus) *replyQueue {
	size := func(r *pendingReply) int { return len(r.payload) }
	q := &replyQueue{bus: b}
	limits := batchLimits{
		queueItems: replyBytes/replyOverhead + shortReplies, queueBytes: replyBytes + shortReplies<<10,
		flushItems: 512, flushBytes: 4 << 20,
	}
	q.first = &batcher[*pendingReply]{flush: q.push, size: size, limits: limits}
	q.long = &batcher[*pendingReply]{flush: q.push, size: size, limits: limits}
	q.retries = &batcher[*pendingReply]{
		flush: q.pushAgain, size: size,
		limits: batchLimits{queueItems: 8192, queueBytes: 32 << 20, flushItems: 512, flushBytes: 4 << 20},
	}
	return q
}

func (q *replyQueue) queueOf(r *pendingReply) *batcher[*pendingReply] {
	if len(r.payload) >= longReply {
		return q.long
	}
	return q.first
}

// close delivers the queued replies until ctx ends, and drops the rest.
func (q *replyQueue) close(ctx context.Context) {
	for _, queue := range []*batcher[*pendingReply]{q.first, q.long, q.retries} { // failures go to the last
		if dropped := queue.close(ctx); len(dropped) > 0 {
			q.bus.lostReplies(dropped, ctx.Err())
		}
	}
}

func (q *replyQueue) pushAgain(batch []*pendingReply) {
	if !pause(q.bus.retrying, time.Until(batch[0].due)) {
		q.bus.lostReplies(batch, errClosed)
		return
	}
	q.push(batch)
}

func (q *replyQueue) push(batch []*pendingReply) {
	defer releaseAll(batch) // failed ones are bounded by the queue of retries
	ctx, cancel := context.WithTimeout(context.Background(), q.bus.conn.Timeout())
	defer cancel()
	sorted := byPod(batch)
	pipe := q.bus.conn.Pipeline()
	commands := make(map[string]*redisconn.Command, len(sorted))
	packed := make(map[string][]packet[*pendingReply], len(sorted))
	for pod, replies := range sorted {
		packed[pod] = packets(replies)
		args := []any{
			repliesTTL.Milliseconds(), q.bus.listBytes, q.bus.listBytes + shortListBytes,
			maxPacked + signed.Overhead + 1,
		}
		for _, p := range packed[pod] {
			args = append(args, q.bus.opts.Signer.Sign(pod, p.payload))
		}
		q.bus.counts.repliesSent.Add(int64(len(replies)))
		q.bus.counts.replyPackets.Add(int64(len(packed[pod])))
		commands[pod] = pipe.Eval(scriptPush, []string{podRepliesKey(pod)}, args...)
	}
	_ = pipe.Exec(ctx) // every command has its own error
	for pod, replies := range sorted {
		var refused redis.Error
		switch err := commands[pod].Err(); {
		case err == nil:
			for _, at := range commands[pod].List() {
				q.replace(packed[pod][redisconn.Int(at)-1].items)
			}
		case dispatched(err) == registry.DispatchedNo && errors.As(err, &refused):
			q.publish(ctx, pod, replies, err)
		default: // a client that cannot push cannot publish
			q.retry(replies, err)
		}
	}
}

// replace sends, for each result that the list of its pod has no room for, that the tool has run. It drops other
// replies.
func (q *replyQueue) replace(replies []*pendingReply) {
	var lost []*pendingReply
	for _, r := range replies {
		payload, err := encodeReply(registry.Reply{
			V: registry.EnvelopeVersion, CallID: r.callID, Err: registry.ResultNotSent(),
		})
		if !r.result || err != nil || !q.first.requeue(&pendingReply{pod: r.pod, callID: r.callID, payload: payload}) {
			lost = append(lost, r)
			continue
		}
		q.bus.counts.refused.Add(1)
	}
	if n := len(replies) - len(lost); n > 0 {
		q.bus.opts.Log.Warn("results dropped; their callers get lost: the pod does not read them",
			"pod", replies[0].pod, "results", n, "first_call", replies[0].callID)
	}
	if len(lost) > 0 {
		q.bus.lostReplies(lost, errListFull)
	}
}

var errListFull = errors.New("the pod does not read its replies, and their list is full")

// publish sends replies that the server did not append to the list over the channel. A Redis that is out of memory
// rejects writes, but still publishes.
func (q *replyQueue) publish(ctx context.Context, pod string, replies []*pendingReply, cause error) {
	b := q.bus
	b.opts.Log.Error("answers not stored; publishing them instead", "pod", pod, "answers", len(replies), "error", cause)
	publish := publishCommand(b.conn)
	pipe := b.conn.Pipeline()
	commands := make([]*redisconn.Command, len(replies))
	for i, r := range replies {
		commands[i] = pipe.Do(publish, podChannel(pod), b.opts.Signer.Sign(pod, r.payload))
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

func (q *replyQueue) retry(replies []*pendingReply, cause error) {
	now := time.Now()
	unknown := dispatched(cause) == registry.DispatchedUnknown
	var lost []*pendingReply
	for _, r := range replies {
		if r.until.IsZero() {
			r.until = now.Add(q.bus.retryFor)
		}
		r.due = now.Add(backoffAfter(r.tries))
		r.tries++
		if unknown && r.once || r.due.After(r.until) || !q.retries.requeue(r) {
			lost = append(lost, r)
			continue
		}
		q.bus.counts.retried.Add(1)
	}
	if n := len(replies) - len(lost); n > 0 {
		q.bus.opts.Log.Warn("answers not delivered; retrying",
			"answers", n, "first_call", replies[0].callID, "error", cause)
	}
	if len(lost) > 0 {
		q.bus.lostReplies(lost, cause)
	}
}
