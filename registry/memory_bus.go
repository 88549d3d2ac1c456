package registry

import (
	"context"
	"errors"
	"sync"
)

// memoryInbox bounds what waits for one pod's handler.
const memoryInbox = 4096

// MemoryBus is the bus of one pod on a Memory store.
type MemoryBus struct {
	memory *Memory

	mu     sync.Mutex
	pod    string
	inbox  chan func(BusHandler)
	closed bool
	done   chan struct{}
}

var _ Bus = (*MemoryBus)(nil)

// NewBus returns a bus for one pod of the store.
func (m *Memory) NewBus() *MemoryBus { return &MemoryBus{memory: m} }

// Listen implements Bus.
func (b *MemoryBus) Listen(_ context.Context, pod string, h BusHandler) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inbox != nil {
		return errors.New("registry: the bus is already listening")
	}
	if _, taken := b.memory.buses.LoadOrStore(pod, b); taken {
		return errors.New("registry: another bus listens for pod " + pod)
	}
	inbox, done := make(chan func(BusHandler), memoryInbox), make(chan struct{})
	b.pod, b.inbox, b.done = pod, inbox, done
	go func() {
		defer close(done)
		for deliver := range inbox {
			deliver(h)
		}
	}()
	return nil
}

// post queues a delivery, or reports why it cannot.
func (b *MemoryBus) post(deliver func(BusHandler)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.inbox == nil {
		return ErrNoReceiver
	}
	select {
	case b.inbox <- deliver:
		return nil
	default:
		return StoreUnavailable("memory bus", errors.New("inbox full")).With(DispatchedNo)
	}
}

func (b *MemoryBus) peer(pod string) (*MemoryBus, error) {
	peer, ok := b.memory.buses.Load(pod)
	if !ok {
		return nil, ErrNoReceiver
	}
	return peer.(*MemoryBus), nil
}

// Send implements Bus.
func (b *MemoryBus) Send(_ context.Context, pod string, e Envelope) error {
	peer, err := b.peer(pod)
	if err != nil {
		return err
	}
	return peer.post(func(h BusHandler) { h.HandleEnvelope(e) })
}

// Post implements Bus.
func (b *MemoryBus) Post(ctx context.Context, pod string, e Envelope, s Sender) (Posted, error) {
	s.Sent(b.Send(ctx, pod, e))
	return gone{}, nil
}

// gone is an envelope that has left.
type gone struct{}

// Withdraw implements Posted.
func (gone) Withdraw() bool { return false }

// Reply implements Bus.
func (b *MemoryBus) Reply(pod string, r Reply) error {
	peer, err := b.peer(pod)
	if err != nil {
		return err
	}
	return peer.post(func(h BusHandler) { h.HandleReply(r) })
}

// Healthy implements Bus.
func (b *MemoryBus) Healthy() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.inbox == nil {
		return errors.New("the bus is not listening")
	}
	return nil
}

// Close implements Bus.
func (b *MemoryBus) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed || b.inbox == nil {
		b.closed = true
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	close(b.inbox)
	b.mu.Unlock()
	b.memory.buses.Delete(b.pod)
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
