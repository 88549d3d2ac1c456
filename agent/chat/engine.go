package chat

import (
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
	Models    []provider.Model                 // the first is the default; no two of the same name
	Store     Store                            // shared by the fleet
	Budget    Budget                           // of what turns store; nil: unbounded
	OpenTools func(agent.SessionContext) Tools // the tools of one turn; nil, or nil for a turn: none
	Activity  Activity                         // nil: nobody is notified
	System    string                           // the prompt before every conversation that the gateway keeps

	// SystemFor makes the system prompt of a conversation, once for each of its turns, in place of System. Its error
	// ends the turn, and people do not read its text. Several goroutines call it at once. Nil: System.
	SystemFor func(context.Context, agent.SessionContext) (string, error)

	Files  agent.Files // keeps parts of results for people; nil: they read descriptions
	Limits Limits
	Log    *slog.Logger // default: discard
}

// Budget bounds what identities add to conversations. *routing.ByteBudget is one.
type Budget interface {
	// Begin spends the bytes that a turn stores first. With an error the turn does not begin.
	Begin(ctx context.Context, by share.Owner, bytes int) error

	// Add counts bytes that a running turn has stored, and reports whether there were too few left. Then the turn ends
	// after the step that it is at.
	Add(ctx context.Context, by share.Owner, bytes int) (over bool)

	// GiveBack returns bytes that were spent in Begin and not stored.
	GiveBack(by share.Owner, bytes int)
}

// unbounded is the Budget of an engine that is given none.
type unbounded struct{}

func (unbounded) Begin(context.Context, share.Owner, int) error { return nil }
func (unbounded) Add(context.Context, share.Owner, int) bool    { return false }
func (unbounded) GiveBack(share.Owner, int)                     {}

// Store is what engines share.
type Store interface {
	registry.ConversationStore
	registry.ContinuationStore
}

// Engine is the Agent: it runs turns.
//
//	lock ─▶ user message stored ─▶ model ─▶ answer stored ─▶ tool calls ─▶ results stored ─▶ model … ─▶ done
//
// However a turn ends, also with its pod, the next turn can continue the conversation: each step is stored before the
// next begins, and the next turn first closes what the last one left open. Engine is safe for concurrent use.
type Engine struct {
	cfg        Config // with defaults
	turnQueues turnQueues
	readings   *readings

	closing chan struct{}           // closed by Close: no new turn
	ctx     context.Context         // of running turns
	stop    context.CancelCauseFunc // ends running turns

	places *share.Pool // of turns that run or wait
	memory *share.Pool // bytes of the conversations of those that run

	mu     sync.Mutex
	aborts map[registry.Key]context.CancelCauseFunc // of the turns that have their conversation
	closed bool                                     // with it, closing is closed
	turns  sync.WaitGroup
}

var _ Agent = (*Engine)(nil)

// NewEngine returns an engine that is ready. Its owner must call Close.
func NewEngine(cfg Config) (*Engine, error) {
	if len(cfg.Models) == 0 || cfg.Store == nil {
		return nil, errors.New("chat: an engine needs a model and a store")
	}
	seen := make(map[string]bool)
	for _, m := range cfg.Models {
		if seen[m.Name()] {
			return nil, fmt.Errorf("chat: two models are called %q", m.Name())
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
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		cfg: cfg, closing: make(chan struct{}), turnQueues: turnQueues{waiting: cfg.Limits.Waiting},
		aborts: make(map[registry.Key]context.CancelCauseFunc), readings: newReadings(),
		// An app's backend holds the turns of all its users, so that only the share of its tenant bounds an identity.
		places: share.New(share.Bounds{Pod: int64(cfg.Limits.MaxTurns), Identity: int64(cfg.Limits.MaxTurns)}),
		memory: share.New(share.Bounds{Pod: maxTurnBytes, Identity: maxTurnBytes}),
	}
	e.ctx, e.stop = context.WithCancelCause(context.Background())
	return e, nil
}

// Models implements Agent.
func (e *Engine) Models() []string {
	names := make([]string, len(e.cfg.Models))
	for i, m := range e.cfg.Models {
		names[i] = m.Name()
	}
	return names
}

// admit lets a turn of an identity begin. Its caller must call the returned function when the turn has ended.
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

// What turns that run hold of their conversations, as these are when they begin, is bounded on a pod.
const (
	maxTurnBytes = 512 << 20 // of all turns
	turnCopies   = 2         // a conversation as it is stored, and as it is read
	turnCost     = 1 << 10   // bytes that the store takes for a turn beside its texts
)

// reserve lets a turn of an identity hold a conversation, and what was said now. release must be called.
func (e *Engine) reserve(by auth.Identity, c registry.Conversation, said string) (release func(), err error) {
	size := len(said)
	for _, m := range c.Messages {
		size += len(m)
	}
	held, err := e.memory.Try(by.Owner(), int64(turnCopies*size))
	if err != nil {
		return nil, full()
	}
	return held.Release, nil
}

// Stats says what an engine does now, and what it did since it was made.
type Stats struct {
	Turns   int64 // that run, or wait for their conversation
	Refused int64 // turns that the full pod refused
}

// Stats returns how many turns there are.
func (e *Engine) Stats() Stats {
	s := e.places.Stats()
	return Stats{Turns: s.Held, Refused: s.AllRefused()}
}

// Erased drops what this pod remembers of a conversation that was erased. Its store has forgotten it already.
func (e *Engine) Erased(key registry.Key) { e.readings.forget(key) }

// Pools returns how full the pools of the engine are, by name.
func (e *Engine) Pools() map[string]share.Stats {
	return map[string]share.Stats{"turns": e.places.Stats(), "turn_bytes": e.memory.Stats()}
}

// within returns the context of a turn. It ends with its caller's context and with the engine.
func (e *Engine) within(caller context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(caller)
	unhook := context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })
	return ctx, func(cause error) {
		unhook()
		cancel(cause)
	}
}

// abortable lets Abort end a turn until the returned function is called. A conversation has one such turn at a time.
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

// Abort ends the turn of a conversation as its user would, and reports whether this engine runs one. Waiting turns
// stay. It does not wait for the end.
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

// open returns the tools of a turn.
func (e *Engine) open(scope agent.SessionContext) Tools {
	if e.cfg.OpenTools != nil {
		if t := e.cfg.OpenTools(scope); t != nil {
			return t
		}
	}
	return noTools{}
}

// closeReserve is the most of Close's time that is kept for turns to store what they said, when they did not end by
// themselves. If less than four times that remains, it is a quarter of the rest.
const closeReserve = 2 * time.Second

// Close refuses new turns and those that wait for their conversation. It lets running turns end while ctx has time,
// then ends them with the cause registry.ErrDraining, and waits for all of them. They still store what they said, which
// may take up to 5 s beyond the end of ctx when the store is slow. After that Close returns an error.
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
	go func() { // ends with the last turn, and turns end: all they wait for is bounded or ends with e.ctx
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
