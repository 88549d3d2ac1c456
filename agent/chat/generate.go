package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/trace"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

// generate sends one request to the model and streams its answer. An interrupted answer is kept, marked as interrupted
// and without its tool calls: none of them ran, and the last may be incomplete.
func (l *loop) generate(ctx context.Context, listed []agent.ShownTool) (provider.Message, error) {
	if l.budget != nil {
		if err := l.budget.Model(ctx, l.by); err != nil {
			return provider.Message{}, err
		}
	}
	request := l.request(listed)
	request.Room = l.roomForOne()
	if err := l.choose(&request, listed); err != nil {
		return provider.Message{}, err
	}
	if err := l.tooLong(request); err != nil {
		return provider.Message{}, err
	}
	l.beginAnswer(len(listed) > 0)
	if l.debug {
		l.out.send(l.debugPrompt(request))
	}
	draft := newDraft(l.turn, l.journal)
	defer draft.stop()
	words := redactor{mark: l.mark}
	traced, span := trace.Start(ctx, trace.Client, operationModel, l.model.Name())
	answer, err := l.model.Generate(traced, request, func(d provider.Delta) { l.stream(draft, words.pass(d)) })
	endModelSpan(span, l.model, answer, err)
	l.stream(draft, words.rest())
	draft.stop()
	answer.Message = l.mark.redactAnswer(answer.Message)

	said := draft.message()
	l.count(request, answer, said, err != nil)
	if failed, ok := errors.AsType[*provider.Error](err); ok {
		l.failed = failed.Kind
	}
	if err != nil {
		said.Interrupted, said.Tainted = true, l.knows().Tainted()
		if keepErr := l.record(ctx, said); keepErr != nil {
			l.log.Warn("interrupted answer not stored", "turn", l.turn, "error", keepErr)
		}
		return provider.Message{}, err
	}
	if said.Content == "" && answer.Message.Content != "" { // the model does not stream
		l.stream(draft, provider.Delta{Text: answer.Message.Content})
	}
	if l.stop = answer.Stop; l.stop == provider.StopRefusal && strings.TrimSpace(answer.Message.Content) == "" {
		answer.Message.Content += noteRefused
		l.stream(draft, provider.Delta{Refusal: noteRefused})
	}
	l.answers++
	l.release(answer.Message.ToolCalls)
	m := answer.Message
	m.Role, m.Turn, m.At = provider.RoleAssistant, l.turn, said.At
	m.ToolCalls = storable(m.ToolCalls)
	m.Tainted = l.knows().Tainted()
	return m, nil
}

func (l *loop) stream(draft *draft, d provider.Delta) {
	draft.add(d)
	if d.Thinking != "" {
		l.out.send(Event{Type: EventThinking, Content: d.Thinking})
	}
	l.say(d.Text)
	if d.Refusal != "" {
		l.said.WriteString(d.Refusal)
		l.refusal.WriteString(d.Refusal)
		l.out.send(Event{Type: EventChunk, Content: d.Refusal, Refusal: true})
	}
}

// count adds the tokens of an answer. If the provider reports none, it adds an estimate, so that the limit still holds.
func (l *loop) count(r provider.Request, a provider.Answer, said provider.Message, interrupted bool) {
	l.usage.Input += a.Usage.Input
	l.usage.Output += a.Usage.Output
	l.usage.Cached += a.Usage.Cached
	used := a.Usage
	said.ToolCalls = a.Message.ToolCalls
	if used == (provider.Usage{}) {
		used = provider.Usage{Input: estimateFixed(r) + estimateAll(r.Messages), Output: estimate(said)}
	}
	if interrupted { // some models say how much they wrote at the end: a caller that leaves before pays for what came
		used.Output = max(used.Output, estimate(said))
	}
	l.tokens += used.Input + used.Output
	if l.budget != nil {
		l.budget.ModelAnswered(l.by, l.model.Name(), used.Input, used.Output)
	}
}

var foreignName = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// storable returns calls in a form that providers accept back: with unique ids and well-formed names.
func storable(calls []provider.ToolCall) []provider.ToolCall {
	seen := make(map[string]bool, len(calls))
	for i := range calls {
		c := &calls[i]
		if c.ID == "" || seen[c.ID] {
			c.ID = "call_" + strings.ReplaceAll(registry.NewCallID(), "-", "") // OpenAI allows 40 characters
		}
		seen[c.ID] = true
		c.Args = strings.ToValidUTF8(c.Args, "\uFFFD")
		if c.Name = foreignName.ReplaceAllString(c.Name, "_"); c.Name == "" {
			c.Name = "_"
		}
		c.Name = c.Name[:min(len(c.Name), 64)]
	}
	return calls
}

