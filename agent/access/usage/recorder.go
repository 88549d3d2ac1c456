// Package usage counts usage by tenant, user, tool and day: calls, their time and bytes, and model tokens.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/registry"
)

const (
	maxRows  = 20_000 // rows waiting to be written, half of them per tenant; names are bounded: at most 8 MB
	interval = 3 * time.Second

	writeTimeout = 5 * time.Second
)

// Store stores the counts. registry.UsageStore implements it.
type Store interface {
	AddUsage(ctx context.Context, rows []registry.UsageRow) error
}

// Recorder adds up usage and writes it every few seconds. A pod that is killed loses its unwritten usage. A failed
// write is retried; if only the store's response was lost, that usage counts twice. It is safe for concurrent use.
type Recorder struct {
	store Store
	log   *slog.Logger
	other atomic.Int64 // additions without a row of their own

	mu   sync.Mutex
	rows map[row]registry.Usage
	of   map[string]int // rows by tenant

	stop   context.CancelFunc
	writer sync.WaitGroup
}

type row struct{ tenant, day, user, key, tool string }

// New returns a Recorder that writes to store until Close.
func New(store Store, log *slog.Logger) *Recorder {
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{
		store: store, log: log, rows: make(map[row]registry.Usage), of: make(map[string]int), stop: stop,
	}
	r.writer.Go(func() {
		for pause.For(ctx, interval) == nil {
			_ = r.write(ctx) // logged, and retried
		}
	})
	return r
}

// CallEnded implements agent.Meter.
func (r *Recorder) CallEnded(end agent.CallEnd) {
	if end.Outcome == agent.OutcomeReplayed { // counted when it ran
		return
	}
	u := registry.Usage{
		Calls: 1, Milliseconds: end.Duration.Milliseconds(), BytesIn: int64(end.BytesIn), BytesOut: int64(end.BytesOut),
	}
	if end.Outcome != agent.OutcomeSucceeded {
		u.Failures = 1
	}
	tool := end.Tool
	if end.Route == agent.RouteNone { // the name may be arbitrary
		tool = registry.UsageUnknown
	}
	r.add(end.Tenant, registry.UsageRow{User: end.User, Key: end.Key, Tool: tool}, u)
}

// TurnEnded counts the tokens of an identity's turn.
func (r *Recorder) TurnEnded(who auth.Identity, input, output int) {
	r.add(who.Tenant, registry.UsageRow{User: who.User, Key: who.Account(), Tool: registry.UsageModels},
		registry.Usage{InputTokens: int64(input), OutputTokens: int64(output)})
}

// Other returns how many additions had no room for a row of their own. They are counted under registry.UsageOther, or
// dropped if that has no room either.
func (r *Recorder) Other() int64 { return r.other.Load() }

func (r *Recorder) add(tenant string, named registry.UsageRow, u registry.Usage) {
	named.Trim()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(row{tenant, registry.UsageDay(time.Now()), named.User, named.Key, named.Tool}, u)
}

func (r *Recorder) addLocked(key row, u registry.Usage) {
	known, ok := r.rows[key]
	if free := maxRows - len(r.rows); !ok && (free <= 0 || r.of[key.tenant] >= free) { // as in internal/share
		r.other.Add(1)
		key.user, key.key, key.tool = registry.UsageOther, "", registry.UsageOther
		if known, ok = r.rows[key]; !ok && len(r.rows) >= 2*maxRows { // too many tenants and days: not counted
			return
		}
	}
	if !ok {
		r.of[key.tenant]++
	}
	r.rows[key] = known.Plus(u)
}

// write writes all rows. If that fails, it adds them back.
func (r *Recorder) write(ctx context.Context) error {
	r.mu.Lock()
	taken := r.rows
	r.rows, r.of = make(map[row]registry.Usage), make(map[string]int)
	r.mu.Unlock()
	if len(taken) == 0 {
		return nil
	}
	rows := make([]registry.UsageRow, 0, len(taken))
	for key, u := range taken {
		rows = append(rows, registry.UsageRow{
			Tenant: key.tenant, Day: key.day, User: key.user, Key: key.key, Tool: key.tool, Usage: u,
		})
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := r.store.AddUsage(ctx, rows)
	if err == nil {
		return nil
	}
	r.log.Warn("usage not written; the pod retries", "rows", len(rows), "error", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, u := range taken {
		r.addLocked(key, u)
	}
	return err
}

// Close writes the remaining rows, within ctx. Usage after Close is not counted. Call it once.
func (r *Recorder) Close(ctx context.Context) error {
	r.stop()
	r.writer.Wait() // its write ends with its context
	if err := r.write(ctx); err != nil {
		return fmt.Errorf("usage of the last seconds is lost: %w", err)
	}
	return nil
}
