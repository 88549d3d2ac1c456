// Package loopguard stops conversations in a loop: a model that repeats a call and gets the same answer each time.
// docs/decisions/0007-loop-guard.md defines what counts as the same.
//
// It is a hook, and imports agent and registry. Start reading at Guard.
package loopguard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/strictjson"
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

// Store stores the guard's history of a conversation for all pods. registry.ConversationStore is one.
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
	cfg.Warn = cmp.Or(max(cfg.Warn, 0), DefaultWarn)
	cfg.Block = cmp.Or(max(cfg.Block, 0), DefaultBlock)
	cfg.UnknownLimit = cmp.Or(max(cfg.UnknownLimit, 0), DefaultUnknownLimit)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	// Two entries for each call, and the same number for other calls in between.
	return &Guard{cfg: cfg, window: 4 * max(cfg.Warn, cfg.Block, cfg.UnknownLimit)}
}

// Name implements agent.Hook.
func (g *Guard) Name() string { return "loop guard" }

// Before implements agent.BeforeHook: it blocks a call that would only extend a run.
func (g *Guard) Before(ctx context.Context, inv agent.Invocation) (agent.Decision, error) {
	if !counts(inv) {
		return agent.Pass(), nil
	}
	r, err := g.note(ctx, inv, made{id: hash(inv.CallID), call: callHash(inv), turn: hash(inv.Turn)})
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
	e := made{id: hash(inv.CallID), call: callHash(inv), turn: hash(inv.Turn), outcome: outcomeHash(out.Result, err)}
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

func counts(inv agent.Invocation) bool {
	return !inv.Child && (inv.CallHistory != nil || inv.Conversation != (registry.Key{}))
}

// note adds an entry to the history and returns the run that ends with its call.
func (g *Guard) note(ctx context.Context, inv agent.Invocation, e made) (run, error) {
	if inv.CallHistory != nil {
		return runOf(parseHistory(inv.CallHistory.Append(e.String(), g.window)), e.id), nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	history, err := g.cfg.Store.AppendTrail(ctx, inv.Conversation, e.String(), g.window)
	return runOf(parseHistory(history), e.id), err
}

func (g *Guard) letPass(inv agent.Invocation, err error) {
	g.cfg.Log.Warn("loop guard not counted; the call passes", "call", inv.CallID, "tool", inv.Spec.Name, "error", err)
}

func (g *Guard) blocked(inv agent.Invocation, r run) error {
	g.cfg.Log.Info("loop stopped", "tenant", inv.Caller.Tenant, "session", inv.Conversation.Session, "turn", inv.Turn,
		"call", inv.CallID, "tool", inv.Spec.Name, "length", r.length)
	return &registry.Error{Code: registry.CodeHookCancelled, Cause: ErrBlocked, Message: fmt.Sprintf(
		"The call was stopped: it would be %s, without progress. Try something else, or answer with what you know.",
		describe(inv, r))}
}

func (g *Guard) blockedUnknown(inv agent.Invocation, r run, err error) error {
	return &registry.Error{Code: registry.CodeHookCancelled, Cause: ErrBlocked, Message: fmt.Sprintf(
		"The call was stopped: there is no tool %q, and it was called %d times in a row. %s",
		shortName(inv), r.length, registry.AsError(err).Message)}
}

// warned adds a warning to the result or error that the model reads.
func (g *Guard) warned(inv agent.Invocation, r run, res registry.Result, err error) (registry.Result, error) {
	next := fmt.Sprintf("The %s will be stopped.", ordinal(g.cfg.Block))
	if r.length >= g.cfg.Block { // the turn makes this call for the first time
		next = "The next call like it in this turn will be stopped."
	}
	line := fmt.Sprintf("[Farhand: this is %s; try something else, or answer with what you know. %s]",
		describe(inv, r), next)
	if err != nil {
		e := *registry.AsError(err)
		e.Notice = line
		return res, &e
	}
	res.Notice = line
	return res, nil
}

func describe(inv agent.Invocation, r run) string {
	if r.alternating {
		return fmt.Sprintf("the %s call in a row that alternates between %q and another call, "+
			"each with an unchanged result",
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

// The kinds of entries: a call leaves a start entry, unless it could not run, and an end entry when it has ended.
const (
	kindStart = "s"
	kindEnd   = "e"
)

// made is a call, or one entry of its history: the call, its request, its turn and its outcome. All are hashes, so that
// no arguments or results are stored.
type made struct {
	id      string
	call    string
	turn    string
	outcome string // empty while the call runs, and for a blocked call
	unasked bool   // it never started
}

func (m made) String() string {
	if m.outcome == "" {
		return strings.Join([]string{kindStart, m.id, m.call, m.turn}, " ")
	}
	return strings.Join([]string{kindEnd, m.id, m.call, m.turn, m.outcome}, " ")
}

// parseEntry parses the output of String. It returns false for anything else, such as an entry of another version.
func parseEntry(text string) (made, bool) {
	f := strings.Split(text, " ")
	switch {
	case slices.Contains(f, ""):
		return made{}, false
	case len(f) == 4 && f[0] == kindStart:
		return made{id: f[1], call: f[2], turn: f[3]}, true
	case len(f) == 5 && f[0] == kindEnd:
		return made{id: f[1], call: f[2], turn: f[3], outcome: f[4]}, true
	default:
		return made{}, false
	}
}

func parseHistory(history []string) []made {
	var calls []made
	place := make(map[string]int)
	for _, text := range history {
		e, ok := parseEntry(text)
		if !ok {
			continue
		}
		if i, known := place[e.id]; !known {
			place[e.id] = len(calls)
			e.unasked = e.outcome != ""
			calls = append(calls, e)
		} else if e.outcome != "" {
			calls[i].outcome = e.outcome
		}
	}
	return calls
}

// run describes how often one call, or two alternating calls, were made in a row without a new outcome.
type run struct {
	length      int
	alternating bool
	unasked     bool // the last call never started
	again       bool // its turn already made the same call in this run
}

// runOf returns the run that ends with the call id. It is the zero run if the call is not in calls.
func runOf(calls []made, id string) run {
	last := len(calls) - 1
	for last >= 0 && calls[last].id != id {
		last--
	}
	if last < 0 {
		return run{}
	}
	r := run{length: stretch(calls[:last+1], 1), unasked: calls[last].unasked}
	if last > 0 && calls[last].call != calls[last-1].call {
		if n := stretch(calls[:last+1], 2); n >= 4 { // A-B-A-B; less is not a pattern
			r.length, r.alternating = n, true
		}
	}
	r.again = slices.ContainsFunc(calls[last+1-r.length:last], func(c made) bool {
		return c.call == calls[last].call && c.turn == calls[last].turn
	})
	return r
}

// stretch returns how many calls at the end repeat with the given period. Each has the same request as the call one
// period earlier. All known outcomes at the same position of the period are equal.
func stretch(calls []made, period int) int {
	if len(calls) < period {
		return len(calls)
	}
	asked, outcome := make([]string, period), make([]string, period)
	n := 0
	for i := len(calls) - 1; i >= 0; i-- {
		place, c := n%period, calls[i]
		if n < period {
			asked[place] = c.call
		}
		if c.call != asked[place] || outcome[place] != "" && c.outcome != "" && c.outcome != outcome[place] {
			break
		}
		if outcome[place] == "" {
			outcome[place] = c.outcome
		}
		n++
	}
	return n
}

// callHash identifies the request of a call: the tool, its source, and the arguments as sent, in any order of members.
func callHash(inv agent.Invocation) string {
	args, err := strictjson.Canonical(inv.Asked.Raw())
	if err != nil {
		args = inv.Asked.Raw() // invalid JSON of a model: hashed as text, so a repetition has the same hash
	}
	return hash("call", inv.Source, inv.Spec.Name, string(args))
}

// outcomeHash identifies the outcome of a call, without ids and durations.
func outcomeHash(res registry.Result, err error) string {
	if err != nil {
		e := registry.AsError(err)
		return hash("error", string(e.Code), e.Message)
	}
	said := []string{"result", string(res.State()), res.Output, res.Error}
	for i := range res.Parts { // two different pictures are two outcomes
		said = append(said, res.Parts[i].MIMEType, string(res.Parts[i].Data))
	}
	return hash(said...)
}

// hash returns a short hash of the parts, each with its length.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
