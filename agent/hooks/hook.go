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

// afterGrace is how long a hook may take about a result although the time of the call is up: a result that came in the
// last moment would otherwise be withheld.
const afterGrace = 500 * time.Millisecond

var (
	errBusy   = errors.New("its turn did not come in time")
	errAnswer = errors.New("unusable answer")
)

// Hook is an agent.Hook that asks an HTTP service. It is safe for concurrent use. It must be closed.
type Hook struct {
	cfg    Config
	client *client
	tools  policy.Guarded
	broken failureLog
	counts *counts

	ctx     context.Context // of messages about approvals
	stop    context.CancelFunc
	sending sync.WaitGroup
	notices *share.Pool // of those that are on their way
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

// Close ends what is still sent about approvals, and closes the connections that nobody uses. Questions that are being
// asked end with their calls. No approval may be requested any more.
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

// covers reports whether the hook is asked about a tool.
func (h *Hook) covers(tool string) bool { return len(h.cfg.Tools) == 0 || h.tools.Match(tool) }

// Amend implements agent.AmendHook. The service is asked about results only: a call that failed otherwise has nothing
// of the device's.
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
			Parts: a.kept,
		}, nil
	}
	return out.Result, nil
}

// ask asks the service, about a result with these parts if it is about one. Every failure is logged, but that of a call
// whose caller has gone.
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
			err = a.keep(parts)
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

// Outcomes of questions, as metrics name them.
const outcomeFailed = "failed" // no answer that could be used; every other outcome is a decision

// Outcomes returns all outcomes of questions.
func Outcomes() []string {
	return []string{decisionContinue, decisionModify, decisionCancel, outcomeFailed}
}

// Stats are counts of a Hook since it was made. Questions of calls whose callers had gone are not counted.
type Stats struct {
	Name      string
	Questions map[string]int64 // by outcome
	Took      time.Duration    // all of them together, waiting for their turns included
}

// counts count what became of questions. They are safe for concurrent use.
type counts struct {
	took     atomic.Int64
	outcomes map[string]*atomic.Int64 // never changes
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

// Pools returns how full the pools of the hook are, by name.
func (h *Hook) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"hook_questions": h.client.slots.Stats(), "hook_bytes": h.client.held.Stats(),
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

// logPause is the least time between two lines about one hook.
const logPause = 5 * time.Second

// failureLog logs that a hook fails, without a line for every call that it fails for.
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
