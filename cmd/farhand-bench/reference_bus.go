package main

import (
	"context"
	"encoding/json"
	"log"
	"sync"

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

// referenceBus is the bare shape of ours: PUBLISH to the owning pod, one list of answers per asking pod, both batched
// by themselves. Owners are looked up once and never again: the reference does not know that devices move.
type referenceBus struct {
	pod      string
	client   *redis.Client
	blocking *redis.Client
	out      *coalescer
	back     *coalescer
	inbox    *listener
	drainer  *drainer

	mu     sync.RWMutex
	owners map[string]string
}

const (
	referenceOwners  = "bench:ref:owners"
	referenceChannel = "bench:ref:pod:"
	referenceReplies = "bench:ref:replies:"
)

func newReferenceBus(url, pod string, deliver func(referenceEnvelope), resolve func(id, output string)) (*referenceBus, error) {
	b := &referenceBus{pod: pod, owners: make(map[string]string)}
	var err error
	if b.client, err = newReferenceClient(url, 64); err != nil {
		return nil, err
	}
	if b.blocking, err = newReferenceClient(url, 2); err != nil {
		return nil, err
	}
	fail := func(err error) { log.Print("reference: ", err) }
	b.out, b.back = newCoalescer(b.client, fail), newCoalescer(b.client, fail)
	b.inbox, err = listen(b.client, referenceChannel+pod, func(m string) {
		var e referenceEnvelope
		if json.Unmarshal([]byte(m), &e) == nil {
			deliver(e)
		}
	})
	if err != nil {
		return nil, err
	}
	b.drainer = drain(b.blocking, referenceReplies+pod, func(m string) {
		var r referenceReply
		if json.Unmarshal([]byte(m), &r) == nil {
			resolve(r.ID, r.Output)
		}
	})
	return b, nil
}

// own notes that a session is here.
func (b *referenceBus) own(ctx context.Context, session string) error {
	return b.client.HSet(ctx, referenceOwners, session, b.pod).Err()
}

func (b *referenceBus) owner(ctx context.Context, session string) (string, error) {
	b.mu.RLock()
	pod, known := b.owners[session]
	b.mu.RUnlock()
	if known {
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

// reply sends an answer to the pod that waits.
func (b *referenceBus) reply(pod, id, output string) {
	text, err := json.Marshal(referenceReply{ID: id, Output: output})
	if err == nil {
		b.back.send("RPUSH", referenceReplies+pod, text)
	}
}

func (b *referenceBus) close() {
	b.inbox.close()
	b.drainer.close()
	b.out.close()
	b.back.close()
	_ = b.client.Close()
	_ = b.blocking.Close()
}
