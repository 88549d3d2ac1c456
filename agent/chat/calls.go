package chat

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/agent/chat/provenance"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/strictjson"
	"github.com/farhand/farhand/registry"
	"github.com/farhand/farhand/registry/textsafe"
)

type call struct {
	asked   provider.ToolCall
	id      string        // the gateway's, as in /api/calls
	name    string        // the tool's name at its source
	args    registry.JSON // none: the model's text is not a JSON object
	problem string        // why there are no args
	reaches string        // identifies a call that reaches people, with its arguments; empty: it reaches none
	twice   bool          // the same answer has this call before

	shown   agent.ShownTool // zero: the name is not listed
	listed  []agent.ShownTool
	origins *provenance.Conversation

	text     string             // the result, readable
	parts    []registry.Part    // as people get them: without data
	pictures []provider.Picture // as the model sees them
	notice   string             // the gateway's note on the result
	failed   bool
	blocked  bool   // by the loop guard
	ran      bool   // or may have run
	queued   string // the call that waits for its device; empty: it has ended

	source   string // of text, as in provider.Message
	approved bool   // a person approved it
	suspects []provider.Suspect
}

// prepare makes the calls of an answer. A name that is not listed is still called, so that the call is recorded.
func (l *loop) prepare(asked []provider.ToolCall, listed []agent.ShownTool) []*call {
	byName := make(map[string]agent.ShownTool, len(listed))
	for _, t := range listed {
		byName[t.ModelName] = t
	}
	origins := l.knows().Conversation
	calls := make([]*call, len(asked))
	for i, a := range asked {
		c := &call{asked: a, id: registry.NewCallID(), shown: byName[a.Name], listed: listed, origins: origins}
		c.name = cmp.Or(c.shown.Spec.Name, a.Name)
		c.args, c.problem = parseArgs(a.Args)
		c.reaches = c.reachesPeople()
		c.twice = c.reaches != "" &&
			slices.ContainsFunc(calls[:i], func(other *call) bool { return other.reaches == c.reaches })
		calls[i] = c
	}
	return calls
}

// reachesPeople returns what identifies a call that reaches people: its tool and its arguments; empty: it reaches none.
func (c *call) reachesPeople() string {
	if !c.shown.Spec.Effects.Is(registry.ClassPeople) || c.args.IsZero() {
		return ""
	}
	args, err := strictjson.Canonical(c.args.Raw())
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(args)
	return c.asked.Name + " " + string(sum[:])
}

// noteTwice is the result of a call that reaches people and stands twice in one answer.
const noteTwice = "not run: this answer has the same call before, and it reaches people. If they should get it " +
	"twice, call it again; a person is then asked"

// definitions returns what other devices and MCP servers say of their tools.
func (c *call) definitions() string {
	var text strings.Builder
	for _, t := range c.listed {
		if t.Source != registry.SourceLocal && t.Source != c.shown.Source {
			text.WriteString(t.Spec.Description + "\n" + provenance.Strings(t.Spec.Parameters))
		}
	}
	return text.String()
}

// parseArgs returns arguments as JSON. Empty text means {}, because models leave it empty for tools without parameters.
func parseArgs(text string) (args registry.JSON, problem string) {
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	args, err := registry.ParseJSON([]byte(text))
	if err == nil && args.IsObject() {
		return args, ""
	}
	return registry.JSON{}, argsProblem(text, err)
}

// argsProblem returns what is wrong with the arguments, for the model. It prefers the message of encoding/json.
func argsProblem(text string, otherwise error) string {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return err.Error()
	}
	if object == nil {
		return "it is null"
	}
	return otherwise.Error()
}

// callAll runs the calls of one answer, up to Limits.ParallelCalls at a time, and keeps their results in order. It
// fails when ctx ends, when the loop guard ends the turn, or when the results cannot be stored.
func (l *loop) callAll(ctx context.Context, asked []provider.ToolCall, listed []agent.ShownTool) error {
	calls := l.prepare(asked, listed)
	for i, c := range calls {
		status := StatusExecuting
		if i >= l.limits.ParallelCalls || c.args.IsZero() {
			status = StatusPending
		}
		l.announce(c, status)
	}
	slots := make(chan struct{}, l.limits.ParallelCalls)
	var running sync.WaitGroup
	for i, c := range calls {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil { // select picks at random if both are ready
			c.fail(noteNotRun)
			l.finished(c)
			continue
		}
		if i >= l.limits.ParallelCalls && !c.args.IsZero() { // it was announced as pending
			l.announce(c, StatusExecuting)
		}
		running.Go(func() {
			defer func() { <-slots }()
			l.call(ctx, c)
			l.finished(c)
		})
	}
	running.Wait()
	for _, c := range calls {
		if c.ran && c.reaches != "" {
			l.reached = append(l.reached, c.reaches)
		}
	}
	if err := l.storeResults(ctx, calls); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, c := range calls {
		if c.blocked {
			return &Error{Code: CodeAgent, Message: fmt.Sprintf(
				"The turn was stopped: it called %s repeatedly without progress. %s", c.name, c.said())}
		}
	}
	return nil
}

