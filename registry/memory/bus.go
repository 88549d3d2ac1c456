package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/farhand/farhand/registry"
)

// inboxSize is how many messages can wait for the handler of one pod.
const inboxSize = 4096

// Bus is the bus of one pod on a Store.
type Bus struct {
	store *Store

	mu     sync.Mutex
	pod    string
	inbox  chan func(registry.BusHandler)
	closed bool
	done   chan struct{}
}

var _ registry.Bus = (*Bus)(nil)

// NewBus returns a bus for one pod of the store.
func (m *Store) NewBus() *Bus { return &Bus{store: m} }

func (b *Bus) Listen(_ context.Context, pod string, h registry.BusHandler) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inbox != nil {
		return errors.New("registry: the bus is already listening")
	}
	if _, taken := b.store.buses.LoadOrStore(pod, b); taken {
		return errors.New("registry: another bus listens for pod " + pod)
	}
	inbox, done := make(chan func(registry.BusHandler), inboxSize), make(chan struct{})
	b.pod, b.inbox, b.done = pod, inbox, done
	go func() {
		defer close(done)
		for deliver := range inbox {
			deliver(h)
		}
	}()
	return nil
}

// post queues a delivery, or returns why it cannot.
func (b *Bus) post(deliver func(registry.BusHandler)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.inbox == nil {
		return registry.ErrNoReceiver
	}
	select {
	case b.inbox <- deliver:
		return nil
	default:
		return registry.StoreUnavailable("memory bus", errors.New("inbox full")).With(registry.DispatchedNo)
	}
}

func (b *Bus) peer(pod string) (*Bus, error) {
	peer, ok := b.store.buses.Load(pod)
	if !ok {
		return nil, registry.ErrNoReceiver
	}
	return peer.(*Bus), nil
}

func (b *Bus) Send(_ context.Context, pod string, e registry.Envelope) error {
	peer, err := b.peer(pod)
	if err != nil {
		return err
	}
	return peer.post(func(h registry.BusHandler) { h.HandleEnvelope(e) })
}

func (b *Bus) SendAsync(
	ctx context.Context, pod string, e registry.Envelope, s registry.SendCallback,
) (registry.PendingSend, error) {
	s.Sent(b.Send(ctx, pod, e))
	return sent{}, nil
}

// sent is the PendingSend of an envelope that was sent.
type sent struct{}

func (sent) Cancel() bool { return false }

func (b *Bus) Reply(pod string, r registry.Reply) error {
	peer, err := b.peer(pod)
	if err != nil {
		return err
	}
	return peer.post(func(h registry.BusHandler) { h.HandleReply(r) })
}

func (b *Bus) Healthy() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.inbox == nil {
		return errors.New("the bus is not listening")
	}
	return nil
}

func (b *Bus) Close(ctx context.Context) error {
	b.mu.Lock()
	if b.closed || b.inbox == nil {
		b.closed = true
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	close(b.inbox)
	b.mu.Unlock()
	b.store.buses.Delete(b.pod)
	select {
	case <-b.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
