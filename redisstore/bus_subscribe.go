package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// silences is how many probe intervals without any message make a subscription count as deaf.
const silences = 3

// subscription keeps one channel subscribed. A connection can be dead in a way that nobody is told about: writes are
// swallowed, and Redis goes on counting the subscriber. So whenever the channel is silent, a probe is published to
// it, and if nothing comes back the subscription is built anew.
type subscription struct {
	conn    *Conn
	client  redis.UniversalClient // of its own: closing it ends whatever is blocked
	channel string
	every   time.Duration
	deliver func(string)
	gap     func() // told after every rebuilding: messages may have been missed
	rebuilt atomic.Int64

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	current *redis.PubSub // nil while there is none
	heard   time.Time     // when something last arrived
	failure error         // why current is nil
}

func newSubscription(c *Conn, channel string, every time.Duration, deliver func(string), gap func()) *subscription {
	s := &subscription{
		conn: c, client: newClient(c.addr, roleListener), channel: channel, every: every, deliver: deliver,
		gap: gap, failure: errNoListen,
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// open subscribes and waits for the confirmation.
func (s *subscription) open(ctx context.Context) error {
	var ps *redis.PubSub
	if s.conn.cluster() {
		ps = s.client.SSubscribe(ctx, s.channel)
	} else {
		ps = s.client.Subscribe(ctx, s.channel)
	}
	if err := s.confirm(ctx, ps); err != nil {
		_ = ps.Close()
		s.mu.Lock()
		s.failure = err
		s.mu.Unlock()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil { // close has looked for current already
		_ = ps.Close()
		return errClosed
	}
	s.current, s.heard, s.failure = ps, time.Now(), nil
	return nil
}

// confirm waits for the server's word. The subscribe call itself reports nothing.
func (s *subscription) confirm(ctx context.Context, ps *redis.PubSub) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+ioTimeout)
	defer cancel()
	for {
		m, err := ps.ReceiveTimeout(ctx, ioTimeout)
		if err != nil {
			return err
		}
		if c, ok := m.(*redis.Subscription); ok && c.Channel == s.channel {
			return nil
		}
	}
}

func (s *subscription) start() {
	s.done.Go(s.receive)
	s.done.Go(s.probe)
}

// receive reads until the subscription is closed, subscribing again whenever it breaks.
func (s *subscription) receive() {
	for {
		s.mu.Lock()
		ps := s.current
		s.mu.Unlock()
		if ps != nil {
			s.lose(ps, s.read(ps))
		}
		if !s.reopen() {
			return
		}
	}
}

// read delivers messages until the connection fails or is closed. There is no read deadline: one that struck in the
// middle of a message would leave the rest of it to be taken for the next. The probe closes what stays silent.
func (s *subscription) read(ps *redis.PubSub) error {
	for {
		m, err := ps.Receive(s.ctx)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.heard = time.Now()
		s.mu.Unlock()
		switch m := m.(type) {
		case *redis.Message:
			s.deliver(m.Payload)
		case *redis.Subscription:
			// Either the client library has connected again by itself, or the slot has moved to another member.
			return fmt.Errorf("subscription changed: %s", m.Kind)
		}
	}
}

// lose gives up a subscription. A reason that was noted before is the better one.
func (s *subscription) lose(ps *redis.PubSub, reason error) {
	s.mu.Lock()
	if s.current == ps {
		s.current, s.failure = nil, reason
	}
	s.mu.Unlock()
	_ = ps.Close()
}

// reopen subscribes again, however long it takes. It returns false when the subscription is closed.
func (s *subscription) reopen() bool {
	for failures := 0; ; failures++ {
		if s.ctx.Err() != nil {
			return false
		}
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			cluster.ReloadState(s.ctx) // the channel's slot may have moved
		}
		err := s.open(s.ctx)
		if err == nil {
			s.rebuilt.Add(1)
			s.gap()
			s.conn.opts.Log.Info("subscription rebuilt; calls sent meanwhile may be lost", "attempts", failures+1)
			return true
		}
		if failures == 0 {
			s.conn.opts.Log.Warn("subscription broken", "error", err)
		}
		if !backoff(s.ctx, failures) {
			return false
		}
	}
}

// probe publishes to the channel while it is silent, and closes a subscription nothing comes back from.
func (s *subscription) probe() {
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
		ps, silence := s.current, time.Since(s.heard)
		s.mu.Unlock()
		switch {
		case ps == nil || silence < s.every:
		case silence >= silences*s.every:
			s.lose(ps, fmt.Errorf("nothing was heard for %v, not even our own probe", silence.Round(time.Millisecond)))
		case time.Since(probed) >= s.every:
			probed = time.Now()
			s.publishProbe()
		}
	}
}

func (s *subscription) publishProbe() {
	ctx, cancel := context.WithTimeout(s.ctx, ioTimeout)
	defer cancel()
	b := s.conn.batch()
	b.do(s.conn.publishCommand(), s.channel, string(messageProbe))
	if err := b.run(ctx); err != nil && s.ctx.Err() == nil {
		s.conn.opts.Log.Debug("probe not published", "error", err)
	}
}

func (s *subscription) healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch silence := time.Since(s.heard); {
	case s.current == nil:
		return fmt.Errorf("calls do not arrive: %w", s.failure)
	case silence >= silences*s.every:
		return fmt.Errorf("calls do not arrive: silence for %v", silence.Round(time.Millisecond))
	}
	return nil
}

// close ends the subscription and waits for its goroutines.
func (s *subscription) close() error {
	s.cancel()
	s.mu.Lock()
	ps := s.current
	s.mu.Unlock()
	if ps != nil {
		s.lose(ps, errClosed)
	}
	err := s.client.Close()
	s.done.Wait()
	return err
}
