package hooks

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/internal/pause"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/registry"
)

// afterGrace is the minimum time for a result, else one that arrives just before the call's deadline would be withheld.
const afterGrace = 500 * time.Millisecond

var (
	errBusy   = errors.New("no free slot in time")
	errAnswer = errors.New("unusable answer")
)

// Hook is an agent.Hook that asks an HTTP service. It is safe for concurrent use. Call Close when done.
type Hook struct {
	cfg    Config
	client *client
	tools  policy.Guarded
	log    *slog.Logger

	ctx     context.Context // of messages about approvals
	stop    context.CancelFunc
	sending sync.WaitGroup
	notices *share.Pool // of messages in flight

	mu     sync.Mutex
	stats  Stats
	logged time.Time // the last failure in the log
	missed int       // failures since then
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
	h := &Hook{cfg: cfg, client: client, tools: policy.NewGuarded(cfg.Tools), log: log, notices: halfEach(maxNotices),
		stats: Stats{Name: cfg.Name, Questions: make(map[string]int64)}}
	for _, outcome := range Outcomes() {
		h.stats.Questions[outcome] = 0
	}
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
		return agent.Decision{}, registry.Errorf(registry.CodeHookCancelled, "The call was stopped: the required "+
			"hook %s gave no usable answer. Retry later; the gateway's log has details.",
			h.cfg.Name)
	case a.Decision == decisionCancel:
		return agent.Cancel(a.reason), nil
	case a.Decision == decisionModify:
		return agent.Modify(a.Args.Raw()), nil
	}
	return agent.Pass(), nil
}

// Amends implements agent.SelectiveHook.
func (h *Hook) Amends(tool string) bool { return h.cfg.After && h.covers(tool) }

// covers reports whether the hook applies to a tool.
func (h *Hook) covers(tool string) bool { return len(h.cfg.Tools) == 0 || h.tools.Match(tool) }

// Amend implements agent.AmendHook. It asks only about results: without one there is no data of the device.
func (h *Hook) Amend(ctx context.Context, inv agent.Invocation, out agent.Outcome, err error) (registry.Result, error) {
	if err != nil || out.Result.Withheld != nil || !h.Amends(inv.Spec.Name) {
		return out.Result, err
	}
	limit := time.Now().Add(h.cfg.Timeout)
	if !inv.Deadline.IsZero() {
		left := max(time.Until(inv.Deadline), afterGrace)
		limit = time.Now().Add(min(left, h.cfg.Timeout))
	}
	q := h.questionOf(typeAfter, inv)
	q.Result = resultOf(out.Result)
	a, failure := h.ask(ctx, inv.Caller.Owner(), q, phaseAfter, limit, q.Result.size(), out.Result.Parts)
	switch {
	case failure != nil && h.cfg.FailOpen:
		return out.Result, nil
	case failure != nil:
		return registry.Result{}, registry.Errorf(registry.CodeHookCancelled, "The tool ran, but its result is "+
			"withheld: the hook %s gave no usable answer. The gateway's log has details.",
			h.cfg.Name)
	case a.Decision == decisionCancel:
		return registry.Result{}, registry.Errorf(registry.CodeHookCancelled,
			"The tool ran, but the hook %s withholds its result: %s", h.cfg.Name, a.reason)
	case a.Decision == decisionModify:
		return a.result(out.Result), nil
	}
	return out.Result, nil
}

// ask asks the service. parts are the result's parts, if any. Failures are logged, unless the caller has disconnected.
func (h *Hook) ask(
	ctx context.Context, of share.Owner, q question, phase string, limit time.Time, size int, parts []registry.Part,
) (answer, error) {
	begin := time.Now()
	asking, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	text, err := h.client.send(asking, of, q.CallID+"."+phase, size, http.StatusOK,
		func() ([]byte, error) { return q.encode(limit) })
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
		h.note(a.Decision, begin)
	case ctx.Err() == nil:
		h.failed(phase, q.Tool, q.CallID, begin, err)
	}
	return a, err
}

// outcomeFailed is the outcome of a question without a usable answer. All other outcomes are decisions.
const outcomeFailed = "failed"

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

// Stats returns the counts.
func (h *Hook) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.Questions = maps.Clone(s.Questions)
	return s
}

// note counts a question or message that began at begin.
func (h *Hook) note(outcome string, begin time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Questions[outcome]++
	h.stats.Took += time.Since(begin)
}

// logPause is the minimum time between two log lines about one hook.
const logPause = 5 * time.Second

// failed counts a failure and logs it, at most once per logPause.
func (h *Hook) failed(phase, tool, call string, begin time.Time, err error) {
	h.note(outcomeFailed, begin)
	if missed, now := h.logsFailure(); now { // without the lock, because the log may block
		h.log.Error("HTTP hook failed", "hook", h.cfg.Name, "phase", phase, "tool", tool, "call_id", call,
			"error", err, "failures_not_logged", missed)
	}
}

