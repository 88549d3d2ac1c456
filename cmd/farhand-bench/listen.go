package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	subscribeTimeout = 10 * time.Second
	replyBatch       = 256 // answers taken off a list at once, as our own pods do
)

// listener receives what is published on a channel until it is closed.
type listener struct {
	sub  *redis.PubSub
	done sync.WaitGroup
}

func listen(client *redis.Client, channel string, handle func(message string)) (*listener, error) {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	l := &listener{sub: client.Subscribe(ctx, channel)}
	if _, err := l.sub.Receive(ctx); err != nil {
		_ = l.sub.Close()
		return nil, err
	}
	l.done.Go(func() {
		for {
			m, err := l.sub.ReceiveMessage(context.Background())
			if err != nil {
				return // closed
			}
			handle(m.Payload)
		}
	})
	return l, nil
}

func (l *listener) close() {
	_ = l.sub.Close()
	l.done.Wait()
}

// drainer takes answers off a list until it is closed.
type drainer struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func drain(client *redis.Client, key string, handle func(message string)) *drainer {
	ctx, cancel := context.WithCancel(context.Background())
	d := &drainer{cancel: cancel}
	d.done.Go(func() {
		for ctx.Err() == nil {
			_, answers, err := client.BLMPop(ctx, 200*time.Millisecond, "left", replyBatch, key).Result()
			if err != nil && err != redis.Nil {
				time.Sleep(10 * time.Millisecond)
			}
			for _, answer := range answers {
				handle(answer)
			}
		}
	})
	return d
}

func (d *drainer) close() {
	d.cancel()
	d.done.Wait()
}
