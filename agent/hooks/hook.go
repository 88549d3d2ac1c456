package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// afterGrace is the minimum time that a hook has for a result, even past the call's deadline. Without it, a result that
// arrives just before the deadline would be withheld.
const afterGrace = 500 * time.Millisecond

var (
	errBusy   = errors.New("its turn did not come in time")
	errAnswer = errors.New("unusable answer")
)

// Hook is an agent.Hook that asks an HTTP service. It is safe for concurrent use. Call Close when done.
type Hook struct {
	cfg    Config
	client *client
	tools  policy.Guarded
	broken failureLog
	counts *counts

	ctx     context.Context // of messages about approvals
	stop    context.CancelFunc
	sending sync.WaitGroup
	notices *share.Pool // of messages in flight
}

var (
	_ agent.BeforeHook    = (*Hook)(nil)
	_ agent.SelectiveHook = (*Hook)(nil)
)

// New returns a Hook. Failures are logged to log.
func New(cfg Config, log *slog.Logger) (*Hook, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	client, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	h := &Hook{cfg: cfg, client: client, tools: policy.NewGuarded(cfg.Tools), broken: failureLog{log: log},
		counts: newCounts(), notices: halfEach(maxNotices)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h, nil
}

// Close stops sending messages about approvals, and closes idle connections. Questions in flight end with their calls.
// No approval may be requested after Close.
func (h *Hook) Close() {
	h.stop()
	h.sending.Wait()
	h.client.close()
}

// Name implements agent.Hook.
func (h *Hook) Name() string { return h.cfg.Name }

// Before implements agent.BeforeHook.
func (h *Hook) Before(ctx context.Context, inv agent.Invocation) (agent.Decision, error) {
	if !h.cfg.Before || !h.covers(inv.Spec.Name) {
		return agent.Pass(), nil
	}
	limit := time.Now().Add(h.cfg.Timeout)
	if !inv.Deadline.IsZero() && inv.Deadline.Before(limit) {
		limit = inv.Deadline
	}
	q := h.questionOf(typeBefore, inv)
	q.Args, q.Caller.Roles = inv.Args, inv.Caller.RoleNames()
	a, err := h.ask(ctx, inv.Caller.Owner(), q, phaseBefore, limit, inv.Args.Len(), nil)
	switch {
	case err != nil && h.cfg.FailOpen:
		return agent.Pass(), nil
	case err != nil:
		return agent.Decision{}, registry.Errorf(registry.CodeHookCancelled, "The hook %s, without whose consent the "+
			"call must not run, gave no answer that could be used. Retry later; the gateway's log says more.",
			h.cfg.Name)
	case a.decision == decisionCancel:
		return agent.Cancel(a.reason), nil
	case a.decision == decisionModify:
		return agent.Modify(json.RawMessage(a.args.Raw())), nil
	}
	return agent.Pass(), nil
}

// Amends implements agent.SelectiveHook.
func (h *Hook) Amends(tool string) bool { return h.cfg.After && h.covers(tool) }

// covers reports whether the hook applies to a tool.
func (h *Hook) covers(tool string) bool { return len(h.cfg.Tools) == 0 || h.tools.Match(tool) }

// Amend implements agent.AmendHook. It asks the service only about results: a call that failed without one has no data
// of the device.
func (h *Hook) Amend(
	ctx context.Context, inv agent.Invocation, out agent.Outcome, err error,
) (registry.Result, error) {
	if err != nil || out.Result.Withheld != nil || !h.Amends(inv.Spec.Name) {
		return out.Result, err
	}
	limit := time.Now().Add(h.cfg.Timeout)
	if last := inv.Deadline; !inv.Deadline.IsZero() {
		if soon := time.Now().Add(afterGrace); last.Before(soon) {
			last = soon
		}
		if last.Before(limit) {
			limit = last
		}
	}
	q := h.questionOf(typeAfter, inv)
	q.Result = resultOf(out.Result)
	a, failure := h.ask(ctx, inv.Caller.Owner(), q, phaseAfter, limit, q.Result.size(), out.Result.Parts)
	switch {
	case failure != nil && h.cfg.FailOpen:
		return out.Result, nil
	case failure != nil:
		return registry.Result{}, registry.Errorf(registry.CodeHookCancelled, "The tool has run, but its result is "+
			"withheld: the hook %s gave no answer about it that could be used. The gateway's log says more.",
			h.cfg.Name)
	case a.decision == decisionCancel:
		return registry.Result{}, registry.Errorf(registry.CodeHookCancelled,
			"The tool has run, but the hook %s withholds its result: %s", h.cfg.Name, a.reason)
	case a.decision == decisionModify:
		return registry.Result{
			Success: out.Result.Success, Output: a.output, Structured: a.json, Error: a.err, Notice: out.Result.Notice,
			Parts: a.selected,
		}, nil
	}
	return out.Result, nil
}

// ask asks the service. parts are the result's parts, if the question is about a result. Every failure is logged,
// unless the caller has disconnected.
func (h *Hook) ask(
	ctx context.Context, of share.Owner, q question, phase string, limit time.Time, size int, parts []registry.Part,
) (answer, error) {
	begin := time.Now()
	asking, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	text, err := h.client.ask(asking, of, q.CallID+"."+phase, size, func() ([]byte, error) { return q.encode(limit) })
	var a answer
	if err == nil {
		if a, err = parseAnswer(text, phase); err == nil {
			err = a.selectParts(parts)
		}
		if err != nil {
			err = errors.Join(errAnswer, err)
		}
	}
	switch {
	case err == nil:
		h.counts.note(a.decision, time.Since(begin))
	case ctx.Err() == nil:
		h.counts.note(outcomeFailed, time.Since(begin))
		h.broken.note(h.cfg.Name, phase, q, err)
	}
	return a, err
}

// Outcomes of questions in metrics.
const outcomeFailed = "failed" // no usable answer; all other outcomes are decisions

// Outcomes returns all outcomes of questions.
func Outcomes() []string {
	return []string{decisionContinue, decisionModify, decisionCancel, outcomeFailed}
}

// Stats are a Hook's counts since New. Questions whose callers disconnected are not counted.
type Stats struct {
	Name      string
	Questions map[string]int64 // by outcome
	Took      time.Duration    // total, including the time in queue
}

// counts counts the outcomes of questions. It is safe for concurrent use.
type counts struct {
	took     atomic.Int64
	outcomes map[string]*atomic.Int64 // the map never changes
}

func newCounts() *counts {
	c := &counts{outcomes: make(map[string]*atomic.Int64)}
	for _, name := range Outcomes() {
		c.outcomes[name] = new(atomic.Int64)
	}
	return c
}

func (c *counts) note(outcome string, took time.Duration) {
	c.outcomes[outcome].Add(1)
	c.took.Add(int64(took))
}

// Pools returns the usage of the hook's pools, by name.
func (h *Hook) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"hook_questions": h.client.slots.Stats(), "hook_bytes": h.client.buffered.Stats(),
		"hook_messages": h.notices.Stats(),
	}
}

// Stats returns the counts.
func (h *Hook) Stats() Stats {
	s := Stats{
		Name: h.cfg.Name, Questions: make(map[string]int64, len(h.counts.outcomes)),
		Took: time.Duration(h.counts.took.Load()),
	}
	for name, n := range h.counts.outcomes {
		s.Questions[name] = n.Load()
	}
	return s
}

// logPause is the minimum time between two log lines about one hook.
const logPause = 5 * time.Second

// failureLog logs failures of a hook, without a line for each call.
type failureLog struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time
	missed int // failures since the last line
}

func (f *failureLog) note(hook, phase string, q question, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.last.IsZero() && now.Sub(f.last) < logPause {
		f.missed++
		return
	}
	f.log.Error("an HTTP hook failed", "hook", hook, "phase", phase, "tool", q.Tool, "call_id", q.CallID,
		"error", err, "failures_not_logged", f.missed)
	f.last, f.missed = now, 0
}
