package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
)

// loop is the common part of all turns: model, tool calls, model again, until there are no more calls. One goroutine
// owns it, and concurrent calls report to it.
type loop struct {
	limits  Limits
	log     *slog.Logger
	model   provider.Model
	budget  ModelBudget // nil: unlimited
	tools   Tools
	own     map[string]bool // names of tools the caller runs
	base    provider.Request
	out     *emitter
	journal *journal           // nil: the caller keeps the conversation
	files   agent.Files        // nil: people read descriptions of parts
	key     registry.Key       // of the conversation, if the gateway keeps it
	owner   registry.BlobOwner // of files
	turn    string
	mark    mark
	format  Format
	debug   bool

	memory *share.Pool    // of answers; nil: not limited
	by     share.Owner    // who holds it, and pays for the model
	held   []*share.Grant // until the turn ends

	leftOut bool // dropped tools are already logged

	history  []provider.Message
	origins  *origins // nil: nothing learned yet
	readings *readings
	readKey  *readingKey // of what is cached of the conversation; nil: nothing is
	given    int         // how many messages of history came from the caller; their text is sent unchanged

	choice   provider.Choice
	buffered *strings.Builder // text that may not be part of the answer; nil: text is streamed
	said     strings.Builder  // all streamed text
	refusal  strings.Builder  // the part of it that explains a refusal
	calls    []CallReport
	reached  []string // the calls that have reached people, as of call.reachesPeople
	usage    provider.Usage
	answers  int           // of the model
	failed   provider.Kind // of the model's last request
	tokens   int           // tokens that count against Limits.Tokens
	stop     provider.StopReason

	continuations continuations       // for a completion
	returned      []provider.ToolCall // calls of the caller's own tools, which ended the turn
}

// run returns when the model has finished, or with the reason why not. The journal then has all the text.
func (l *loop) run(ctx context.Context) error {
	for n := 1; ; n++ {
		listed, err := l.tools.Tools(ctx)
		if err != nil {
			return fmt.Errorf("list tools: %w", err)
		}
		answer, err := l.generate(ctx, listed)
		if err != nil {
			return err
		}
		calls := answer.ToolCalls
		if slices.ContainsFunc(calls, func(c provider.ToolCall) bool { return l.own[c.Name] }) {
			return l.returnCalls(ctx, n, answer, listed)
		}
		if err := l.record(ctx, answer); err != nil || len(calls) == 0 {
			return err
		}
		if err := l.exceeded(n, len(calls)); err != nil {
			return l.decline(ctx, calls, listed, err)
		}
		if err := l.callAll(ctx, calls, listed); err != nil {
			return err
		}
	}
}

// record appends messages to the conversation, unless the first is an empty answer.
func (l *loop) record(ctx context.Context, messages ...provider.Message) error {
	m := messages[0]
	if m.Role == provider.RoleAssistant && m.Content == "" && len(m.ToolCalls) == 0 && len(m.Thinking) == 0 {
		return nil
	}
	if l.journal != nil {
		if err := l.journal.add(ctx, messages...); err != nil {
			return err
		}
	}
	l.history = append(l.history, messages...)
	return nil
}

// exceeded returns the limit that stops the calls of the n-th answer. No call of it runs then.
func (l *loop) exceeded(n, calls int) *Error {
	fail := func(format string, args ...any) *Error {
		message := fmt.Sprintf(format, args...) + " The text so far is stored; send another message to continue."
		return &Error{Code: CodeAgent, Message: message}
	}
	switch {
	case n >= l.limits.Iterations:
		return fail("The turn was stopped: it reached the limit of %d model requests.", n)
	case len(l.calls)+calls > l.limits.ToolCalls:
		return fail("The turn was stopped: it reached the limit of %d tool calls.",
			l.limits.ToolCalls)
	case l.journal != nil && l.journal.over:
		return fail("The turn was stopped: the conversations of this tenant have reached FARHAND_HISTORY_BYTES.")
	case l.tokens >= l.limits.Tokens:
		return fail("The turn was stopped: it used %d tokens; the limit is %d.", l.tokens, l.limits.Tokens)
	default:
		return nil
	}
}

// Memory of answers.
const (
	roomStep     = 256 << 10 // bytes of an answer whose memory is taken at once
	answerCopies = 2         // as it is read, and as it is kept
)

// roomForOne returns a function that takes memory for one answer of up to so many bytes, until the turn ends.
func (l *loop) roomForOne() func(bytes int) error {
	taken := 0
	return func(bytes int) error {
		for l.memory != nil && taken < bytes {
			part, err := l.memory.Try(l.by, answerCopies*roomStep)
			if err != nil {
				return err
			}
			l.held = append(l.held, part)
			taken += roomStep
		}
		return nil
	}
}