const (
	draftEvery = 250 * time.Millisecond // from one save of a draft to the next, and longer by draftRate
	draftRate  = 256 << 10              // bytes of a draft that are saved in a second: each save has the whole of it
	draftTime  = time.Second            // after which a save is abandoned
)

// draft is an answer while the model writes it. It is saved in the store periodically, so that little is lost if the
// pod dies. A separate goroutine saves it, so that a slow store does not slow down the stream.
type draft struct {
	turn    string
	at      time.Time     // when the model began; with turn, it identifies the message of a draft
	journal *journal      // nil: nothing is saved
	dirty   chan struct{} // capacity 1: there is something to save

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	text     strings.Builder
	thinking strings.Builder
}

// newDraft starts an answer. If j is nil, nothing is saved. The caller must call stop.
func newDraft(turn string, j *journal) *draft {
	ctx, cancel := context.WithCancel(context.Background())
	d := &draft{turn: turn, at: time.Now().UTC(), journal: j, dirty: make(chan struct{}, 1), cancel: cancel}
	if j != nil {
		d.done.Go(func() { d.note(ctx) })
	}
	return d
}

// add appends to the answer. It never waits for the store.
func (d *draft) add(delta provider.Delta) {
	if delta == (provider.Delta{}) {
		return // nothing to save
	}
	d.mu.Lock()
	d.text.WriteString(delta.Text)
	d.text.WriteString(delta.Refusal)
	d.thinking.WriteString(delta.Thinking)
	d.mu.Unlock()
	select {
	case d.dirty <- struct{}{}:
	default:
	}
}

// stop ends the saving. A save in flight is abandoned. If it still arrives, recovery recognizes it by its time.
func (d *draft) stop() {
	d.cancel()
	d.done.Wait()
}

func (d *draft) message() provider.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := provider.Message{Role: provider.RoleAssistant, Content: d.text.String(), Turn: d.turn, At: d.at}
	if d.thinking.Len() > 0 {
		m.Thinking = []provider.Thought{{Text: d.thinking.String()}}
	}
	return m
}

// note saves the answer until ctx ends, at most once per draftEvery. Short answers cause no store writes, and long ones
// to which a model adds little by little not many.
func (d *draft) note(ctx context.Context) {
	pause := time.NewTimer(draftEvery)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-d.dirty:
		case <-ctx.Done():
			return
		}
		raw, _ := json.Marshal(d.message()) // cannot fail: a message is plain data
		saving, cancel := context.WithTimeout(ctx, draftTime)
		// If the save fails, the next one is complete. A lost turn is detected when its lock is renewed.
		_ = d.journal.store.SaveDraft(saving, d.journal.turn, raw)
		cancel()
		pause.Reset(max(draftEvery, time.Duration(len(raw))*time.Second/draftRate))
	}
}

// Complete implements Agent. The turn is like that of Ask, with the same limits, but without a lock and without memory:
// only this turn knows the results of its tool calls. The system prompt comes from the caller only, including the
// system messages among Messages.
//
// A call of one of the caller's own tools ends the turn and is returned. Calls of the session's tools in the same
// answer run first. Their arguments and results are stored for a limited time. They are restored when the conversation
// returns with the results of the returned calls, so no call runs twice. A caller's tool hides a session's tool with
// the same name.
func (e *Engine) Complete(ctx context.Context, c Completion, emit func(Event)) (Reply, []provider.ToolCall, error) {
	out, began := newEmitter(emit), time.Now()
	model, err := e.model(c.Model)
	if err != nil {
		return Reply{}, nil, out.complete("", err)
	}
	leave, err := e.admit(c.Caller)
	if err != nil {
		return Reply{}, nil, out.complete("", err)
	}
	defer leave()
	ctx, cancel := e.within(ctx)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, e.cfg.Limits.Turn, errTurnTime)
	defer stop()
	scope := agent.SessionContext{Key: c.Key, Stateless: true, Caller: c.Caller, Channel: ChannelCompletion,
		Queue: c.Queue}
	scope.Key.Tenant = cmp.Or(scope.Key.Tenant, c.Caller.Tenant)
	kept := continuations{
		db: e.cfg.Store, holder: registry.ContinuationOwner{Tenant: scope.Key.Tenant, User: c.Caller.Scope()},
		ttl: e.cfg.Limits.Continuation, spent: e.newSpending(c.Caller),
		limit: e.cfg.Limits.ContextTokens * bytesPerToken, log: e.cfg.Log,
	}
	if c.Messages, err = kept.restore(ctx, c.Messages); err != nil {
		return Reply{}, nil, out.complete("", failure(ctx, e.cfg.Limits, err))
	}
	l, err := e.newCompletion(c, model, scope, out)
	if err != nil {
		return Reply{}, nil, out.complete("", err)
	}
	l.continuations = kept
	defer l.giveBack()
	info := TurnInfo{Key: scope.Key, Caller: c.Caller, Channel: scope.Channel}
	reply, err := e.carryOut(ctx, info, l, began, l.run)
	l.remember()
	reply.MessageCount = len(c.Messages)
	return reply, l.returned, out.complete(reply.FullResponse, err)
}