// logsFailure reports whether a failure is logged now, and how many before it were not.
func (h *Hook) logsFailure() (missed int, now bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.logged.IsZero() && time.Since(h.logged) < logPause {
		h.missed++
		return 0, false
	}
	missed, h.missed, h.logged = h.missed, 0, time.Now()
	return missed, true
}

// Pools returns the usage of the hook's pools, by name.
func (h *Hook) Pools() map[string]share.Stats {
	return map[string]share.Stats{
		"hook_questions": h.client.slots.Stats(), "hook_bytes": h.client.buffered.Stats(),
		"hook_messages": h.notices.Stats(),
	}
}

const (
	typeApproval  = "approval.requested"
	phaseApproval = "approval"

	maxNotices    = 1024 // messages of one hook in flight, including those that wait for a retry
	noticeTries   = 4
	noticePause   = time.Second // before the first retry; each further pause is five times longer
	noticeBackoff = 5
	maxAccepted   = 299 // the highest status of an accepted message
)

// notice is the body of a message about an approval.
type notice struct {
	Type      string     `json:"type"`
	Timestamp time.Time  `json:"timestamp"`
	Hook      string     `json:"hook"`
	Data      noticeData `json:"data"`
}

// noticeData describes the approval. It has no arguments: approvers read them at the gateway.
type noticeData struct {
	ID         string             `json:"id"`
	URL        string             `json:"url,omitempty"`
	ConsoleURL string             `json:"console_url,omitempty"`
	CallID     string             `json:"call_id"`
	Tool       string             `json:"tool"`
	Tenant     string             `json:"tenant"`
	UserID     string             `json:"user_id,omitempty"` // owner of the device, or the requester
	SessionID  string             `json:"session_id,omitempty"`
	DeviceID   string             `json:"device_id,omitempty"`
	DeviceName string             `json:"device_name,omitempty"`
	Requester  noticeRequester    `json:"requester"`
	Reason     string             `json:"reason"`
	Rule       string             `json:"rule"`
	By         registry.ApproveBy `json:"by,omitempty"`
	Approvers  []string           `json:"approvers,omitempty"`
	ExpiresAt  time.Time          `json:"expires_at"`
}

type noticeRequester struct {
	UserID     string `json:"user_id,omitempty"`
	Credential string `json:"credential,omitempty"`
	Name       string `json:"name,omitempty"`
	Model      bool   `json:"model"`
}

// Links are the addresses of an approval. Either may be empty.
type Links struct {
	API     string // for programs: JSON, with a bearer token
	Console string // for people: the page on which the approval is decided
}

// Notifies reports whether the hook gets messages about approvals.
func (h *Hook) Notifies() bool { return h.cfg.Approvals }

// ApprovalRequested sends the service a message that a person must approve a call. It does not block. Without a status
// of 200 to 299, the message is retried up to three times. If too many are in flight, it is dropped and counted as
// failed.
func (h *Hook) ApprovalRequested(a registry.Approval, links Links) {
	if !h.cfg.Approvals || !h.covers(a.Tool) {
		return
	}
	place, err := h.notices.Try(share.Owner{Tenant: a.Tenant}, 1)
	if err != nil {
		h.failed(phaseApproval, a.Tool, a.CallID, time.Now(), errBusy)
		return
	}
	h.sending.Go(func() {
		defer place.Release()
		h.notify(a, links)
	})
}

// notify sends a message until the service accepts it, all tries failed, or the approval or the hook ends.
func (h *Hook) notify(a registry.Approval, links Links) {
	ctx, cancel := context.WithTimeout(h.ctx, a.ExpiresAt.Sub(a.CreatedAt)) // by this pod's clock
	defer cancel()
	wait := noticePause
	for try := range noticeTries {
		if try > 0 {
			if pause.For(ctx, wait) != nil {
				return
			}
			wait *= noticeBackoff
		}
		begin := time.Now()
		asking, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
		_, err := h.client.send(asking, share.Owner{Tenant: a.Tenant}, a.ID+"."+phaseApproval, 0, maxAccepted,
			func() ([]byte, error) { return encode(h.noticeOf(a, links)) })
		cancel()
		switch {
		case err == nil:
			h.note(decisionContinue, begin)
			return
		case ctx.Err() != nil:
			return
		}
		h.failed(phaseApproval, a.Tool, a.CallID, begin, err)
	}
}

// noticeOf returns the body of a message.
func (h *Hook) noticeOf(a registry.Approval, links Links) notice {
	r := a.Requester
	return notice{typeApproval, time.Now().UTC(), h.cfg.Name, noticeData{
		ID: a.ID, URL: links.API, ConsoleURL: links.Console, CallID: a.CallID, Tool: a.Tool, Tenant: a.Tenant,
		UserID: a.Owner, SessionID: a.SessionID, DeviceID: a.DeviceID, DeviceName: a.DeviceName,
		Requester: noticeRequester{r.User, r.Credential, r.Name, a.Model}, Reason: a.Reason, Rule: a.Rule, By: a.By,
		Approvers: a.Approvers, ExpiresAt: a.ExpiresAt,
	}}
}