// decline answers calls that do not run because the turn ends. It returns why.
func (l *loop) decline(ctx context.Context, asked []provider.ToolCall, listed []agent.ShownTool, why *Error) error {
	calls := l.prepare(asked, listed)
	for _, c := range calls {
		l.announce(c, StatusPending)
		c.fail("not run: the turn reached a limit")
		l.finished(c)
	}
	if err := l.storeResults(ctx, calls); err != nil {
		return err
	}
	return why
}

// call runs one call.
func (l *loop) call(ctx context.Context, c *call) {
	if c.args.IsZero() {
		c.fail(readable("The call was not made: its arguments are not a JSON object ("+c.problem+"). "+
			"Correct them and call again.",
			l.limits.MaxResult))
		return
	}
	if c.twice {
		c.fail(noteTwice)
		return
	}
	from := &agent.Provenance{Conversation: c.origins, Tool: c.asked.Name, Definitions: c.definitions}
	outcome, err := l.invoke(ctx, agent.InvokeRequest{
		CallID: c.id, ModelName: c.asked.Name, Args: c.args, Turn: l.turn, Provenance: from,
		OnApproval: l.askPerson, Repeats: slices.Contains(l.reached, c.reaches),
	})
	c.ran = err == nil || registry.AsError(err).Dispatched != registry.DispatchedNo
	c.approved, c.suspects = from.Approved && err == nil, suspectsOf(from)
	c.blocked = errors.Is(err, loopguard.ErrBlocked)
	switch {
	case err == nil && outcome.Async:
		c.notice, c.source, c.queued = waitingText(outcome, l.journal != nil), provider.SourceGateway, outcome.CallID
	case err == nil:
		c.failed = !outcome.Result.Success
		c.text = readable(textsafe.WithoutData(outcome.Result.Output), l.limits.MaxResult)
		if remark := outcome.Result.Remark(); remark != "" {
			c.text += "\n" + readable(remark, l.limits.MaxResult)
		}
		c.notice = readable(outcome.Result.Notice, l.limits.MaxResult)
		c.pictures, c.parts = picturesOf(outcome.Result.Parts), l.linked(ctx, c, outcome.Result.Parts)
		c.source = sourceOf(c.shown, nil)
	case ctx.Err() != nil:
		c.fail(noteUnknown)
	case c.blocked: // no tool has run
		c.failed, c.notice = true, readable(explain(registry.AsError(err)), l.limits.MaxResult)
		c.source = provider.SourceGateway
	default:
		e := registry.AsError(err)
		c.fail(readable(explain(e), l.limits.MaxResult))
		c.notice, c.source = readable(e.Notice, l.limits.MaxResult), sourceOf(c.shown, e)
	}
}

// askPerson sends the event that the turn waits for a person's approval, or what the person decided.
func (l *loop) askPerson(a registry.Approval) {
	e := Event{Type: EventApprovalRequest, ID: a.CallID, Name: a.Tool, Approval: &a}
	if a.Final() {
		e.Type = EventApprovalDecided
	}
	l.out.send(e)
}

// invoke calls a tool and turns its panic into an error: the model reads of a failure and the process continues.
func (l *loop) invoke(ctx context.Context, r agent.InvokeRequest) (out agent.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("panic in a tool",
				"tool", r.ModelName, "call", r.CallID, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("tool %s panicked: %v", r.ModelName, p)
		}
	}()
	return l.tools.Invoke(ctx, r)
}

// fail sets the gateway's text in place of a result.
func (c *call) fail(text string) { c.text, c.failed, c.source = text, true, provider.SourceGateway }

func (c *call) said() string { return withNotice(c.text, c.notice) }

func (c *call) status() Status {
	if c.failed {
		return StatusFailed
	}
	return StatusCompleted
}

// announce sends the event of a call: executing if it starts immediately, else pending, and again when it starts.
func (l *loop) announce(c *call, status Status) {
	l.out.send(Event{Type: EventToolCall, ID: c.id, Name: c.name, Args: l.shownArgs(c), Status: status})
}

func (l *loop) finished(c *call) {
	l.out.send(Event{
		Type: EventToolResult, ID: c.id, Name: c.name, Output: show(c.said(), l.format), Status: c.status(),
		Parts: c.parts,
	})
}

