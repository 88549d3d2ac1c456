package upstream

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
)

// Servers is the MCP servers of a pod, each with a connection of its own. It implements agent.LiveTools, and is safe
// for concurrent use.
type Servers struct {
	cfg  Config
	all  []*server
	ctx  context.Context // of all connections
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
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	for _, one := range cfg.Servers {
		s.all = append(s.all, newServer(one, s))
	}
	for _, one := range s.all {
		s.done.Go(func() { one.run(s.ctx) })
	}
	return s
}

// Live implements agent.LiveTools.
func (s *Servers) Live() agent.LiveSet { return s.set.Load().LiveSet }

// Owns implements agent.LiveTools.
func (s *Servers) Owns(name string) bool { return s.owner(name) != nil }

// owner returns the server whose tools can have a name, nil if it is no server's.
func (s *Servers) owner(name string) *server {
	if plainName(name) != name {
		return nil
	}
	for _, one := range s.all {
		if strings.HasPrefix(name, Prefix(one.Name)) {
			return one
		}
	}
	return nil
}

// Await implements agent.LiveTools.
func (s *Servers) Await(ctx context.Context, name string, until time.Time) error {
	one := s.owner(name)
	if one == nil {
		return nil
	}
	if one.state.Load().conn == nil {
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		if err := one.connected(ctx, nil); err != nil {
			return err
		}
	}
	if one.state.Load().byName[name] != nil && !s.lists(name) {
		s.publish() // a server has a connection a moment before its tools are in the set
	}
	return nil
}

// lists reports whether the set has a tool of this name.
func (s *Servers) lists(name string) bool {
	return slices.ContainsFunc(s.set.Load().Tools, func(t agent.Tool) bool { return t.Spec().Name == name })
}

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

// Pools returns how full the pools of the servers are, by name.
func (s *Servers) Pools() map[string]share.Stats {
	var calls share.Stats
	for _, one := range s.all {
		calls = calls.Plus(one.calls.Stats())
	}
	return map[string]share.Stats{"mcp_calls": calls}
}

// Status returns what is known of the servers, in order of name.
func (s *Servers) Status() []Status {
	all := make([]Status, len(s.all))
	for i, one := range s.all {
		all[i] = one.status()
	}
	return all
}
