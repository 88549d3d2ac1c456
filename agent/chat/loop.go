package chat

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// loop is the part that all turns share: model, tool calls, model again, until the model asks for no more calls. One
// goroutine owns it. Calls that run side by side report to that goroutine.
type loop struct {
	limits  Limits
	log     *slog.Logger
	model   provider.Model
	tools   Tools
	own     map[string]bool // names of tools the caller runs
	base    provider.Request
	out     *emitter
	journal *journal     // nil: the caller keeps the conversation
	files   agent.Files  // nil: people read descriptions of parts
	key     registry.Key // of the conversation, if the gateway keeps it
	turn    string
	mark    mark
	format  Format
	debug   bool

	leftOut bool // the log says already that some tools are left out

	history  []provider.Message
	origins  *origins  // nil: nothing has been learned yet
	readings *readings // nil: nothing is remembered
	given    int       // how many of history came from a caller; their text is sent as it is

	choice  provider.Choice
	held    *strings.Builder // text that may be no answer; nil: text is streamed
	said    strings.Builder  // all that was streamed
	refusal strings.Builder  // the part of it that says why the model refuses
	calls   []CallReport
	usage   provider.Usage
	tokens  int // what counts against Limits.Tokens
	stop    provider.StopReason

	continuations continuations       // of a completion
	returned      []provider.ToolCall // calls of the caller's own tools: the turn ended with them
}

// run returns when the model has finished, or why it did not. The journal has what was said by then, also if ctx has
// ended.
func (l *loop) run(ctx context.Context) error {
	for n := 1; ; n++ {
		listed, err := l.tools.Tools(ctx)
		if err != nil {
			return fmt.Errorf("list the tools: %w", err)
		}
		answer, err := l.generate(ctx, listed)
		if err != nil {
			return err
		}
		calls := answer.ToolCalls
		if slices.ContainsFunc(calls, func(c provider.ToolCall) bool { return l.own[c.Name] }) {
			return l.returnCalls(ctx, n, answer, listed)
		}
		if err := l.keep(ctx, answer); err != nil || len(calls) == 0 {
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

// keep adds messages to the conversation, but not one that is empty.
func (l *loop) keep(ctx context.Context, messages ...provider.Message) error {
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

// exceeded returns the limit that keeps the calls of the n-th answer from running. A turn that must end runs none of
// them, because the model would not read their results.
func (l *loop) exceeded(n, calls int) *Error {
	fail := func(format string, args ...any) *Error {
		message := fmt.Sprintf(format, args...) + " What was said until then is kept; ask again to go on."
		return &Error{Code: CodeAgent, Message: message}
	}
	switch {
	case n >= l.limits.Iterations:
		return fail("The turn was stopped: it took %d requests to the model, which is the limit of one turn.", n)
	case len(l.calls)+calls > l.limits.ToolCalls:
		return fail("The turn was stopped: it asked for more than %d tool calls, which is the limit of one turn.",
			l.limits.ToolCalls)
	case l.journal != nil && l.journal.over:
		return fail("The turn was stopped: conversations have grown by all that FARHAND_HISTORY_BYTES allows.")
	case l.tokens >= l.limits.Tokens:
		return fail("The turn was stopped: it used %d tokens; the limit of one turn is %d.", l.tokens, l.limits.Tokens)
	default:
		return nil
	}
}

// reply returns the state of the turn.
func (l *loop) reply() Reply {
	return Reply{
		Turn: l.turn, FullResponse: l.said.String(), Refusal: l.refusal.String(), Calls: l.calls,
		Usage: l.usage, Stop: l.stop,
	}
}
