package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// Config configures an Engine. Models and Store are required.
type Config struct {
	Models      []provider.Model                 // the first is the default; names must be unique
	Store       Store                            // shared by all pods
	Budget      Budget                           // for what turns store; nil: unlimited
	ModelBudget ModelBudget                      // for what models cost; nil: unlimited
	OpenTools   func(agent.SessionContext) Tools // the tools of one turn; nil, or nil for a turn: no tools
	Activity    Activity                         // may be nil
	System      string                           // the system prompt of every conversation that the gateway keeps

	// SystemFor returns the system prompt of a conversation, in place of System. It is called once for each turn, from
	// several goroutines. Its error ends the turn; people do not see its text. Nil: System.
	SystemFor func(context.Context, agent.SessionContext) (string, error)

	Calls  Calls       // has the outcomes of calls that waited for their devices; nil: turns do not learn them
	Files  agent.Files // stores parts of results for people; nil: they read descriptions
	Limits Limits
	Log    *slog.Logger // default: discard
}

// Budget limits the bytes that identities add to conversations. *routing.ByteBudget is one.
type Budget interface {
	// Begin spends the bytes that a turn stores first. On an error, the turn does not begin.
	Begin(ctx context.Context, by share.Owner, bytes int) error

	// Add counts bytes that a running turn has stored. It reports whether the budget is exceeded. The turn then ends
	// after its current step.
	Add(ctx context.Context, by share.Owner, bytes int) (over bool)

	// GiveBack returns bytes that were spent in Begin but not stored.
	GiveBack(by share.Owner, bytes int)
}

// ModelBudget limits what identities spend on models. *budget.Ledger is one.
type ModelBudget interface {
	// Model returns why an identity may not ask a model. The turn then ends with this error.
	Model(ctx context.Context, by share.Owner) error

	// ModelAnswered counts the tokens of an answer, also of an interrupted one. It does not block.
	ModelAnswered(by share.Owner, model string, input, output int)
}

type unbounded struct{}

func (unbounded) Begin(context.Context, share.Owner, int) error { return nil }
func (unbounded) Add(context.Context, share.Owner, int) bool    { return false }
func (unbounded) GiveBack(share.Owner, int)                     {}

// Store is the storage that all engines share.
type Store interface {
	registry.ConversationStore
	registry.ContinuationStore
}

// Engine implements Agent: it runs turns.
//
//	lock ─▶ user message stored ─▶ model ─▶ answer stored ─▶ tool calls ─▶ results stored ─▶ model … ─▶ done
//
// Each step is stored before the next begins, and the next turn first completes unfinished steps. So the next turn can
// continue the conversation however a turn ends, even if its pod dies. Engine is safe for concurrent use.
type Engine struct {
	cfg        Config // with defaults
	turnQueues turnQueues
	readings   *readings

	closing chan struct{}           // closed by Close: no new turn
	ctx     context.Context         // of running turns
	stop    context.CancelCauseFunc // ends running turns

	places *share.Pool // of running and waiting turns
	memory *share.Pool // bytes of the conversations of running turns

	mu     sync.Mutex
	aborts map[registry.Key]context.CancelCauseFunc // of the turns that hold their conversation
	closed bool                                     // closing is also closed
	turns  sync.WaitGroup
}

var _ Agent = (*Engine)(nil)

// NewEngine returns a running engine. The caller must call Close.
func NewEngine(cfg Config) (*Engine, error) {
	if len(cfg.Models) == 0 || cfg.Store == nil {
		return nil, errors.New("chat: Config needs a model and a store")
	}
	seen := make(map[string]bool)
	for _, m := range cfg.Models {
		if seen[m.Name()] {
			return nil, fmt.Errorf("chat: two models have the name %q", m.Name())
		}
		seen[m.Name()] = true
	}
	if cfg.Budget == nil {
		cfg.Budget = unbounded{}
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if err := cfg.Limits.validate(); err != nil {
		return nil, err
	}
	cfg.Models = slices.Clone(cfg.Models)
	if cfg.SystemFor == nil {
		cfg.SystemFor = func(context.Context, agent.SessionContext) (string, error) { return cfg.System, nil }
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	e := &Engine{
		cfg: cfg, closing: make(chan struct{}), readings: newReadings(),
		aborts:     make(map[registry.Key]context.CancelCauseFunc),
		turnQueues: turnQueues{waiting: cfg.Limits.Waiting, byKey: make(map[registry.Key]*turnQueue)},
		// An app's backend makes the turns of all its users as one identity. So only the tenant's share limits an
		// identity.
		places: share.New(share.Bounds{Pod: int64(cfg.Limits.MaxTurns), Identity: int64(cfg.Limits.MaxTurns)}),
		memory: share.New(share.Bounds{Pod: maxTurnBytes, Identity: maxTurnBytes}),
	}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	return e, nil
}

// Models implements Agent.
func (e *Engine) Models() []string {
	var names []string
	for _, m := range e.cfg.Models {
		names = append(names, m.Name())
	}
	return names
}

// admit lets a turn of an identity begin. The caller must call leave when the turn has ended.
func (e *Engine) admit(by auth.Identity) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, draining()
	}
	place, err := e.places.Try(by.Owner(), 1)
	if err != nil {
		return nil, full()
	}
	e.turns.Add(1)
	return func() {
		place.Release()
		e.turns.Done()
	}, nil
}

