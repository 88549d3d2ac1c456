package upstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/agent/schema"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
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

const (
	restart   = 30 * time.Second // a server that is away for less may be restarting: calls wait for it
	awayRetry = 2 * time.Second  // after which a call of a server that is away is worth another attempt
)

// connected returns once the server has a connection, other than one that a call could not use. It waits for that until
// ctx ends, or the server has been away for longer than a restart takes. Either way the next attempt to connect is made
// soon, so that a repeated call may find the server.
func (s *server) connected(ctx context.Context, useless *connection) error {
	for {
		now := s.state.Load()
		left := restart
		if now.conn == nil {
			left -= time.Since(now.away)
		} else if now.conn != useless {
			return nil
		}
		select {
		case s.wanted <- struct{}{}:
		default: // another call has said so
		}
		timer := time.NewTimer(left)
		select {
		case <-now.replaced:
			timer.Stop()
			continue
		case <-timer.C:
		case <-ctx.Done():
		case <-s.servers.ctx.Done():
		}
		timer.Stop()
		if errors.Is(ctx.Err(), context.Canceled) {
			return cancelled()
		}
		return s.notConnected()
	}
}

// cancelled is the error of a call that was cancelled before the server had it.
func cancelled() error {
	return registry.Errorf(registry.CodeCancelled, "The call was cancelled.").With(registry.DispatchedNo)
}

// notConnected is the error of a call that the server was not there for.
func (s *server) notConnected() error {
	e := registry.Errorf(registry.CodeNotConnected, "%s", s.unavailable()).With(registry.DispatchedNo)
	e.RetryAfter = awayRetry
	return e
}

// unavailable says that the server is not there, to callers and models.
func (s *server) unavailable() string {
	return fmt.Sprintf("The MCP server %q does not answer now; it is tried again and again. "+
		"On the gateway's machine, farhand doctor says why.", s.Name)
}

// Returning implements agent.ReturningTool.
func (t *tool) Returning() bool {
	now := t.server.state.Load()
	return now.conn == nil && time.Since(now.away) < restart
}

// Probe connects to a server once, lists its tools, and says in a sentence what is there. The error says what is wrong,
// for operators: it may repeat what the server says, but not the URL or the values of variables.
func Probe(ctx context.Context, cfg Config, s Server) (string, error) {
	rules, err := policy.New(policy.Options{})
	if err != nil {
		return "", err
	}
	cfg.Admission = agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{})
	cfg, s = cfg.withDefaults(), s.withDefaults()
	var errs []error
	for _, old := range []bool{false, true} {
		text, err := cfg.probe(ctx, &s, old)
		if err == nil {
			return text, nil
		}
		errs = append(errs, err)
	}
	return "", errors.New(s.scrub(errs[0]))
}

func (c *Config) probe(ctx context.Context, s *Server, old bool) (string, error) {
	conn, err := c.connect(ctx, s, newPaces(), old)
	if err != nil {
		return "", err
	}
	defer conn.close()
	l, err := conn.list(c)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%d tools, revision %s", len(l.tools), conn.session.InitializeResult().ProtocolVersion)
	for _, note := range l.notes {
		text += "; not offered: " + note
	}
	return text, nil
}
