package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
)

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
