package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// step is one answer of a scripted model.
type step func(ctx context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error)

// script is a model that answers as it was told, one step a request.
type script struct {
	name string

	mu       sync.Mutex
	steps    []step
	requests []provider.Request
}

func (s *script) Name() string {
	if s.name == "" {
		return "scripted"
	}
	return s.name
}

func (s *script) Generate(ctx context.Context, r provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	if len(s.steps) == 0 {
		s.mu.Unlock()
		return provider.Answer{}, &provider.Error{Kind: provider.KindRequest, Message: "the script has no more answers"}
	}
	next := s.steps[0]
	if len(s.steps) > 1 || s.name != "forever" {
		s.steps = s.steps[1:]
	}
	s.mu.Unlock()
	return next(ctx, r, emit)
}

func (s *script) add(steps ...step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = append(s.steps, steps...)
}

// asked returns what the model was sent.
func (s *script) asked() []provider.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// plain returns what the model was sent, with the nonce of testMark in place of its own.
func (s *script) plain() []provider.Request {
	requests := s.asked()
	for i := range requests {
		r := &requests[i]
		found := nonceIn.FindStringSubmatch(r.System)
		if found == nil {
			continue
		}
		r.System = strings.ReplaceAll(r.System, found[1], testMark.nonce)
		r.Messages = slices.Clone(r.Messages)
		for j := range r.Messages {
			r.Messages[j].Content = strings.ReplaceAll(r.Messages[j].Content, found[1], testMark.nonce)
		}
	}
	return requests
}

var testMark = mark{nonce: "n0nce"}

// say answers with text, a delta for each piece, and asks for tools.
func say(pieces []string, calls ...provider.ToolCall) step {
	return func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
		for _, p := range pieces {
			emit(provider.Delta{Text: p})
		}
		stop := provider.StopEnd
		if len(calls) > 0 {
			stop = provider.StopToolCalls
		}
		return provider.Answer{
			Message: provider.Message{Role: provider.RoleAssistant, Content: strings.Join(pieces, ""),
				ToolCalls: slices.Clone(calls)},
			Stop: stop, Usage: provider.Usage{Input: 10, Output: 5},
		}, nil
	}
}

func text(s string) step { return say([]string{s}) }

func use(calls ...provider.ToolCall) step { return say(nil, calls...) }

func tool(id, name, args string) provider.ToolCall {
	return provider.ToolCall{ID: id, Name: name, Args: args}
}

// hang says something, closes reached if there is one, and waits for the end.
func hang(said string, reached chan<- struct{}) step {
	return func(ctx context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
		emit(provider.Delta{Text: said})
		if reached != nil {
			close(reached)
		}
		<-ctx.Done()
		return provider.Answer{Message: provider.Message{Role: provider.RoleAssistant, Content: said}}, ctx.Err()
	}
}

// kit is a set of tools. A tool is listed if it is in run.
type kit struct {
	mu    sync.Mutex
	run   map[string]func(context.Context, agent.InvokeRequest) (agent.Outcome, error)
	calls []agent.InvokeRequest
	list  error

	effects map[string]*registry.Effects // of tools, by name
}

func (k *kit) Tools(context.Context) ([]agent.ShownTool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var listed []agent.ShownTool
	for name := range k.run {
		spec := registry.ToolSpec{Name: "my." + name, Parameters: json.RawMessage(`{"type":"object"}`)}
		spec.Effects = k.effects[name]
		listed = append(listed, agent.ShownTool{ModelName: name, Spec: spec, Source: "s"})
	}
	slices.SortFunc(listed, func(a, b agent.ShownTool) int { return strings.Compare(a.ModelName, b.ModelName) })
	return listed, k.list
}

func (k *kit) Invoke(ctx context.Context, r agent.InvokeRequest) (agent.Outcome, error) {
	k.mu.Lock()
	k.calls = append(k.calls, r)
	run := k.run[r.ModelName]
	k.mu.Unlock()
	if run == nil {
		return agent.Outcome{}, registry.Errorf(registry.CodeToolNotFound, "no tool %s", r.ModelName)
	}
	return run(ctx, r)
}

func (k *kit) set(name string, run func(context.Context, agent.InvokeRequest) (agent.Outcome, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.run == nil {
		k.run = make(map[string]func(context.Context, agent.InvokeRequest) (agent.Outcome, error))
	}
	if run == nil {
		delete(k.run, name)
		return
	}
	k.run[name] = run
}

func (k *kit) called() []agent.InvokeRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.calls)
}

