package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/internal/share"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// forever asks for a tool again and again.
func forever(r *rig) {
	r.model.name = "forever"
	r.model.steps = nil
	r.model.add(say([]string{"Again. "}, tool("c", "look", "{}")))
	r.tools.set("look", returns("x"))
}

func TestEachLimitEndsTheTurnWithAWholeTranscript(t *testing.T) {
	for name, c := range map[string]struct {
		limits   Limits
		requests int
		ran      int
		says     string
	}{
		"iterations": {Limits{Iterations: 3}, 3, 2, "3 model requests"},
		"tool calls": {Limits{ToolCalls: 4}, 5, 4, "4 tool calls"},
		"tokens":     {Limits{Tokens: 40}, 3, 2, "45 tokens"},
		"defaults":   {Limits{}, 40, 39, "40 model requests"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, c.limits)
				forever(r)
				reply, ev, err := r.ask(t.Context(), "go")
				if e := wantCode(t, err, ev, CodeAgent); !strings.Contains(e.Message, c.says) {
					t.Errorf("message %q", e.Message)
				}
				if n, ran := len(r.model.asked()), len(r.tools.called()); n != c.requests || ran != c.ran {
					t.Errorf("%d requests and %d calls, want %d and %d", n, ran, c.requests, c.ran)
				}
				h := r.history()
				if len(h) != 1+2*c.requests || h[len(h)-1] != "tool:not run: the turn reached a limit (c) "+
					"failed" {
					t.Errorf("history ends with %q", h[len(h)-1])
				}
				if last := reply.Calls[len(reply.Calls)-1]; last.Status != StatusFailed {
					t.Errorf("last report %+v", last)
				}
				r.free()
			})
		})
	}
}

func TestTokensOfAProviderThatReportsNoneAreEstimated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{Tokens: 1000}, func(_ context.Context, _ provider.Request,
			_ func(provider.Delta)) (provider.Answer, error) {
			return provider.Answer{Message: provider.Message{ToolCalls: []provider.ToolCall{tool("c", "look",
				`{"a":"`+strings.Repeat("x", 8000)+`"}`)}}}, nil
		})
		r.tools.set("look", returns("x"))
		reply, ev, err := r.ask(t.Context(), "go")
		if e := wantCode(t, err, ev, CodeAgent); !strings.Contains(e.Message, "tokens") {
			t.Errorf("message %q", e.Message)
		}
		if reply.Usage != (provider.Usage{}) {
			t.Errorf("usage %+v was made up", reply.Usage)
		}
	})
}

func TestTimeOfATurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{Turn: time.Minute}, hang("I think", nil))
		began := time.Now()
		_, ev, err := r.ask(t.Context(), "go")
		if e := wantCode(t, err, ev, CodeAgent); !strings.Contains(e.Message, "1m0s") {
			t.Errorf("message %q", e.Message)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("took %v", took)
		}
		r.wantHistory("user:go", "assistant:I think interrupted")
		r.free()
	})
}

func TestTimeOfATurnWhileAToolRuns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("c", "look", "{}")))
		r.tools.set("look", func(ctx context.Context, _ agent.InvokeRequest) (agent.Outcome, error) {
			<-ctx.Done()
			return agent.Outcome{}, ctx.Err()
		})
		_, ev, err := r.ask(t.Context(), "go")
		if e := wantCode(t, err, ev, CodeAgent); !strings.Contains(e.Message, "10m0s") {
			t.Errorf("message %q", e.Message)
		}
		r.wantHistory("user:go", "assistant: [c]", "tool:interrupted; it may have run (c) failed")
	})
}

func TestTurnsOfAPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{MaxTurns: 1}, hang("", reached))
		ctx, abort := context.WithCancelCause(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _, _, _ = r.ask(ctx, "one") }()
		<-reached
		_, ev, err := r.ask(t.Context(), "two")
		if e := wantCode(t, err, ev, CodeSessionBusy); !strings.Contains(e.Message, "no capacity") ||
			!errors.Is(e, registry.CodeBusy) {
			t.Errorf("message %q, %v", e.Message, e.Cause)
		}
		if failed := ev.of(EventError); failed[0].RetryAfter <= 0 {
			t.Error("the refusal does not say when to ask again")
		}
		abort(ErrAborted)
		<-ended
	})
}

