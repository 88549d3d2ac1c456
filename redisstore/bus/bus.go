// Package bus carries messages between the pods of a fleet over Redis: Bus implements registry.Bus. Envelopes (calls,
// evictions) are published to a channel per pod, sharded on a Cluster. Replies are pushed onto a list per pod, which
// keeps them while the pod reconnects. Other packages do not depend on this.
//
// The files in the order in which a message passes them:
//
//	send.go           Send and Reply encode a message and queue it
//	batcher.go        messages queued during a round trip leave together in the next one, those to a pod as one packet
//	reply_queue.go    replies that could not be pushed are pushed again
//	subscription.go   the other pod receives packets of envelopes, and probes that it does
//	readers.go        the other pod pops packets of replies off its list
//	bus.go            the receiver unpacks and decodes them, and passes them to the registry.BusHandler; queue
//	                  lengths and errors
//	codec.go          the binary form of envelopes, replies and other messages
//
// bus.go builds both names in Redis; the scripts are in lua. The connection is the store's, of
// redisstore/internal/redisconn.
package bus

import (
	"context"
	"embed"
	"errors"
	"hash/fnv"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/internal/signed"
	"github.com/farhand/farhand/registry"
)

// Options configures a Bus.
type Options struct {
	ProbeInterval time.Duration  // silence after which a bus probes its subscription; default 2 s
	Signer        *signed.Signer // default: one without secrets
	Log           *slog.Logger   // default: discard
}

// Bus is a registry.Bus on Redis, for one pod. registry.Bus documents its methods. It is safe for concurrent use.
type Bus struct {
	conn *redisconn.Conn
	opts Options
	pod  string // set by Listen, before anything is received

	// The target pod of a message selects one of each, so a Cluster member that hangs delays only its share.
	envelopes []*batcher[*pendingEnvelope]
	replies   []*replyQueue
	results   *share.Pool // bytes of results that wait to be sent
	listBytes int         // of a pod's list, up to which it takes long replies

	retryFor     time.Duration   // how long a failed reply is pushed again
	retrying     context.Context // ends when Close has no time left for retries
	stopRetrying context.CancelFunc
	counts       counters

	handler registry.BusHandler // set by Listen, before anything is received

	mu           sync.Mutex
	closed       bool
	listening    bool
	subscription *subscription
	reader       *replyReader
}

var _ registry.Bus = (*Bus)(nil)

// clusterShares is how many batches of envelopes, and of replies, can be in flight on a Cluster.
const clusterShares = 8

// New returns a bus on a connection, for one pod. The connection must outlive it.
func New(conn *redisconn.Conn, o Options) *Bus {
	if o.ProbeInterval <= 0 {
		o.ProbeInterval = 2 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Signer == nil {
		o.Signer = signed.New(signed.Options{})
	}
	b := &Bus{
		conn: conn, opts: o, retryFor: defaultRetryFor, results: share.New(share.Bounds{Pod: replyBytes}),
		listBytes: replyListBytes,
	}
	b.retrying, b.stopRetrying = context.WithCancel(context.Background())
	n := 1
	if conn.IsCluster() {
		n = clusterShares
	}
	for range n {
		b.envelopes = append(b.envelopes, &batcher[*pendingEnvelope]{
			flush: b.publish, size: func(p *pendingEnvelope) int { return len(p.payload) },
			limits: batchLimits{queueItems: 1 << 16, queueBytes: 256 << 20, flushItems: 512, flushBytes: 4 << 20},
		})
		b.replies = append(b.replies, newReplyQueue(b))
	}
	return b
}

// The causes of errors when methods of a bus are called in the wrong order.
var (
	errClosed    = errors.New("the bus is closed")
	errListening = errors.New("the bus is already listening")
	errNoListen  = errors.New("the bus is not listening")
)

func (b *Bus) Listen(ctx context.Context, pod string, h registry.BusHandler) error {
	if err := b.beginListening(pod, h); err != nil {
		return redisconn.Unavailable("listen", err)
	}
	subscription := newSubscription(b.conn, pod, b.opts, b.receive, h.HandleGap)
	if err := subscription.open(ctx); err != nil {
		_ = subscription.close(ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.listening = false
		return redisconn.Unavailable("listen", err)
	}
	reader := newReplyReader(b.conn, podRepliesKey(pod), b.opts.Log, b.receive)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = subscription.close(ctx)
		_ = reader.close()
		return redisconn.Unavailable("listen", errClosed)
	}
	b.subscription, b.reader = subscription, reader
	subscription.start()
	reader.start()
	return nil
}

func (b *Bus) beginListening(pod string, h registry.BusHandler) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return errClosed
	case b.listening:
		return errListening
	}
	b.listening, b.handler, b.pod = true, h, pod
	return nil
}

