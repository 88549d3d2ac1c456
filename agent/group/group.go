// Package group calls one tool of many devices in one call: a parent call with a child call for each device. The
// built-in tool call_devices is such a parent, for POST /api/calls, `farhand call --all`, MCP clients and models.
//
//	targets ─▶ one child each, at most Concurrency at a time ─▶ rows ─▶ Sink
//	              │ needs approval                       the mode decides, then the others are cancelled
//	              └─▶ held ─▶ one question that names the devices ─▶ children again
//
// Targets are read from the store page by page (targets.go), with Args.Queue also those that sleep (sleeping.go).
// Children run with agent.CallChild, so that all rules of single calls apply to each (run.go). A child keeps its slot
// of the pod until the Sink has its row, so a slow reader holds back only its own call and uses only the share of its
// identity.
//
// It imports agent, agent/access/policy, internal/share and registry. Start reading at Service.
package group

import (
	"context"
	"maps"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// DefaultSlots is how many children of group calls one pod runs at a time: a quarter of them for one identity, half for
// one tenant.
const DefaultSlots = 2048

// Directory is the part of registry.Store that finds the devices.
type Directory interface {
	List(ctx context.Context, q registry.Query) ([]registry.Entry, *registry.Cursor, error)
	Whole(ctx context.Context) error
}

// Calls is the part of routing.Calls that ends children.
type Calls interface {
	Cancel(ctx context.Context, tenant, callID string) (registry.Record, error)
}

// Config configures a Service.
type Config struct {
	Directory Directory             // required
	Policy    *agent.Policy         // required; decides about the tool before the first child
	Known     registry.KnownDevices // devices that may sleep; nil: none
	Calls     Calls                 // cancels queued children with their parent; required with Known
	Slots     int                   // default DefaultSlots
}

// Service makes the tool call_devices. It is safe for concurrent use.
type Service struct {
	cfg   Config
	slots *share.Pool

	mu    sync.Mutex
	ended map[Ending]int64
}

// Ending is how group calls end, for counting.
type Ending struct {
	Mode  string
	State registry.State // succeeded: the mode has what it asks for; cancelled; else failed
}

// Stats has how many group calls have ended since the start.
type Stats struct{ Ended map[Ending]int64 }

// New returns a Service.
func New(cfg Config) *Service {
	if cfg.Slots <= 0 {
		cfg.Slots = DefaultSlots
	}
	return &Service{cfg: cfg, slots: share.New(share.Bounds{Pod: int64(cfg.Slots)}), ended: make(map[Ending]int64)}
}

// Stats returns the counters.
func (s *Service) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{maps.Clone(s.ended)}
}

// Pools returns how full the pool of slots is, by its name.
func (s *Service) Pools() map[string]share.Stats {
	return map[string]share.Stats{"group_calls": s.slots.Stats()}
}

func (s *Service) count(e Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[e]++
}

// Registration returns the tool for models and MCP clients, whose result lists the devices.
func (s *Service) Registration() agent.Registration {
	return agent.Registration{Names: []string{Name}, Make: func(sc agent.SessionContext) []agent.Tool {
		return []agent.Tool{s.Tool(sc, nil)}
	}}
}

// Sink gets the rows of one group call, while it runs. Its methods may block: the call then starts no further children.
type Sink interface {
	// Begin is called before the first child starts. It is not called if the whole call is refused.
	Begin(callID, mode string)

	// Prepare is called when a child has ended, and may be called concurrently. It may take what Put needs of the
	// result, or replace the result by an error if there is no memory for it until Put has it. ctx is that of the
	// child.
	Prepare(ctx context.Context, r *Row)

	// Put gets the prepared row of a device, one at a time.
	Put(Row)
}

// Row is what became of the call of one device.
type Row struct {
	SessionID, DeviceID string // DeviceID may be empty
	State               registry.State

	Outcome agent.Outcome   // its CallID is empty if no call was made
	Err     *registry.Error // why there is no result; nil: there is one, or the call waits in the queue

	Prepared any // what Sink.Prepare keeps for Sink.Put
}

// CountIn adds the row to the counts of its call.
func (r Row) CountIn(c *registry.GroupCounts) {
	c.Devices++
	switch {
	case r.Err == nil && !r.State.Final():
		c.Queued++
	case r.State == registry.StateSucceeded:
		c.Succeeded++
	case r.State == registry.StateCancelled:
		c.Cancelled++
	default:
		c.Failed++
	}
}
