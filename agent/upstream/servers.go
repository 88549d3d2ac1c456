package upstream

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farhand/farhand/agent"
)

// Servers is the MCP servers of a pod, each with a connection of its own. It implements agent.LiveTools, and is safe
// for concurrent use.
type Servers struct {
	cfg  Config
	all  []*server
	stop context.CancelCauseFunc
	done sync.WaitGroup

	mu  sync.Mutex // of those that replace set
	set atomic.Pointer[liveSet]
}

// liveSet is a set, with what tells that there is another one.
type liveSet struct {
	agent.LiveSet
	changed chan struct{}
}

// New begins to connect to the servers, and returns at once. Close ends that.
func New(cfg Config) *Servers {
	s := &Servers{cfg: cfg.withDefaults()}
	first := &liveSet{changed: make(chan struct{})}
	first.Changed = first.changed
	s.set.Store(first)
	ctx, stop := context.WithCancelCause(context.Background())
	s.stop = stop
	for _, one := range cfg.Servers {
		s.all = append(s.all, newServer(one, s))
	}
	for _, one := range s.all {
		s.done.Go(func() { one.run(ctx) })
	}
	return s
}

// Live implements agent.LiveTools.
func (s *Servers) Live() agent.LiveSet { return s.set.Load().LiveSet }

// publish replaces the set by what the servers offer now.
func (s *Servers) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.set.Load()
	next := &liveSet{LiveSet: agent.LiveSet{Version: before.Version + 1}, changed: make(chan struct{})}
	next.Changed = next.changed
	for _, one := range s.all {
		for _, t := range one.state.Load().byName {
			next.Tools = append(next.Tools, t)
		}
	}
	slices.SortFunc(next.Tools, func(a, b agent.Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	s.set.Store(next)
	close(before.changed)
}

// Close ends the connections and the programs, and waits for that until ctx ends.
func (s *Servers) Close(ctx context.Context) error {
	s.stop(errClosed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.done.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Status is what is known of one server.
type Status struct {
	Name      string
	Connected bool
	Tools     int
	Attempts  int64    // to connect, since the start
	Why       string   // it is not connected; may repeat what the server said, for operators alone
	Notes     []string // which of its tools are not offered, and why
}

// Status returns what is known of the servers, in order of name.
func (s *Servers) Status() []Status {
	all := make([]Status, len(s.all))
	for i, one := range s.all {
		all[i] = one.status()
	}
	return all
}