// shareOf returns the share that a pod belongs to.
func shareOf[T any](shares []T, pod string) T {
	if len(shares) == 1 {
		return shares[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod))
	return shares[h.Sum32()%uint32(len(shares))]
}

func (b *Bus) Healthy() error {
	b.mu.Lock()
	subscription, reader, closed := b.subscription, b.reader, b.closed
	b.mu.Unlock()
	switch {
	case closed:
		return errClosed
	case subscription == nil:
		return errNoListen
	}
	return errors.Join(subscription.healthy(), reader.healthy())
}

// Close implements registry.Bus. Sends in progress keep their own time limits. Messages that are unsent when ctx ends
// are dropped, logged and counted.
func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	subscription, reader := b.subscription, b.reader
	b.mu.Unlock()

	var err error
	if subscription != nil {
		err = errors.Join(subscription.close(ctx), reader.close())
	}
	stop := context.AfterFunc(ctx, b.stopRetrying)
	for _, queue := range b.replies {
		queue.close(ctx)
	}
	stop()
	b.stopRetrying()
	for _, queue := range b.envelopes {
		for _, p := range queue.close(ctx) {
			p.sender.Sent(registry.StoreUnavailable("send", ctx.Err()).With(registry.DispatchedNo))
		}
	}
	return redisconn.Unavailable("close", err)
}

// receive checks, unpacks and decodes a packet, and passes its messages to the handler.
func (b *Bus) receive(payload string) {
	payload, err := b.opts.Signer.Open(b.pod, payload)
	if err != nil {
		return // the signer counts it
	}
	if err := unpack(payload, b.handle); err != nil {
		b.refuse(&badMessage{cause: err})
	}
}

// handle handles one message. Neither a malformed message nor a panic of the handler stops the bus.
func (b *Bus) handle(text string) {
	defer func() {
		if cause := recover(); cause != nil {
			b.counts.panics.Add(1)
			b.opts.Log.Error("message handler panicked", "panic", cause)
		}
	}()
	m, err := decodeMessage(text)
	if err != nil {
		var bad *badMessage
		if errors.As(err, &bad) {
			b.refuse(bad)
		}
		return
	}
	switch {
	case m.envelope != nil:
		b.handler.HandleEnvelope(*m.envelope)
	case m.reply != nil:
		b.handler.HandleReply(*m.reply)
	}
}

func (b *Bus) refuse(bad *badMessage) {
	b.counts.malformed.Add(1)
	if bad.version != 0 { // which all messages of a pod have
		_ = b.conn.Forms().Refuse(redisconn.FormMessage, strconv.Itoa(bad.version))
	} else {
		b.opts.Log.Warn("message not readable", "call", bad.callID, "from_pod", bad.replyTo, "error", bad.cause)
	}
	if reply := bad.refusal(); reply != nil {
		if err := b.Reply(bad.replyTo, *reply); err != nil {
			b.opts.Log.Warn("refusal not sent", "call", bad.callID, "error", err)
		}
	}
}

// backoff waits, longer with every failure in a row. It returns false if ctx ends first.
func backoff(ctx context.Context, failures int) bool { return pause(ctx, backoffAfter(failures)) }

