package bench

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// listShape is the bare shape of our router: PUBLISH to the pod that is asked, which pushes onto the one list of the pod
// that asks, which drains it with BLMPOP COUNT. No session, no deadline, no receipt, no record.
type listShape struct {
	asking, owning *redis.Client
	blocking       *redis.Client
	listener       *listener
	drainer        *drainer
	pending        *pending
	codec          codec
	channel        string // of calls
	replies        string // list
	publish        func(ctx context.Context, channel string, message any) *redis.IntCmd
}

// newListShape builds the shape. pipelined has go-redis batch the commands of concurrent callers; else each command is
// sent by itself, which is faster when there is one caller.
func newListShape(url string, pipelined bool, c codec) (shape, error) {
	s := &listShape{pending: newPending(), codec: c, channel: unique("calls"), replies: unique("replies")}
	var err error
	for _, client := range []**redis.Client{&s.asking, &s.owning, &s.blocking} {
		if *client, err = newReferenceClient(url, 64); err != nil {
			return nil, err
		}
	}
	ctx := context.Background()
	s.publish = s.asking.Publish
	push := func(key string, message []byte) { s.owning.RPush(ctx, key, message) }
	if pipelined {
		blocking, err := s.asking.AutoPipeline()
		if err != nil {
			return nil, err
		}
		async, err := s.owning.AsyncAutoPipeline()
		if err != nil {
			return nil, err
		}
		s.publish = blocking.Publish
		push = func(key string, message []byte) { async.RPush(ctx, key, message) }
	}
	s.listener, err = listen(s.owning, s.channel, func(message string) {
		id, replyTo, body := c.unpack(message)
		push(cmp.Or(replyTo, s.replies), c.pack(id, "", body))
	})
	if err != nil {
		return nil, err
	}
	s.drainer = drain(s.blocking, s.replies, func(message string) {
		id, _, body := c.unpack(message)
		s.pending.resolve(id, body)
	})
	return s, nil
}

func (s *listShape) open(int) (caller, error) {
	return newShapeCaller(s.pending, func(id uint64, body []byte) error {
		return s.publish(context.Background(), s.channel, s.codec.pack(id, s.replies, body)).Err()
	}), nil
}

func (s *listShape) close() {
	s.listener.close()
	s.drainer.close()
	_ = s.asking.Close()
	_ = s.owning.Close()
	_ = s.blocking.Close()
}
