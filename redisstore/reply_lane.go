package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/registry"
)

// replyPatience is how long an answer that could not be pushed is pushed again: a fail-over, a restart or a hiccup of
// the network takes seconds, and who waits for an answer mostly has longer.
const replyPatience = 5 * time.Second

// pendingReply is an answer on its way.
type pendingReply struct {
	pod     string
	callID  string
	payload []byte
	once    bool     // must not arrive twice
	failed  *failure // nil before the first
}

func (r *pendingReply) to() string      { return r.pod }
func (r *pendingReply) message() []byte { return r.payload }

// failure is what is known of an answer that could not be pushed.
type failure struct {
	tries int       // that failed
	due   time.Time // for the next
	until time.Time // for the last
}

// onlyOnce reports whether a reply may not be pushed again when it may have arrived. An answer may: the first counts,
// and a second finds nobody who waits and a record that is final. But when a pod says that the device was not reached,
// the caller may look the session up and ask again under the same id; the same words for a second time would be taken
// for the answer to that.
func onlyOnce(r registry.Reply) bool {
	return r.Err != nil && r.Err.Dispatched == registry.DispatchedNo
}

// replyLane carries the answers for a share of the pods. What could not be pushed waits in a queue of its own for
// another try, so that it holds nothing up.
type replyLane struct {
	bus   *Bus
	fresh *batcher[*pendingReply]
	again *batcher[*pendingReply]
}

func newReplyLane(b *Bus) *replyLane {
	size := func(r *pendingReply) int { return len(r.payload) }
	l := &replyLane{bus: b}
	l.fresh = &batcher[*pendingReply]{
		flush: l.push, size: size,
		limits: batchLimits{queueItems: 8192, queueBytes: 64 << 20, flushItems: 512, flushBytes: 4 << 20},
	}
	l.again = &batcher[*pendingReply]{
		flush: l.pushAgain, size: size,
		limits: batchLimits{queueItems: 8192, queueBytes: 32 << 20, flushItems: 512, flushBytes: 4 << 20},
	}
	return l
}

// close delivers what is queued within ctx, and drops the rest.
func (l *replyLane) close(ctx context.Context) {
	for _, queue := range []*batcher[*pendingReply]{l.fresh, l.again} { // what the first cannot deliver goes to the second
		if left := queue.close(ctx); len(left) > 0 {
			l.bus.lostReplies(left, ctx.Err())
		}
	}
}

// pushAgain pushes answers that failed before, once they are due.
func (l *replyLane) pushAgain(batch []*pendingReply) {
	if !pause(l.bus.retrying, time.Until(batch[0].failed.due)) {
		l.bus.lostReplies(batch, errGivenUp)
		return
	}
	l.push(batch)
}

// errGivenUp is the cause when the bus was closed and its time is up.
var errGivenUp = errors.New("the bus is closed")

// push appends answers to the lists of the pods that wait for them.
func (l *replyLane) push(batch []*pendingReply) {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	sorted := byPod(batch)
	out := l.bus.conn.batch()
	calls := make(map[string]*call, len(sorted))
	for pod, replies := range sorted {
		args := []any{repliesTTL.Milliseconds()}
		for _, p := range parcels(replies) {
			args = append(args, p.payload)
		}
		calls[pod] = out.eval(scriptPush, []string{podRepliesKey(pod)}, args...)
	}
	if out.run(ctx) == nil {
		return
	}
	for pod, replies := range sorted {
		var refused redis.Error
		switch err := calls[pod].err(); {
		case err == nil:
		case dispatched(err) == registry.DispatchedNo && errors.As(err, &refused):
			l.publish(ctx, pod, replies, err)
		default: // a client that cannot push cannot publish
			l.retry(replies, err)
		}
	}
}

// publish sends answers over the channel that the server did not put on the list: a Redis that is out of memory refuses
// to store, but still publishes.
func (l *replyLane) publish(ctx context.Context, pod string, replies []*pendingReply, cause error) {
	b := l.bus
	b.log.Error("answers not stored, publishing them instead", "pod", pod, "answers", len(replies), "error", cause)
	command := b.conn.publishCommand()
	out := b.conn.batch()
	calls := make([]*call, len(replies))
	for i, r := range replies {
		calls[i] = out.do(command, podChannel(pod), r.payload)
	}
	_ = out.run(ctx) // every call has its own error
	for i, c := range calls {
		switch {
		case c.err() != nil:
			l.retry(replies[i:i+1], c.err())
		case c.int() == 0: // nobody listens there: not at this moment, or not any more
			l.retry(replies[i:i+1], cause)
		default:
			b.counts.published.Add(1)
		}
	}
}

// retry puts answers aside for another try, or gives them up.
func (l *replyLane) retry(replies []*pendingReply, cause error) {
	now := time.Now()
	unknown := dispatched(cause) == registry.DispatchedUnknown
	var lost []*pendingReply
	for _, r := range replies {
		if r.failed == nil {
			r.failed = &failure{until: now.Add(l.bus.patience)}
		}
		r.failed.due = now.Add(backoffAfter(r.failed.tries))
		r.failed.tries++
		if unknown && r.once || r.failed.due.After(r.failed.until) || !l.again.requeue(r) {
			lost = append(lost, r)
			continue
		}
		l.bus.counts.repeated.Add(1)
	}
	if n := len(replies) - len(lost); n > 0 {
		l.bus.log.Warn("answers not delivered, trying again", "answers", n, "first_call", replies[0].callID, "error", cause)
	}
	if len(lost) > 0 {
		l.bus.lostReplies(lost, cause)
	}
}
