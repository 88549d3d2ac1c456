package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// fieldReader reads the fields of a message from its beginning to its end. After a malformed field it is broken, and
// fields read as empty. The strings that it returns share the memory of the text.
type fieldReader struct {
	text   string // not read yet
	broken bool
}

func (r *fieldReader) byte() byte {
	if r.text == "" {
		r.broken = true
		return 0
	}
	c := r.text[0]
	r.text = r.text[1:]
	return c
}

func (r *fieldReader) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		c := r.byte()
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.broken = true
	return 0
}

// number reads a signed number, zigzag-encoded.
func (r *fieldReader) number() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *fieldReader) field() string {
	n := r.uvarint()
	if r.broken || n > uint64(len(r.text)) {
		r.broken = true
		return ""
	}
	field := r.text[:n]
	r.text = r.text[n:]
	return field
}

// fields reads a list of fields, nil if it is empty.
func (r *fieldReader) fields() []string {
	n := r.uvarint()
	if n > uint64(len(r.text)) { // each field takes at least one byte
		r.broken = true
	}
	if n == 0 || r.broken {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.field()
	}
	return list
}

// checked parses a field that is JSON. The JSON enters the pod here.
func (r *fieldReader) checked(text string) registry.JSON {
	value, err := registry.ParseJSON([]byte(text))
	r.broken = r.broken || err != nil
	return value
}

func (r *fieldReader) result() *registry.Result {
	flags := r.byte()
	result := &registry.Result{Success: flags&flagSuccess != 0, Output: r.field(), Error: r.field()}
	if flags&flagStructured != 0 {
		result.Structured = r.checked(r.field())
	}
	if flags&flagParts != 0 {
		result.Parts = r.parts()
	}
	if flags&flagURIs != 0 {
		for i := range result.Parts {
			result.Parts[i].URI = r.field()
		}
	}
	if flags&flagViolations != 0 && json.Unmarshal([]byte(r.field()), &result.Violations) != nil {
		r.broken = true
	}
	if flags&flagWithheld != 0 {
		result.Withheld = r.failure()
	}
	return result
}

// parts reads the parts of a result. There must be at least one.
func (r *fieldReader) parts() []registry.Part {
	n := r.uvarint()
	if n == 0 || n > registry.MaxParts {
		r.broken = true
	}
	if r.broken {
		return nil
	}
	parts := make([]registry.Part, n)
	for i := range parts {
		p := &parts[i]
		p.Type, p.MIMEType = registry.PartType(r.field()), r.field()
		p.Name, p.URL = r.field(), r.field()
		if data := r.field(); data != "" {
			p.Data = []byte(data)
		}
		p.Size = r.number()
	}
	return parts
}

func (r *fieldReader) failure() *registry.Error {
	var e registry.Error
	if json.Unmarshal([]byte(r.field()), &e) != nil {
		r.broken = true
	}
	return &e
}

// finished reports whether the whole message was read without an error.
func (r *fieldReader) finished() bool { return !r.broken && r.text == "" }

const (
	replyBlock = time.Second // how long one read of the reply list blocks
	replyCount = 64          // packets per pop: each is many small replies, or one of up to megabytes

	listenerPool = 2 // connections per server of a client that only listens
)

// replyReader pops packets of replies off a pod's list.
type replyReader struct {
	client  redis.UniversalClient // own client, because its connection blocks
	key     string
	timeout time.Duration // of the servers
	log     *slog.Logger
	deliver func(string)

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	failure error // of the last pop
}

func newReplyReader(conn *redisconn.Conn, key string, log *slog.Logger, deliver func(string)) *replyReader {
	r := &replyReader{
		client: conn.NewBlockingClient(listenerPool), key: key, timeout: conn.Timeout(), log: log, deliver: deliver,
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *replyReader) start() { r.done.Go(r.deliverAll) }

// deliverAll pops and delivers until the reader is closed. It retries with backoff when the connection fails.
func (r *replyReader) deliverAll() {
	for failures := 0; r.ctx.Err() == nil; {
		packets, err := r.pop()
		r.mu.Lock()
		r.failure = err
		r.mu.Unlock()
		if err == nil {
			failures = 0
			for _, payload := range packets {
				r.deliver(payload)
			}
			continue
		}
		if failures == 0 && r.ctx.Err() == nil {
			r.log.Warn("answers cannot be read", "error", err)
		}
		if !backoff(r.ctx, failures) {
			return
		}
		failures++
	}
}

// pop waits for packets, at most replyBlock. It fails soon after that if Redis hangs.
func (r *replyReader) pop() ([]string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, replyBlock+r.timeout)
	defer cancel()
	_, packets, err := r.client.BLMPop(ctx, replyBlock, "left", replyCount, r.key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return packets, err
}

func (r *replyReader) healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil {
		return fmt.Errorf("answers cannot be read: %w", r.failure)
	}
	return nil
}

// close stops reading and waits for the goroutine.
func (r *replyReader) close() error {
	r.cancel()
	err := r.client.Close()
	r.done.Wait()
	return err
}

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
