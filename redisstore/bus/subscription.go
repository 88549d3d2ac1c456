package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/redisstore/internal/signed"
)

// maxSilence is how many probe intervals without any message make a subscription count as dead.
const maxSilence = 3

// subscription keeps one channel subscribed. A connection can be dead without any sign: writes are swallowed, and Redis
// still counts the subscriber. So the subscription publishes a probe whenever its channel is silent, and is rebuilt if
// nothing comes back.
type subscription struct {
	conn    *redisconn.Conn
	signer  *signed.Signer
	pod     string
	log     *slog.Logger
	client  redis.UniversalClient // own client: closing it ends every blocked call
	channel string
	every   time.Duration // probe interval
	deliver func(string)
	onGap   func() // called after every rebuild: messages may have been missed
	rebuilt atomic.Int64

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	delivered chan struct{} // closed when delivery has ended

	mu      sync.Mutex
	current *redis.PubSub // nil while there is none
	leaving bool          // it is being closed
	arrived time.Time     // when something last arrived
	failure error         // why current is nil
}

func newSubscription(
	conn *redisconn.Conn, pod string, o Options, deliver func(string), onGap func(),
) *subscription {
	s := &subscription{
		conn: conn, signer: o.Signer, pod: pod, log: o.Log, client: conn.NewBlockingClient(listenerPool),
		channel: podChannel(pod), every: o.ProbeInterval, deliver: deliver, onGap: onGap,
		failure: errNoListen, delivered: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *subscription) open(ctx context.Context) error {
	var ps *redis.PubSub
	if s.conn.IsCluster() {
		ps = s.client.SSubscribe(ctx, s.channel)
	} else {
		ps = s.client.Subscribe(ctx, s.channel)
	}
	err := s.confirm(ctx, ps)
	if err == nil && s.conn.IsCluster() {
		err = s.meet(ctx)
	}
	if err != nil {
		_ = ps.Close()
		s.mu.Lock()
		s.failure = err
		s.mu.Unlock()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // close has already read current
		_ = ps.Close()
		return errClosed
	}
	s.current, s.arrived, s.failure = ps, time.Now(), nil
	return nil
}

// confirm waits for the server's confirmation. The subscribe call itself reports nothing.
func (s *subscription) confirm(ctx context.Context, ps *redis.PubSub) error {
	ctx, cancel := context.WithTimeout(ctx, 2*s.conn.Timeout()) // one for dialling
	defer cancel()
	for {
		m, err := ps.ReceiveTimeout(ctx, s.conn.Timeout())
		if err != nil {
			return err
		}
		if c, ok := m.(*redis.Subscription); ok && c.Channel == s.channel {
			return nil
		}
	}
}

// errElsewhere is the cause when the subscribed member is not the member to which messages are published.
var errElsewhere = errors.New("subscribed at a member that does not own the channel's slot")

// meet checks that publishers count this subscription. No other check tells a master of a Cluster from a replica: a
// replica confirms subscriptions and delivers what its master passes on, but publishers at the master see no
// subscriber.
func (s *subscription) meet(ctx context.Context) error {
	n, err := subscribers(ctx, s.conn, s.channel)
	if err == nil && n == 0 {
		return errElsewhere
	}
	return err
}

func (s *subscription) start() {
	s.done.Go(s.deliverAll)
	s.done.Go(s.probeSilence)
}

// unsubscribe ends the subscription at the server, and waits for the confirmation, which arrives behind all earlier
// messages. It waits at most until ctx ends or the connection's timeout passes.
func (s *subscription) unsubscribe(ctx context.Context) {
	s.mu.Lock()
	ps := s.current
	s.leaving = true
	s.mu.Unlock()
	if ps == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.conn.Timeout())
	defer cancel()
	end := ps.Unsubscribe
	if s.conn.IsCluster() {
		end = ps.SUnsubscribe
	}
	if end(ctx, s.channel) != nil {
		return
	}
	select {
	case <-s.delivered:
	case <-ctx.Done():
	}
}

func (s *subscription) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// deliverAll delivers messages until the subscription is closed, and subscribes again whenever it breaks.
func (s *subscription) deliverAll() {
	defer close(s.delivered)
	for {
		s.mu.Lock()
		ps := s.current
		s.mu.Unlock()
		if ps != nil {
			s.drop(ps, s.deliverFrom(ps))
		}
		if s.isLeaving() || !s.reopen() {
			return
		}
	}
}

