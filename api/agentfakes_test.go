package api_test

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/chat"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/api"
	"github.com/farhand/farhand/registry"
)

// scripted is an agent that does what its test says, and remembers what it was asked.
type scripted struct {
	ask         func(context.Context, chat.Ask, func(chat.Event)) (chat.Reply, error)
	complete    func(context.Context, chat.Completion, func(chat.Event)) (chat.Reply, []provider.ToolCall, error)
	transcripts map[string]chat.Transcript // by session
	failing     error                      // of what asks the store
	models      []string                   // nil: two of them

	asked     chan chat.Ask
	completed chan chat.Completion
}

// talking returns a fleet of one pod with a session s1 whose agent is a.
func talking(t *testing.T, a *scripted) *fleet {
	t.Helper()
	f := newFleet(t, setup{change: a.join})
	f.connect(0, session("s1"), echo, tools("t")...)
	return f
}

// join makes a the agent of a pod.
func (a *scripted) join(c *api.Config) {
	a.asked, a.completed = make(chan chat.Ask, 64), make(chan chat.Completion, 64)
	if a.models == nil {
		a.models = []string{"swift", "maker/large"}
	}
	c.Agent, c.MaxTurn = a, time.Minute
}

func (a *scripted) Ask(ctx context.Context, ask chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
	a.asked <- ask
	return a.ask(ctx, ask, emit)
}

func (a *scripted) Complete(ctx context.Context, c chat.Completion, emit func(chat.Event)) (chat.Reply,
	[]provider.ToolCall, error) {
	a.completed <- c
	return a.complete(ctx, c, emit)
}

func (a *scripted) Transcript(_ context.Context, key registry.Key) (chat.Transcript, error) {
	return a.transcripts[key.Session], a.failing
}

func (a *scripted) CountMessages(_ context.Context, key registry.Key) (int, error) {
	return len(a.transcripts[key.Session].Messages), a.failing
}

func (a *scripted) Models() []string { return a.models }

// fails is a turn that ends with a failure of the agent after the given events.
func fails(e *chat.Error, before ...chat.Event) *scripted {
	return &scripted{
		ask: func(_ context.Context, _ chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
			for _, b := range before {
				emit(b)
			}
			emit(chat.Event{Type: chat.EventError, Code: e.Code, Message: e.Message})
			return chat.Reply{}, e
		},
		complete: func(_ context.Context, _ chat.Completion, emit func(chat.Event)) (chat.Reply, []provider.ToolCall,
			error) {
			for _, b := range before {
				emit(b)
			}
			emit(chat.Event{Type: chat.EventError, Code: e.Code, Message: e.Message})
			return chat.Reply{}, nil, e
		},
	}
}

// endless is a turn that says something and then goes on until it is stopped, and how to learn that it was.
func endless(say bool) (a *scripted, stopped chan error) {
	stopped = make(chan error, 1)
	wait := func(ctx context.Context, emit func(chat.Event)) error {
		if say {
			emit(chat.Event{Type: chat.EventChunk, Content: "well"})
		}
		select {
		case <-ctx.Done():
		case <-time.After(testTimeout):
		}
		stopped <- ctx.Err()
		emit(chat.Event{Type: chat.EventError, Code: chat.CodeAgent, Message: "stopped"})
		return &chat.Error{Code: chat.CodeAgent, Message: "stopped", Cause: ctx.Err()}
	}
	return &scripted{
		ask: func(ctx context.Context, _ chat.Ask, emit func(chat.Event)) (chat.Reply, error) {
			return chat.Reply{}, wait(ctx, emit)
		},
		complete: func(ctx context.Context, _ chat.Completion, emit func(chat.Event)) (chat.Reply,
			[]provider.ToolCall, error) {
			return chat.Reply{}, nil, wait(ctx, emit)
		},
	}, stopped
}

var madeUp = regexp.MustCompile(`"created":[1-9]\d*|chatcmpl-[0-9a-f-]{36}`)

var comments = regexp.MustCompile(`(?m)^:\n\n`)

// golden compares a body with what it must be. Moments and ids that are made up are written as 0 and ID, and signs of
// life do not count.
func golden(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	got = madeUp.ReplaceAllFunc(comments.ReplaceAll(got, nil), func(m []byte) []byte {
		if bytes.HasPrefix(m, []byte("chatcmpl-")) {
			return []byte("chatcmpl-ID")
		}
		return []byte(`"created":0`)
	})
	if g := string(bytes.TrimRight(got, "\n")); g != want {
		t.Errorf("%s:\ngot  %s\nwant %s", what, g, want)
	}
}

// failure is an error in OpenAI's format as a client reads it.
type failure struct {
	Error struct{ Message, Type, Param, Code string }
}
