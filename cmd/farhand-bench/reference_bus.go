package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// referenceEnvelope is a call on its way to another pod.
type referenceEnvelope struct {
	ID      string          `json:"id"`
	Session string          `json:"session"`
	Tool    string          `json:"tool"`
	Args    json.RawMessage `json:"args"`
	ReplyTo string          `json:"reply_to"`
}

// referenceReply is an answer on its way back.
type referenceReply struct {
	ID     string `json:"id"`
	Output string `json:"output"`
}

// referenceBus is the minimal form of Farhand's bus: PUBLISH to the owning pod, and one list of answers per calling
// pod, both in pipelines. Owners are looked up on each call, or only once. In the second case the reference does not
// notice that devices move.
type referenceBus struct {
	pod      string
	lookup   bool // on each call
	client   *redis.Client
	blocking *redis.Client
	out      *pipeliner
	back     *pipeliner
	sub      *redis.PubSub
	cancel   context.CancelFunc
	done     sync.WaitGroup

	mu     sync.RWMutex
	owners map[string]string
}

const (
	referenceOwners  = "bench:ref:owners"
	referenceChannel = "bench:ref:pod:"
	referenceReplies = "bench:ref:replies:"

	subscribeTimeout = 10 * time.Second
	replyBatch       = 256 // answers taken off a list at a time, as Farhand's pods do
)

func newReferenceBus(
	ctx context.Context, url, pod string, lookup bool, deliver func(referenceEnvelope), resolve func(id, output string),
) (*referenceBus, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	// Farhand's settings that are easy to copy, so that only the form differs.
	o.PoolSize, o.Protocol, o.DisableIdentity, o.MaxRetries = 64, 2, true, -1
	waiting := *o
	waiting.PoolSize = 2
	b := &referenceBus{
		pod: pod, lookup: lookup, client: redis.NewClient(o), blocking: redis.NewClient(&waiting),
		owners: make(map[string]string),
	}
	b.out, b.back = newPipeliner(b.client), newPipeliner(b.client)
	b.sub = b.client.Subscribe(ctx, referenceChannel+pod)
	subscribing, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	if _, err := b.sub.Receive(subscribing); err != nil {
		return nil, errors.Join(err, b.sub.Close(), b.client.Close(), b.blocking.Close())
	}
	ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	b.done.Go(func() { b.out.sendQueued(ctx) })
	b.done.Go(func() { b.back.sendQueued(ctx) })
	b.done.Go(func() { b.receiveCalls(ctx, deliver) })
	b.done.Go(func() { b.receiveReplies(ctx, resolve) })
	return b, nil
}

// receiveCalls receives what is published for this pod until the bus is closed.
func (b *referenceBus) receiveCalls(ctx context.Context, deliver func(referenceEnvelope)) {
	for {
		m, err := b.sub.ReceiveMessage(ctx)
		if err != nil {
			return
		}
		var e referenceEnvelope
		if json.Unmarshal([]byte(m.Payload), &e) == nil {
			deliver(e)
		}
	}
}

// receiveReplies takes answers off the list of this pod until the bus is closed.
func (b *referenceBus) receiveReplies(ctx context.Context, resolve func(id, output string)) {
	key := referenceReplies + b.pod
	for ctx.Err() == nil {
		_, answers, err := b.blocking.BLMPop(ctx, 200*time.Millisecond, "left", replyBatch, key).Result()
		if err != nil && err != redis.Nil {
			time.Sleep(10 * time.Millisecond)
		}
		for _, answer := range answers {
			var r referenceReply
			if json.Unmarshal([]byte(answer), &r) == nil {
				resolve(r.ID, r.Output)
			}
		}
	}
}

// own records that this pod has the session.
func (b *referenceBus) own(ctx context.Context, session string) error {
	return b.client.HSet(ctx, referenceOwners, session, b.pod).Err()
}

func (b *referenceBus) owner(ctx context.Context, session string) (string, error) {
	b.mu.RLock()
	pod, known := b.owners[session]
	b.mu.RUnlock()
	if known && !b.lookup {
		return pod, nil
	}
	pod, err := b.client.HGet(ctx, referenceOwners, session).Result()
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owners[session] = pod
	return pod, nil
}

// call sends a call to the pod of its session.
func (b *referenceBus) call(ctx context.Context, e referenceEnvelope) error {
	pod, err := b.owner(ctx, e.Session)
	if err != nil {
		return err
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	b.out.send("PUBLISH", referenceChannel+pod, text)
	return nil
}

// reply sends an answer to the waiting pod.
func (b *referenceBus) reply(pod, id, output string) {
	text, err := json.Marshal(referenceReply{ID: id, Output: output})
	if err == nil {
		b.back.send("RPUSH", referenceReplies+pod, text)
	}
}

func (b *referenceBus) close() {
	b.cancel()
	_ = b.sub.Close()
	b.done.Wait()
	_ = b.client.Close()
	_ = b.blocking.Close()
}

// pipeliner sends commands in pipelines without a timer or a threshold: commands that queue while one pipeline is in
// flight are sent together in the next.
type pipeliner struct {
	client *redis.Client
	wake   chan struct{} // capacity 1

	mu    sync.Mutex
	queue [][]any
}

func newPipeliner(client *redis.Client) *pipeliner {
	return &pipeliner{client: client, wake: make(chan struct{}, 1)}
}

// send queues a command and returns immediately.
func (p *pipeliner) send(command ...any) {
	p.mu.Lock()
	p.queue = append(p.queue, command)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// sendQueued sends queued commands until ctx ends.
func (p *pipeliner) sendQueued(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		p.mu.Lock()
		commands := p.queue
		p.queue = nil
		p.mu.Unlock()
		if len(commands) == 0 {
			continue
		}
		pipe := p.client.Pipeline()
		for _, command := range commands {
			pipe.Do(ctx, command...)
		}
		if _, err := pipe.Exec(ctx); err != nil && ctx.Err() == nil {
			log.Print("reference: ", err)
		}
	}
}
