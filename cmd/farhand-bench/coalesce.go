package main

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// coalescer sends commands in pipelines without any timer or threshold: what queues while one pipeline is on its way
// leaves together in the next. It is how the references batch, in one goroutine of its own.
type coalescer struct {
	client *redis.Client
	fail   func(error) // told when a pipeline failed

	mu     sync.Mutex
	queue  [][]any
	wake   chan struct{} // capacity 1
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newCoalescer(client *redis.Client, fail func(error)) *coalescer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &coalescer{client: client, fail: fail, wake: make(chan struct{}, 1), cancel: cancel}
	c.done.Go(func() { c.run(ctx) })
	return c
}

// send queues a command and returns at once.
func (c *coalescer) send(command ...any) {
	c.mu.Lock()
	c.queue = append(c.queue, command)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *coalescer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		batch := c.queue
		c.queue = nil
		c.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		pipe := c.client.Pipeline()
		for _, command := range batch {
			pipe.Do(ctx, command...)
		}
		if _, err := pipe.Exec(ctx); err != nil && ctx.Err() == nil {
			c.fail(err)
		}
	}
}

func (c *coalescer) close() {
	c.cancel()
	c.done.Wait()
}

// newReferenceClient is the Redis client of the references: the settings of ours that cost nothing to copy, so that
// what differs is the shape.
func newReferenceClient(url string, pool int) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.PoolSize, o.Protocol, o.DisableIdentity, o.MaxRetries = pool, 2, true, -1
	return redis.NewClient(o), nil
}