func (e *Engine) model(name string) (provider.Model, error) {
	for _, m := range e.cfg.Models {
		if name == "" || m.Name() == name {
			return m, nil
		}
	}
	return nil, &Error{
		Code:    CodeModelNotFound,
		Message: fmt.Sprintf("There is no model %q. Use one of: %s.", name, strings.Join(e.Models(), ", ")),
	}
}

func (e *Engine) newCompletion(
	c Completion, model provider.Model, scope agent.SessionContext, out *emitter,
) (*loop, error) {
	l := &loop{
		limits: e.cfg.Limits, log: e.cfg.Log, model: model, out: out,
		turn: cmp.Or(c.Turn, uuid.NewString()),
		own:  make(map[string]bool, len(c.Tools)), base: provider.Request{
			System: c.System, Tools: c.Tools, MaxTokens: c.MaxTokens, Temperature: c.Temperature, Stop: c.Stop,
			Options: c.Options,
		},
		choice: c.Choice, memory: e.memory, by: c.Caller.Owner(), budget: e.cfg.ModelBudget,
	}
	if c.Choice.Mode == provider.ChoiceNone {
		l.base.Tools = nil
	}
	for _, t := range l.base.Tools {
		l.own[t.Name] = true
	}
	for _, m := range c.Messages {
		if m.Role == provider.RoleSystem {
			l.base.System = strings.TrimPrefix(l.base.System+"\n\n"+m.Content, "\n\n")
			continue
		}
		l.history = append(l.history, m)
	}
	if len(l.history) == 0 && l.base.System == "" {
		return nil, &Error{Code: CodeNoUserMessage, Message: "There are no messages to answer."}
	}
	l.given, l.mark = len(l.history), newMark()
	l.readings, l.readKey = e.readings, e.readings.keyOf(scope.Key.Tenant, c.Caller.Scope(), l.history)
	if l.tools = (noTools{}); c.Choice.Mode != provider.ChoiceNone {
		l.tools = e.open(scope)
	}
	return l, nil
}

const titleLimit = 60 // characters

// titleOf makes a title from the first words of the conversation, because asking the model takes tokens and time.
func titleOf(messages []provider.Message) string {
	first := slices.IndexFunc(messages, isUser)
	if first < 0 {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(textsafe.Clean(messages[first].Content)), "\n")
	title := strings.Join(strings.Fields(line), " ")
	if utf8.RuneCountInString(title) <= titleLimit {
		return title
	}
	runes := []rune(title)[:titleLimit]
	if i := strings.LastIndexByte(string(runes), ' '); i > 0 {
		return string(runes)[:i] + "…"
	}
	return string(runes[:titleLimit-1]) + "…" // the ellipsis is the last character
}

// setTitle sets the title of a conversation without one. If storing it fails, only the title is missing.
func (t *turn) setTitle(ctx context.Context) string {
	title := titleOf(t.loop.history)
	if title == "" {
		return ""
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	if err := t.engine.cfg.Store.SetTitle(ctx, t.loop.journal.turn, title); err != nil {
		t.engine.cfg.Log.Warn("title not stored", "session", t.ask.Key.Session, "error", err)
		return ""
	}
	t.loop.out.send(Event{Type: EventTitle, Title: title})
	return title
}
