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
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Servers is the MCP servers of a pod, with one connection to each. It implements agent.LiveTools, and is safe for
// concurrent use.
type Servers struct {
	cfg  Config
	all  []*server
	ctx  context.Context // of all connections
	stop context.CancelCauseFunc
	done sync.WaitGroup

	mu      sync.Mutex // held to replace set
	set     atomic.Pointer[agent.LiveSet]
	changed chan struct{} // of set
}

// New starts to connect to the servers, and returns immediately. Close disconnects them.
func New(cfg Config) *Servers {
	s := &Servers{cfg: cfg.withDefaults(), changed: make(chan struct{})}
	s.set.Store(&agent.LiveSet{Changed: s.changed})
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
func (s *Servers) Live() agent.LiveSet { return *s.set.Load() }

// Owns implements agent.LiveTools.
func (s *Servers) Owns(name string) bool { return s.owner(name) != nil }

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
	listed := func(t agent.Tool) bool { return t.Spec().Name == name }
	if one.state.Load().byName[name] != nil && !slices.ContainsFunc(s.set.Load().Tools, listed) {
		s.publish() // a server is connected shortly before its tools are in the set
	}
	return nil
}

func (s *Servers) publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.changed
	s.changed = make(chan struct{})
	next := &agent.LiveSet{Version: s.set.Load().Version + 1, Changed: s.changed}
	for _, one := range s.all {
		for _, t := range one.state.Load().byName {
			next.Tools = append(next.Tools, t)
		}
	}
	slices.SortFunc(next.Tools, func(a, b agent.Tool) int { return strings.Compare(a.Spec().Name, b.Spec().Name) })
	s.set.Store(next)
	close(before)
}

// Close ends the connections and the programs. It waits for their end until ctx ends.
func (s *Servers) Close(ctx context.Context) error {
	s.stop(errClosed)
	return pause.Wait(ctx, &s.done)
}

// Status is the status of one server.
type Status struct {
	Name      string
	Connected bool
	Tools     int
	Attempts  int64    // to connect, since the start of the pod
	Calls     Calls    // since the start of the pod
	Why       string   // why it is not connected; may quote the server, for operators only
	Notes     []string // which of its tools are not offered, and why
}

// Calls counts ended calls to a server.
type Calls struct {
	Answered int64         // with a result, also one that says that the tool failed
	Rejected int64         // that did not reach the server: it is away, at its limit, or the caller left
	Ended    int64         // that timed out or were cancelled at the server
	Lost     int64         // without a usable answer
	Took     time.Duration // total of answered calls, including the wait for a slot
}

// callCounts counts calls. It is safe for concurrent use.
type callCounts struct{ answered, rejected, ended, lost, took atomic.Int64 }

func (c *callCounts) add(err error, took time.Duration) {
	switch failed, ok := errors.AsType[*registry.Error](err); {
	case err == nil:
		c.answered.Add(1)
		c.took.Add(int64(took))
	case ok && failed.Dispatched == registry.DispatchedNo:
		c.rejected.Add(1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		c.ended.Add(1)
	default:
		c.lost.Add(1)
	}
}

func (c *callCounts) read() Calls {
	return Calls{
		c.answered.Load(), c.rejected.Load(), c.ended.Load(), c.lost.Load(), time.Duration(c.took.Load()),
	}
}

// Pools returns the use of the servers' call slots in sum, as the pool "mcp_calls", and of the memory for their
// answers, as "mcp_answer_bytes".
func (s *Servers) Pools() map[string]share.Stats {
	var calls share.Stats
	for _, one := range s.all {
		calls = calls.Plus(one.calls.Stats())
	}
	return map[string]share.Stats{"mcp_calls": calls, "mcp_answer_bytes": s.cfg.decoding.Stats()}
}

// Status returns the status of the servers, in order of name.
func (s *Servers) Status() []Status {
	all := make([]Status, len(s.all))
	for i, one := range s.all {
		now := one.state.Load()
		all[i] = Status{
			Name: one.Name, Connected: now.conn != nil, Tools: len(now.byName), Attempts: one.tries.Load(),
			Calls: one.counts.read(), Why: now.why, Notes: now.notes,
		}
	}
	return all
}

// Probe connects to a server once, lists its tools, and returns a one-line summary. The error is for operators: it may
// quote the server, but contains neither the URL nor values of variables.
func Probe(ctx context.Context, cfg Config, s Server) (string, error) {
	rules, err := policy.New(policy.Options{})
	if err != nil {
		return "", err
	}
	cfg.Admission = agent.NewAdmission(rules, schema.NewValidator(), agent.AdmissionLimits{})
	cfg, s = cfg.withDefaults(), s.withDefaults()
	text, err := cfg.probe(ctx, &s, false)
	if err != nil {
		var later error
		if text, later = cfg.probe(ctx, &s, true); later != nil {
			return "", errors.New(s.scrub(err))
		}
	}
	return text, nil
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