func (l *loop) giveBack() {
	for _, part := range l.held {
		part.Release()
	}
	l.held = nil
}

func (l *loop) reply() Reply {
	return Reply{
		Turn: l.turn, FullResponse: l.said.String(), Refusal: l.refusal.String(), Calls: l.calls,
		Usage: l.usage, Stop: l.stop,
	}
}

// turn is one Ask that holds the lock of its conversation.
type turn struct {
	engine *Engine
	ask    Ask
	loop   *loop
	title  string // of the conversation
}

// Ask implements Agent, with the first model. The turn waits for its conversation. It is refused, and stores nothing,
// if that is not free in time, if too many turns wait, or if the pod is full or stopping.
func (e *Engine) Ask(ctx context.Context, a Ask, emit func(Event)) (Reply, error) {
	out, began := newEmitter(emit), time.Now()
	a.Content = strings.ToValidUTF8(a.Content, "\uFFFD")
	if err := a.check(); err != nil {
		return Reply{}, out.complete("", err)
	}
	leave, err := e.admit(a.Caller)
	if err != nil {
		return Reply{}, out.complete("", err)
	}
	defer leave()
	ctx, cancel := e.within(ctx)
	defer cancel(nil)
	spent, err := e.spend(ctx, a)
	if err != nil {
		return Reply{}, out.complete("", err)
	}
	defer spent.giveBack()
	l, err := e.acquire(ctx, a.Key)
	if err != nil {
		return Reply{}, out.complete("", err)
	}
	spent.count(ctx, turnCost)
	defer l.ticket.leave() // after the last event, so that no other turn of this conversation sends one earlier
	defer e.abortable(a.Key, cancel)()
	reply, err := e.answer(ctx, cancel, a, l, spent, out)
	reply.Duration = time.Since(began)
	return reply, out.complete(reply.FullResponse, err)
}

func (a Ask) check() error {
	if err := a.Key.Validate(); err != nil {
		return &Error{Code: CodeAgent, Message: registry.AsError(err).Message, Cause: err}
	}
	if !a.Regenerate && strings.TrimSpace(a.Content) == "" {
		return &Error{Code: CodeEmptyContent, Message: "The message is empty."}
	}
	return nil
}

// answer runs a turn and releases its lock before the end is sent, because a client may then ask again at once.
func (e *Engine) answer(
	ctx context.Context, cancel context.CancelCauseFunc, a Ask, l *lock, spent *spending, out *emitter,
) (Reply, error) {
	defer e.end(ctx, l.Turn)
	defer e.renew(l, cancel)()
	ctx, stop := context.WithTimeoutCause(ctx, e.cfg.Limits.Turn, errTurnTime)
	defer stop()
	scope := scopeOf(a)
	scope.Fence = l.Fence
	t := &turn{engine: e, ask: a, loop: &loop{
		limits: e.cfg.Limits, log: e.cfg.Log, model: e.cfg.Models[0], out: out, turn: uuid.NewString(),
		journal: &journal{store: e.cfg.Store, turn: l.Turn, spending: spent}, readings: e.readings,
		readKey: &readingKey{Key: a.Key},
		format:  a.Format, debug: a.Debug, tools: e.open(scope), files: e.cfg.Files, key: a.Key,
		owner:  a.Caller.FileOwner(),
		memory: e.memory, by: a.Caller.Owner(), budget: e.cfg.ModelBudget,
	}}
	defer t.loop.giveBack()
	info := TurnInfo{Key: a.Key, Caller: a.Caller, Channel: ChannelChat}
	reply, err := e.carryOut(ctx, info, t.loop, time.Now(), t.run)
	reply.MessageCount, reply.Title = t.loop.journal.count, t.title
	return reply, err
}

func scopeOf(a Ask) agent.SessionContext {
	return agent.SessionContext{Key: a.Key, Caller: a.Caller, Channel: ChannelChat, Kind: a.Kind, Queue: a.Queue}
}