// A pod limits the memory that running turns hold of their conversations, measured when the turns begin.
const (
	maxTurnBytes = 512 << 20 // of all turns
	turnCopies   = 2         // a conversation as stored, and as decoded
	turnCost     = 1 << 10   // bytes that the store needs for a turn in addition to its texts
)

// reserve reserves memory for a conversation and the new message of a turn. release must be called.
func (e *Engine) reserve(by auth.Identity, c registry.Conversation, said string) (release func(), err error) {
	size := len(said)
	for _, m := range c.Messages {
		size += len(m)
	}
	memory, err := e.memory.Try(by.Owner(), int64(turnCopies*size))
	if err != nil {
		return nil, full()
	}
	return memory.Release, nil
}

// Stats are the current turns of an engine, and its refusals since it was created.
type Stats struct {
	Turns   int64 // running turns, and turns that wait for their conversation
	Refused int64 // turns refused because the pod was full
}

// Stats returns the turn counts.
func (e *Engine) Stats() Stats {
	s := e.places.Stats()
	return Stats{Turns: s.Held, Refused: s.AllRefused()}
}

// Erased drops what this pod caches of an erased conversation. The store has already erased it.
func (e *Engine) Erased(key registry.Key) { e.readings.forget(readingKey{Key: key}) }

// Pools returns the fill levels of the engine's pools, by name.
func (e *Engine) Pools() map[string]share.Stats {
	return map[string]share.Stats{"turns": e.places.Stats(), "turn_bytes": e.memory.Stats()}
}

// within returns the context of a turn. It ends when its caller's context or the engine ends.
func (e *Engine) within(caller context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(caller)
	unhook := context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })
	return ctx, func(cause error) {
		unhook()
		cancel(cause)
	}
}

// abortable makes a turn abortable until done is called. A conversation has at most one such turn.
func (e *Engine) abortable(key registry.Key, cancel context.CancelCauseFunc) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.aborts[key] = cancel
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.aborts, key)
	}
}

// Abort aborts the running turn of a conversation, not those that wait, and reports whether this engine runs one. It
// does not wait for the end of the turn.
func (e *Engine) Abort(key registry.Key) bool {
	e.mu.Lock()
	cancel := e.aborts[key]
	e.mu.Unlock()
	if cancel == nil {
		return false
	}
	cancel(ErrAborted)
	return true
}

func (e *Engine) open(scope agent.SessionContext) Tools {
	if e.cfg.OpenTools != nil {
		if t := e.cfg.OpenTools(scope); t != nil {
			return t
		}
	}
	return noTools{}
}

// closeReserve is how much of Close's time, at most a quarter, is reserved for unfinished turns to store their text.
const closeReserve = 2 * time.Second

// Close rejects new and waiting turns. It lets running turns end until closeReserve remains of ctx, then cancels them
// with the cause registry.ErrDraining and waits for all of them. They still store their text. If the store is slow,
// that takes up to 5 s beyond the end of ctx. After that Close returns an error.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	e.mu.Unlock()
	defer e.stop(registry.ErrDraining)

	gentle, cancel := context.WithCancel(ctx)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		gentle, cancel = context.WithTimeout(ctx, left-min(closeReserve, left/4))
		defer cancel()
	}
	done := make(chan struct{})
	go func() { // ends with the last turn; turns end, because all their waits are bounded or end with e.ctx
		e.turns.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-gentle.Done():
	}
	e.stop(registry.ErrDraining)
	last := time.NewTimer(storeTime)
	defer last.Stop()
	select {
	case <-done:
		return nil
	case <-last.C:
		return fmt.Errorf("chat: turns still run: %w", context.DeadlineExceeded)
	}
}
