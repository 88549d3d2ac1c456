// Package loopguard stops conversations in a loop: a model that repeats a call and gets the same answer each time.
// docs/decisions/0007-loop-guard.md defines what counts as the same.
//
// It is a hook, and imports agent and registry. Start reading at Guard in loopguard.go; history.go reads the earlier
// calls of a conversation.
package loopguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/registry"
)

// Defaults of Config.
const (
	DefaultWarn         = 10
	DefaultBlock        = 20
	DefaultUnknownLimit = 10
)

// storeWait is how long the guard delays a call if the store is slow.
const storeWait = time.Second

// ErrBlocked is the cause of a blocked call's error. The code of the error is registry.CodeHookCancelled.
var ErrBlocked = errors.New("loopguard: blocked")

// Store stores the guard's history of a conversation, so that all pods count the same. registry.ConversationStore is
// one.
type Store interface {
	// AppendTrail adds an entry and returns the last limit entries, oldest first, including the new one. It is atomic:
	// of two concurrent callers, one sees the entry of the other.
	AppendTrail(ctx context.Context, key registry.Key, entry string, limit int) ([]string, error)
}

// Config configures a Guard. Store is required.
type Config struct {
	Store        Store
	Warn         int          // from this call of a run on, results carry a warning; default 10
	Block        int          // from this call of a run on, calls are blocked; default 20
	UnknownLimit int          // from this call in a row of an unknown tool on, the call is blocked; default 10
	Log          *slog.Logger // default: discard
}

// Guard is a hook that counts the calls of each conversation, across turns. If the caller keeps the conversation, it
// counts the calls of each turn. Calls outside of conversations pass. A turn is never blocked for a call that it has
// not made yet, whatever earlier turns did. Guard is safe for concurrent use. Concurrent calls of one turn count like
// sequential ones.
//
// If the store fails, calls pass uncounted and the failure is logged. The guard saves money and is no security control,
// so it must not stop a conversation.
type Guard struct {
	cfg    Config
	window int // entries of the history to read
}

var (
	_ agent.BeforeHook = (*Guard)(nil)
	_ agent.AmendHook  = (*Guard)(nil)
)

// New returns a Guard.
func New(cfg Config) *Guard {
	orDefault(&cfg.Warn, DefaultWarn)
	orDefault(&cfg.Block, DefaultBlock)
	orDefault(&cfg.UnknownLimit, DefaultUnknownLimit)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	// Two entries for each call, and as many again for other calls in between.
	return &Guard{cfg: cfg, window: 4 * max(cfg.Warn, cfg.Block, cfg.UnknownLimit)}
}

func orDefault(n *int, value int) {
	if *n <= 0 {
		*n = value
	}
}

// Name implements agent.Hook.
func (g *Guard) Name() string { return "loop guard" }

// Before implements agent.BeforeHook: it blocks a call that would only extend a run.
func (g *Guard) Before(ctx context.Context, inv agent.Invocation) (agent.Decision, error) {
	if !counts(inv) {
		return agent.Pass(), nil
	}
	e := entry{kind: kindStart, id: hash(inv.CallID), call: callHash(inv), turn: hash(inv.Turn)}
	r, err := g.note(ctx, inv, e)
	if err != nil {
		g.letPass(inv, err)
		return agent.Pass(), nil
	}
	if r.again && r.length >= g.cfg.Block {
		return agent.Decision{}, g.blocked(inv, r)
	}
	return agent.Pass(), nil
}