// run runs the turn, from the user's message to the title.
func (t *turn) run(ctx context.Context) error {
	system, err := t.engine.cfg.SystemFor(ctx, scopeOf(t.ask))
	if err != nil {
		return fmt.Errorf("build system prompt: %w", err)
	}
	t.loop.base = provider.Request{System: system}
	c, err := t.engine.cfg.Store.Conversation(ctx, t.ask.Key)
	if err != nil {
		return fmt.Errorf("read conversation: %w", err)
	}
	release, err := t.engine.reserve(t.ask.Caller, c, t.ask.Content)
	if err != nil {
		return err
	}
	defer release()
	if err := t.own(ctx, c); err != nil {
		return err
	}
	t.title, t.loop.journal.count = c.Title, len(c.Messages)
	t.loop.history = decode(c.Messages, t.engine.cfg.Log)
	t.loop.mark = markOf(t.loop.history)
	if t.ask.Regenerate {
		err = t.rewind(ctx, c)
	} else {
		said := provider.Message{
			Role: provider.RoleUser, Content: t.ask.Content, At: time.Now().UTC(), Turn: t.loop.turn,
			Nonce: t.loop.mark.nonce,
		}
		before := repair(t.loop.history, c.Draft)
		before = append(before, t.outcomes(ctx, append(slices.Clip(t.loop.history), before...))...)
		err = t.loop.record(ctx, append(before, said)...)
	}
	if err != nil {
		return err
	}
	err = t.loop.run(ctx)
	lost := errors.Is(err, registry.ErrTurnLost) || errors.Is(context.Cause(ctx), registry.ErrTurnLost)
	if !lost { // the conversation may have been erased otherwise
		t.loop.remember()
	}
	if err != nil {
		return err
	}
	if t.title == "" {
		t.title = t.setTitle(ctx)
	}
	return nil
}

// own checks that the conversation does not belong to another user. It stores the owner of a new conversation.
func (t *turn) own(ctx context.Context, c registry.Conversation) error {
	if !t.ask.Caller.Sees(c.Owner.UserID) {
		cause := registry.UnknownSession()
		return &Error{Code: CodeAgent, Message: cause.Message, Cause: cause}
	}
	if len(c.Messages) > 0 || c.Owner != (registry.Owner{}) || t.ask.Owner == (registry.Owner{}) {
		return nil
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := t.engine.cfg.Store.SetOwner(ctx, t.loop.journal.turn, t.ask.Owner); err != nil {
		return fmt.Errorf("store the owner of the conversation: %w", err)
	}
	return nil
}

func (t *turn) rewind(ctx context.Context, c registry.Conversation) error {
	keep := 0
	for i := range c.Messages {
		if m := decode(c.Messages[i:i+1], t.engine.cfg.Log); len(m) == 1 && isUser(m[0]) {
			keep = i + 1
		}
	}
	if keep == 0 {
		return &Error{
			Code:    CodeNoUserMessage,
			Message: "There is no answer to regenerate: the conversation has no user message.",
		}
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := t.engine.cfg.Store.TruncateMessages(ctx, t.loop.journal.turn, keep); err != nil {
		return fmt.Errorf("remove the previous answer: %w", err)
	}
	t.loop.journal.count = keep
	t.loop.history = decode(c.Messages[:keep], t.engine.cfg.Log)
	return nil
}

// carryOut runs a turn that began at began, and notifies Activity of its start and end.
func (e *Engine) carryOut(
	ctx context.Context, info TurnInfo, l *loop, began time.Time, run func(context.Context) error,
) (Reply, error) {
	info.Turn, info.Model = l.turn, l.model.Name()
	if e.cfg.Activity != nil {
		e.cfg.Activity.TurnStarted(info)
	}
	ctx, span := trace.Start(ctx, trace.Internal, operationTurn, agentName)
	err := guarded(ctx, l, run)
	if err != nil {
		err = failure(ctx, e.cfg.Limits, err)
		e.noteFailure(ctx, info, err)
	}
	reply := l.reply()
	reply.Duration = time.Since(began)
	endTurnSpan(span, info, reply, err)
	if e.cfg.Activity != nil {
		end := TurnEnd{
			Outcome: OutcomeDone, Usage: reply.Usage, Calls: len(reply.Calls), Duration: reply.Duration,
			Answers: l.answers, Failure: l.failed,
			TraceID: trace.SampledID(ctx),
		}
		if failed, ok := errors.AsType[*Error](err); ok {
			end.Outcome, end.Code = OutcomeError, failed.Code
		} else if err != nil {
			end.Outcome = OutcomeAborted
		}
		e.cfg.Activity.TurnFinished(info, end)
	}
	return reply, err
}

// guarded turns a panic of a model or of this package into an error: the lock is released and the process continues.
func guarded(ctx context.Context, l *loop, run func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("panic in a turn", "turn", l.turn, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("turn panicked: %v", p)
		}
	}()
	return run(ctx)
}