// returns is a tool that always says the same.
func returns(output string) func(context.Context, agent.InvokeRequest) (agent.Outcome, error) {
	return func(context.Context, agent.InvokeRequest) (agent.Outcome, error) {
		return agent.Outcome{Result: registry.Result{Success: true, Output: output}}, nil
	}
}

// blockedBy is the error of a call that the loop guard stops.
func blockedBy(message string) error {
	return &registry.Error{Code: registry.CodeHookCancelled, Message: message, Cause: loopguard.ErrBlocked}
}

// rig is an engine with everything around it.
type rig struct {
	t      *testing.T
	model  *script
	tools  *kit
	store  *faulty
	engine *Engine
}

var key = registry.Key{Tenant: "default", Session: "s1"}

func newRig(t *testing.T, limits Limits, steps ...step) *rig {
	t.Helper()
	r := &rig{t: t, model: &script{steps: steps}, tools: &kit{}, store: newFaulty()}
	r.engine = r.pod(limits)
	return r
}

// pod returns one more engine over the same store.
func (r *rig) pod(limits Limits) *Engine {
	e, err := NewEngine(Config{
		Models: []provider.Model{r.model}, Store: r.store, System: "Be kind.", Limits: limits,
		OpenTools: func(agent.SessionContext) Tools { return r.tools },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			r.t.Errorf("close: %v", err)
		}
		if n, turns := len(e.turnQueues.byKey), e.Stats().Turns; n != 0 || turns != 0 {
			r.t.Errorf("%d gates and %d turns are left", n, turns)
		}
	})
	return e
}

// events collects what a turn emits.
type events struct {
	mu  sync.Mutex
	all []Event
}

func (e *events) emit(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

func (e *events) types() []EventType {
	e.mu.Lock()
	defer e.mu.Unlock()
	var types []EventType
	for _, ev := range e.all {
		types = append(types, ev.Type)
	}
	return types
}

func (e *events) of(t EventType) []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []Event
	for _, ev := range e.all {
		if ev.Type == t {
			found = append(found, ev)
		}
	}
	return found
}

func (r *rig) ask(ctx context.Context, content string) (Reply, *events, error) {
	ev := &events{}
	reply, err := r.engine.Ask(ctx, Ask{Key: key, Content: content}, ev.emit)
	return reply, ev, err
}

// must asks and fails the test if the turn does.
func (r *rig) must(content string) (Reply, *events) {
	r.t.Helper()
	reply, ev, err := r.ask(r.t.Context(), content)
	if err != nil {
		r.t.Fatalf("ask: %v", err)
	}
	return reply, ev
}

// history returns what is stored, a line a message.
func (r *rig) history() []string {
	r.t.Helper()
	c, err := r.store.Conversation(context.Background(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	for _, m := range decode(c.Messages, r.engine.cfg.Log) {
		lines = append(lines, line(m))
	}
	return lines
}

func line(m provider.Message) string {
	s := string(m.Role) + ":" + withNotice(m.Content, m.Notice)
	for _, c := range m.ToolCalls {
		s += " [" + c.ID + "]"
	}
	if m.ToolCallID != "" {
		s += " (" + m.ToolCallID + ")"
	}
	if m.Failed {
		s += " failed"
	}
	if m.Interrupted {
		s += " interrupted"
	}
	return s
}

func (r *rig) wantHistory(want ...string) {
	r.t.Helper()
	if got := r.history(); !slices.Equal(got, want) {
		r.t.Errorf("history\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func wantTypes(t *testing.T, ev *events, want ...EventType) {
	t.Helper()
	if got := ev.types(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func wantCode(t *testing.T, err error, ev *events, code string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	if e.Message == "" {
		t.Error("the error has no message")
	}
	if ev != nil {
		last := ev.all[len(ev.all)-1]
		if last.Type != EventError || last.Code != code || last.Message != e.Message {
			t.Errorf("last event %+v, want the error", last)
		}
	}
	return e
}

// bubble runs a test with a clock of its own, in which every goroutine must end.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// free fails the test if the conversation is not free or has a draft.
func (r *rig) free() {
	r.t.Helper()
	c, err := r.store.Conversation(context.Background(), key)
	if err != nil || c.Busy || c.Draft != nil {
		r.t.Errorf("busy %v, draft %s, %v; want free", c.Busy, c.Draft, err)
	}
}

// toolText is a result as plain shows it.
func toolText(name, s string) string {
	return fmt.Sprintf("<tool_output nonce=%q tool=%q>\n%s\n</tool_output nonce=%q>", testMark.nonce, name, s,
		testMark.nonce)
}