// deliverFrom delivers messages until the connection fails or is closed. There is no read deadline: if it passed in the
// middle of a message, the rest would be read as the next message. The probe closes silent connections.
func (s *subscription) deliverFrom(ps *redis.PubSub) error {
	for {
		m, err := ps.Receive(s.ctx)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.arrived = time.Now()
		s.mu.Unlock()
		switch m := m.(type) {
		case *redis.Message:
			s.deliver(m.Payload)
		case *redis.Subscription:
			// The subscription has ended, or the client library has reconnected by itself, or the slot has moved to
			// another member.
			return fmt.Errorf("subscription changed: %s", m.Kind)
		}
	}
}

// drop ends a subscription. If it was already dropped, the earlier reason stays.
func (s *subscription) drop(ps *redis.PubSub, reason error) {
	s.mu.Lock()
	if s.current == ps {
		s.current, s.failure = nil, reason
	}
	s.mu.Unlock()
	_ = ps.Close()
}

// reopen subscribes again, with backoff and without a time limit. It returns false when the subscription is closed.
func (s *subscription) reopen() bool {
	for failures := 0; ; failures++ {
		if s.ctx.Err() != nil {
			return false
		}
		if s.conn.IsCluster() {
			s.renewClient()
		}
		err := s.open(s.ctx)
		if err == nil {
			s.rebuilt.Add(1)
			s.onGap()
			s.log.Info("subscription rebuilt; calls sent meanwhile may be lost", "attempts", failures+1)
			return true
		}
		if failures == 0 {
			s.log.Warn("subscription broken", "error", err)
		}
		if !backoff(s.ctx, failures) {
			return false
		}
	}
}

// renewClient replaces the client by one with an empty cache of slot owners. The channel's slot may have moved, and a
// client reloads its cache only in the background.
func (s *subscription) renewClient() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // close has already read the client
		return
	}
	_ = s.client.Close()
	s.client = s.conn.NewBlockingClient(listenerPool)
}

// probeSilence publishes a probe while the channel is silent, and drops a subscription on which nothing comes back. On
// a Cluster it also probes a busy channel, but less often: messages that arrive there may have been published
// elsewhere.
func (s *subscription) probeSilence() {
	ticker := time.NewTicker(max(s.every/4, time.Millisecond))
	defer ticker.Stop()
	var probed time.Time
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
		s.mu.Lock()
		ps, silence := s.current, time.Since(s.arrived)
		s.mu.Unlock()
		due := s.every
		if silence < s.every {
			due = maxSilence * s.every
		}
		switch {
		case ps == nil || silence < s.every && !s.conn.IsCluster():
		case silence >= maxSilence*s.every:
			s.drop(ps, fmt.Errorf("nothing arrived for %v, not even this pod's own "+
				"probe", silence.Round(time.Millisecond)))
		case time.Since(probed) >= due:
			probed = time.Now()
			s.probe(ps)
		}
	}
}

// probe publishes a probe. On a Cluster it also drops a subscription that publishers do not count.
func (s *subscription) probe(ps *redis.PubSub) {
	ctx, cancel := context.WithTimeout(s.ctx, s.conn.Timeout())
	defer cancel()
	_, err := s.conn.Do(ctx, publishCommand(s.conn), s.channel, s.signer.Sign(s.pod, []byte{messageProbe}))
	if err == nil && s.conn.IsCluster() {
		err = s.meet(ctx)
	}
	switch {
	case errors.Is(err, errElsewhere):
		s.drop(ps, err)
	case err != nil && s.ctx.Err() == nil:
		s.log.Debug("probe not published", "error", err)
	}
}

func (s *subscription) healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch silence := time.Since(s.arrived); {
	case s.current == nil:
		return fmt.Errorf("calls do not arrive: %w", s.failure)
	case silence >= maxSilence*s.every:
		return fmt.Errorf("calls do not arrive: silence for %v", silence.Round(time.Millisecond))
	}
	return nil
}

// close delivers all messages that were published before the server removed the subscription. Then it ends the
// subscription and waits for its goroutines.
func (s *subscription) close(ctx context.Context) error {
	s.unsubscribe(ctx)
	s.cancel()
	s.mu.Lock()
	ps, client := s.current, s.client
	s.mu.Unlock()
	if ps != nil {
		s.drop(ps, errClosed)
	}
	err := client.Close()
	s.done.Wait()
	return err
}
