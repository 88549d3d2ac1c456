package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	replyBlock = time.Second // how long one read of the reply list blocks
	replyCount = 64          // elements taken with one read: each is many small answers, or one that may have megabytes
)

// replyReader takes answers off a pod's list.
type replyReader struct {
	conn    *Conn
	client  redis.UniversalClient // of its own: a blocked connection would be missing elsewhere
	key     string
	deliver func(string)

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	failure error // of the last read
}

func newReplyReader(c *Conn, key string, deliver func(string)) *replyReader {
	r := &replyReader{conn: c, client: newClient(c.addr, roleListener), key: key, deliver: deliver}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *replyReader) start() { r.done.Go(r.run) }

func (r *replyReader) run() {
	for failures := 0; r.ctx.Err() == nil; {
		answers, err := r.read()
		r.mu.Lock()
		r.failure = err
		r.mu.Unlock()
		if err == nil {
			failures = 0
			for _, text := range answers {
				r.deliver(text)
			}
			continue
		}
		if failures == 0 && r.ctx.Err() == nil {
			r.conn.opts.Log.Warn("answers cannot be read", "error", err)
		}
		if !backoff(r.ctx, failures) {
			return
		}
		failures++
	}
}

// read waits for answers. A Redis that hangs is noticed soon after the time it may block.
func (r *replyReader) read() ([]string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, replyBlock+ioTimeout)
	defer cancel()
	_, answers, err := r.client.BLMPop(ctx, replyBlock, "left", replyCount, r.key).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return answers, err
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