// backoffAfter is 100 ms, doubled with every earlier failure, at most 2 s.
func backoffAfter(failures int) time.Duration {
	return min(100*time.Millisecond<<min(failures, 5), 2*time.Second)
}

// pause waits. It returns false if ctx ends first.
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

// podChannel is the channel on which a pod receives envelopes, and replies that its list rejects.
func podChannel(pod string) string { return "fh:pod:" + redisconn.Escape(pod) }

// podRepliesKey is the list from which a pod pops replies.
func podRepliesKey(pod string) string { return "fh:{pod:" + redisconn.Escape(pod) + "}:replies" }

// Forget adds a command to the pipeline that removes all messages that wait for a removed pod.
func Forget(p *redisconn.Pipeline, pod string) { p.Do("UNLINK", podRepliesKey(pod)) }

//go:embed lua/*.lua
var scriptFiles embed.FS

var (
	scripts           = redisconn.NewScripts(scriptFiles)
	scriptPush        = scripts.Must("reply", "push")
	scriptSubscribers = scripts.Must("publish", "subscribers")
)

// Scripts returns the scripts of the bus, for redisconn.Dial to load.
func Scripts() *redisconn.Scripts { return scripts }

// Stats has the queue lengths of a bus, and its counters since it was created.
type Stats struct {
	CallsSent, CallPackets    int64 // envelopes, and the packets that carried them; includes failed ones
	RepliesSent, ReplyPackets int64 // replies, once per attempt, and the packets that carried them

	RepliesRefused   int64 // replies not queued, because the queue or the list of their pod was full
	RepliesPublished int64 // replies published to the channel, because the list rejected them
	RepliesRetried   int64 // replies queued for a retry, once per attempt
	RepliesLost      int64 // replies that could not be delivered; their callers time out
	Malformed        int64 // messages that were not understood
	Resubscribed     int64 // times the subscription was rebuilt
	Panics           int64 // of the handler
	CallsRefused     int64 // envelopes not queued, because the queue was full

	// Rejected counts messages and entries of the log of changes that are not signed by the fleet, by reason.
	Rejected map[string]int64

	CallsQueued, CallBytesQueued     int64 // envelopes that wait to be sent
	RepliesQueued, ReplyBytesQueued  int64 // replies that wait to be sent
	RepliesPutOff, PutOffBytesQueued int64 // replies that failed and wait for a retry
}

type counters struct {
	callsSent, callPackets, repliesSent, replyPackets atomic.Int64

	refused, published, retried, lost, malformed, panics, unsent atomic.Int64
}

// Stats returns the counters.
func (b *Bus) Stats() Stats {
	s := Stats{
		CallsSent: b.counts.callsSent.Load(), CallPackets: b.counts.callPackets.Load(),
		RepliesSent: b.counts.repliesSent.Load(), ReplyPackets: b.counts.replyPackets.Load(),
		RepliesRefused: b.counts.refused.Load(), RepliesPublished: b.counts.published.Load(),
		RepliesRetried: b.counts.retried.Load(), RepliesLost: b.counts.lost.Load(),
		Malformed: b.counts.malformed.Load(), Panics: b.counts.panics.Load(), CallsRefused: b.counts.unsent.Load(),
	}
	s.Rejected = b.opts.Signer.Rejected()
	for _, queue := range b.envelopes {
		addWaiting(queue, &s.CallsQueued, &s.CallBytesQueued)
	}
	for _, queue := range b.replies {
		addWaiting(queue.first, &s.RepliesQueued, &s.ReplyBytesQueued)
		addWaiting(queue.long, &s.RepliesQueued, &s.ReplyBytesQueued)
		addWaiting(queue.retries, &s.RepliesPutOff, &s.PutOffBytesQueued)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscription != nil {
		s.Resubscribed = b.subscription.rebuilt.Load()
	}
	return s
}

func addWaiting[T comparable](b *batcher[T], items, bytes *int64) {
	n, size := b.waiting()
	*items, *bytes = *items+int64(n), *bytes+int64(size)
}