// Amend implements agent.AmendHook: it records how the call ended, and adds a warning or blocks.
func (g *Guard) Amend(
	ctx context.Context, inv agent.Invocation, out agent.Outcome, err error,
) (registry.Result, error) {
	if !counts(inv) || errors.Is(err, ErrBlocked) {
		return out.Result, err // a blocked call stays open in the history and so extends the run
	}
	e := entry{kind: kindEnd, id: hash(inv.CallID), call: callHash(inv), turn: hash(inv.Turn),
		outcome: outcomeHash(out.Result, err)}
	unknown := inv.Source == "" && errors.Is(err, registry.CodeToolNotFound)
	if unknown {
		// The arguments mean nothing, and a changed list of other tools is nothing new about this tool.
		e.call, e.outcome = hash("unknown", inv.Spec.Name), hash("unknown")
	}
	r, failure := g.note(context.WithoutCancel(ctx), inv, e)
	switch {
	case failure != nil:
		g.letPass(inv, failure)
		return out.Result, err
	case unknown && r.again && r.length >= g.cfg.UnknownLimit:
		return registry.Result{}, g.blockedUnknown(inv, r, err)
	case r.unasked && r.again && err != nil && r.length >= g.cfg.Block: // it ended before Before could block it
		return registry.Result{}, g.blocked(inv, r)
	case r.length < g.cfg.Warn:
		return out.Result, err
	}
	return g.warned(inv, r, out.Result, err)
}

// counts reports whether a call is part of a conversation.
func counts(inv agent.Invocation) bool {
	return inv.CallHistory != nil || inv.Conversation != (registry.Key{})
}

// note adds an entry to the history and returns the run that ends with its call.
func (g *Guard) note(ctx context.Context, inv agent.Invocation, e entry) (run, error) {
	if inv.CallHistory != nil {
		return runOf(parseHistory(inv.CallHistory.Append(e.String(), g.window)), e.id), nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	history, err := g.cfg.Store.AppendTrail(ctx, inv.Conversation, e.String(), g.window)
	if err != nil {
		return run{}, err
	}
	return runOf(parseHistory(history), e.id), nil
}

func (g *Guard) letPass(inv agent.Invocation, err error) {
	g.cfg.Log.Warn("loop guard cannot count; the call passes", "call", inv.CallID, "tool", inv.Spec.Name, "error", err)
}

func (g *Guard) blocked(inv agent.Invocation, r run) error {
	g.cfg.Log.Info("loop stopped", "tenant", inv.Caller.Tenant, "session", inv.Conversation.Session, "turn", inv.Turn,
		"call", inv.CallID, "tool", inv.Spec.Name, "length", r.length)
	return &registry.Error{Code: registry.CodeHookCancelled, Cause: ErrBlocked, Message: fmt.Sprintf(
		"The call was stopped: it would be %s, and nothing changes. Do something else, or answer with what is known.",
		describe(inv, r))}
}

func (g *Guard) blockedUnknown(inv agent.Invocation, r run, err error) error {
	return &registry.Error{Code: registry.CodeHookCancelled, Cause: ErrBlocked, Message: fmt.Sprintf(
		"The call was stopped: there is no tool %q, and it has been asked for %d times in a row. %s",
		shortName(inv), r.length, registry.AsError(err).Message)}
}

// warned adds a warning to the result or error that the model reads.
func (g *Guard) warned(inv agent.Invocation, r run, res registry.Result, err error) (registry.Result, error) {
	next := fmt.Sprintf("The %s will be stopped.", ordinal(g.cfg.Block))
	if r.length >= g.cfg.Block { // the turn makes this call for the first time
		next = "The next one in this turn will be stopped."
	}
	line := fmt.Sprintf("[Farhand: this is %s; try something else, or answer with what is known. %s]",
		describe(inv, r), next)
	if err != nil {
		e := *registry.AsError(err)
		e.Notice = line
		return res, &e
	}
	res.Notice = line
	return res, nil
}

// describe describes a call by its position in a run.
func describe(inv agent.Invocation, r run) string {
	if r.alternating {
		return fmt.Sprintf("the %s call in a row that alternates between %q and one other, "+
			"each with the same result as before",
			ordinal(r.length), shortName(inv))
	}
	return fmt.Sprintf("the %s identical call of %q with the same result", ordinal(r.length), shortName(inv))
}

// shortName returns the tool's name, truncated: a model may request a tool with any name.
func shortName(inv agent.Invocation) string { return fmt.Sprintf("%.64s", inv.Spec.Name) }

func ordinal(n int) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