// A tenant has its share of the turns of a pod, whichever of its users ask, and another tenant finds room.
func TestTurnsOfATenant(t *testing.T) {
	e := newRig(t, Limits{MaxTurns: 10}).engine
	admit := func(tenant, user string) bool {
		leave, err := e.admit(auth.Identity{Tenant: tenant, User: user})
		if err == nil {
			t.Cleanup(leave)
		}
		return err == nil
	}
	other := testkit.Alone(t, "turns", func() error {
		leave, err := e.admit(auth.Identity{Tenant: "b", User: "anna"})
		if err == nil {
			leave()
		}
		return err
	})
	for i := range 6 {
		if admit("a", fmt.Sprint(i)) != (i < 5) {
			t.Errorf("turn %d of a tenant", i)
		}
	}
	other.Crowded()
}

// The memory of long conversations whose turns run at once is a tenant's share, too: turns are few, and conversations
// may have megabytes.
func TestLongConversationsOfATenant(t *testing.T) {
	e := newRig(t, Limits{}).engine
	c := registry.Conversation{Messages: []json.RawMessage{make([]byte, registry.MaxHistoryBytes)}}
	hold := func(tenant string) bool {
		release, err := e.reserve(auth.Identity{Tenant: tenant}, c, "go on")
		if err == nil {
			t.Cleanup(release)
		}
		return err == nil
	}
	other := testkit.Alone(t, "conversations of running turns (bytes)", func() error {
		release, err := e.reserve(auth.Identity{Tenant: "b"}, c, "go on")
		if err == nil {
			release()
		}
		return err
	})
	n := 0
	for hold("a") {
		n++
	}
	if bytes := n * turnCopies * registry.MaxHistoryBytes; n == 0 || bytes > maxTurnBytes/2 {
		t.Errorf("a tenant holds %d conversations, %d bytes", n, bytes)
	}
	other.Crowded()
}

// fakeBudget is a Budget. It counts what is spent and not given back.
type fakeBudget struct {
	refuse error
	over   bool
	spent  int
}

func (b *fakeBudget) Begin(_ context.Context, _ share.Owner, bytes int) error {
	if b.refuse == nil {
		b.spent += bytes
	}
	return b.refuse
}

func (b *fakeBudget) Add(_ context.Context, _ share.Owner, bytes int) bool {
	b.spent += bytes
	return b.over
}

func (b *fakeBudget) GiveBack(_ share.Owner, bytes int) { b.spent -= bytes }

// A turn that the budget refuses stores nothing. One that runs counts what it stored, and ends after the step at which
// nothing is left. What a turn did not store is given back.
func TestTurnsSpendABudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, say([]string{strings.Repeat("x", 10_000)}), use(tool("c", "look", "{}")))
		budget := &fakeBudget{refuse: &registry.Error{
			Code: registry.CodeRateLimited, Message: "grown too much", RetryAfter: time.Minute,
		}}
		r.engine.cfg.Budget = budget
		_, ev, err := r.ask(t.Context(), "one")
		if e := wantCode(t, err, ev, CodeSessionBusy); e.Message != "grown too much" {
			t.Errorf("message %q", e.Message)
		}
		if failed := ev.of(EventError); failed[0].RetryAfter != time.Minute {
			t.Errorf("asked to come again in %v", failed[0].RetryAfter)
		}
		r.wantHistory()
		budget.refuse = nil
		said := strings.Repeat("y", 5000)
		if _, _, err := r.ask(t.Context(), said); err != nil {
			t.Fatal(err)
		}
		if most := turnCost + 16_000; budget.spent < most-1000 || budget.spent > most {
			t.Errorf("%d bytes count, at most %d", budget.spent, most)
		}
		budget.over = true
		_, ev, err = r.ask(t.Context(), "look")
		if e := wantCode(t, err, ev, CodeAgent); !strings.Contains(e.Message, "FARHAND_HISTORY_BYTES") {
			t.Errorf("message %q", e.Message)
		}
		before := budget.spent
		_, err = r.engine.Ask(t.Context(), Ask{Key: registry.Key{Tenant: "t", Session: "empty"}, Regenerate: true}, nil)
		if err == nil || budget.spent != before+turnCost {
			t.Errorf("a turn that stored nothing: %v, it spent %d bytes", err, budget.spent-before)
		}
	})
}