// shownArgs returns the arguments as JSON. Text that is not an object is shown as a string.
func (l *loop) shownArgs(c *call) json.RawMessage {
	if !c.args.IsZero() {
		return c.args.Raw()
	}
	quoted, _ := json.Marshal(readable(c.asked.Args, l.limits.MaxResult)) // cannot fail
	return quoted
}

func (l *loop) storeResults(ctx context.Context, calls []*call) error {
	results := make([]provider.Message, len(calls))
	for i, c := range calls {
		results[i] = toolMessage(c.asked, c.text, c.failed, l.turn)
		m := &results[i]
		m.Notice, m.Source, m.Approved, m.Suspects = c.notice, c.source, c.approved, c.suspects
		m.Tainted, m.Queued = m.Foreign(), c.queued
		m.Attachments, m.Pictures = c.parts, c.pictures
		l.calls = append(l.calls, CallReport{
			ID: c.id, Name: c.name, Args: l.shownArgs(c), Status: c.status(), Output: show(c.said(), l.format),
			Parts: m.Attachments,
		})
	}
	err := l.record(ctx, results...)
	l.forgetPictures()
	return err
}

const noteRefused = "The model declined to answer."

// choose sets in a request whether the model must call tools. A choice that demands a tool of the gateway applies to
// the first answer only, else the turn would not end. One that demands any tool applies until a caller's tool is
// called.
func (l *loop) choose(r *provider.Request, listed []agent.ShownTool) error {
	switch l.choice.Mode {
	case provider.ChoiceRequired:
		if len(r.Tools) == 0 {
			return badRequest(choiceParam, "No tools are available. Connect a device, or send tools with the request.")
		}
		if len(l.own) > 0 || len(l.calls) == 0 {
			r.Choice = l.choice
		}
	case provider.ChoiceTool:
		if !slices.ContainsFunc(r.Tools, func(t provider.Tool) bool { return t.Name == l.choice.Name }) {
			if len(l.calls) > 0 { // it was called earlier
				return nil
			}
			return badRequest(choiceParam, "There is no tool %q at the moment.", l.choice.Name)
		}
		if l.own[l.choice.Name] || len(l.calls) == 0 {
			r.Choice = l.choice
		}
	}
	return nil
}

const choiceParam = "tool_choice"

func badRequest(param, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	return &Error{Code: CodeProvider, Message: message, Cause: &provider.Error{
		Kind: provider.KindRequest, Message: message, Param: param, Cause: registry.CodeInvalidRequest,
	}}
}

// beginAnswer prepares for the text of an answer. An answer that must be JSON is a single text, without the text next
// to calls of the gateway's tools. So while there are such tools, text is buffered until the answer has no calls.
func (l *loop) beginAnswer(tools bool) {
	l.buffered = nil
	if l.base.Options.Format != nil && tools {
		l.buffered = new(strings.Builder)
	}
}

// say streams a piece of an answer, or buffers it.
func (l *loop) say(text string) {
	switch {
	case text == "":
	case l.buffered != nil:
		l.buffered.WriteString(text)
	default:
		l.said.WriteString(text)
		l.out.send(Event{Type: EventChunk, Content: text})
	}
}

// release streams the text that was buffered, if it is the answer.
func (l *loop) release(calls []provider.ToolCall) {
	if l.buffered == nil {
		return
	}
	text := l.buffered.String()
	l.buffered = nil
	if len(calls) == 0 || slices.ContainsFunc(calls, func(c provider.ToolCall) bool { return l.own[c.Name] }) {
		l.say(text)
	}
}

// Tools are the tools that one turn may call. They are safe for concurrent use. *agent.ToolSet is one.
type Tools interface {
	// Tools returns the tools that can be called now. The turn calls it before each request to the model, because tools
	// come and go during a conversation. Each ModelName is unique.
	Tools(ctx context.Context) ([]agent.ShownTool, error)

	// Invoke runs a tool and returns when it has ended, or soon after ctx has. An unknown or no longer listed name
	// fails like any other call, so that the call is counted and recorded. The error is an *registry.Error.
	Invoke(ctx context.Context, r agent.InvokeRequest) (agent.Outcome, error)
}

var _ Tools = (*agent.ToolSet)(nil)

// The channels of the contexts for which tools are opened.
const (
	ChannelChat       = "chat"       // a conversation that the gateway keeps
	ChannelCompletion = "completion" // a conversation that its caller keeps
)

// noTools is the empty set of tools, for turns without tools.
type noTools struct{}

func (noTools) Tools(context.Context) ([]agent.ShownTool, error) { return nil, nil }

func (noTools) Invoke(_ context.Context, r agent.InvokeRequest) (agent.Outcome, error) {
	err := registry.Errorf(registry.CodeToolNotFound, "There is no tool %q here.", r.ModelName)
	return agent.Outcome{}, err.With(registry.DispatchedNo)
}
