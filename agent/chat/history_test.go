package chat

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// checkWellFormed fails the test unless messages can be sent to any model.
func checkWellFormed(t *testing.T, messages []provider.Message) {
	t.Helper()
	if len(messages) == 0 || messages[0].Role != provider.RoleUser {
		t.Fatalf("a request begins with %+v", messages[:min(1, len(messages))])
	}
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == provider.RoleTool {
			t.Fatalf("message %d is a result without its call: %+v", i, m)
		}
		if m.Role == provider.RoleAssistant && m.Content == "" && len(m.ToolCalls) == 0 {
			t.Fatalf("message %d says nothing", i)
		}
		for _, c := range m.ToolCalls {
			if i++; i >= len(messages) || messages[i].ToolCallID != c.ID || messages[i].Role != provider.RoleTool {
				t.Fatalf("the call %s has no result", c.ID)
			}
		}
	}
}

func user(s string) provider.Message { return provider.Message{Role: provider.RoleUser, Content: s} }

func assistant(s string, calls ...provider.ToolCall) provider.Message {
	return provider.Message{Role: provider.RoleAssistant, Content: s, ToolCalls: calls}
}

// TestDraftOfAKilledPod finds what a pod that died was saying.
func TestDraftOfAKilledPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		draft := assistant("I was just say")
		draft.Thinking = []provider.Thought{{Text: "unsigned"}}
		r.store.put(key, draft, user("hi"))
		tr, err := r.engine.Transcript(t.Context(), key)
		if err != nil || !tr.Busy || len(tr.Messages) != 2 || tr.Messages[1].Interrupted {
			t.Errorf("while its lease runs: %+v, %v", tr, err)
		}
		time.Sleep(leaseTime)
		if tr, err = r.engine.Transcript(t.Context(), key); err != nil || tr.Busy || !tr.Messages[1].Interrupted {
			t.Errorf("after its lease: %+v, %v", tr, err)
		}
		r.must("go on")
		r.wantHistory("user:hi", "assistant:I was just say interrupted", "user:go on", "assistant:ok")
		if m := r.model.asked()[0].Messages; len(m) != 3 || m[1].Thinking != nil {
			t.Errorf("sent %+v", m)
		}
	})
}

func TestCallsOfAKilledPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		r.store.put(key, nil, user("hi"), assistant("", tool("a", "look", "{}"), tool("b", "look", "{}")),
			provider.Message{Role: provider.RoleTool, ToolCallID: "a", Content: "x"})
		time.Sleep(leaseTime)
		if tr, err := r.engine.Transcript(t.Context(), key); err != nil || len(tr.Messages) != 4 {
			t.Errorf("%+v, %v", tr, err)
		}
		r.must("go on")
		r.wantHistory("user:hi", "assistant: [a] [b]", "tool:x (a)",
			"tool:interrupted; it may have run (b) failed", "user:go on", "assistant:ok")
		checkWellFormed(t, r.model.asked()[0].Messages)
	})
}

// TestNoteThatCameLate has a draft reach the store after the message it is a draft of.
func TestNoteThatCameLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		said := assistant("I was just saying it.")
		said.Turn, said.At = "t1", time.Now().UTC()
		draft := said
		draft.Content = "I was just"
		r.store.put(key, draft, user("hi"), said)
		time.Sleep(leaseTime)
		r.must("go on")
		r.wantHistory("user:hi", "assistant:I was just saying it.", "user:go on", "assistant:ok")
	})
}

func TestRegenerateAfterAKilledPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		r.store.put(key, assistant("half"), user("hi"), assistant("", tool("a", "look", "{}")))
		time.Sleep(leaseTime)
		if _, err := r.engine.Ask(t.Context(), Ask{Key: key, Regenerate: true}, nil); err != nil {
			t.Fatal(err)
		}
		r.wantHistory("user:hi", "assistant:ok")
		r.free()
	})
}

func TestStoredMessageNobodyUnderstands(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"), text("again"))
		r.store.put(key, nil, user("hi"), 42, assistant("yes"))
		time.Sleep(leaseTime)
		r.must("go on")
		if n := len(r.model.asked()[0].Messages); n != 3 {
			t.Errorf("%d messages sent, want what is understood", n)
		}
		if reply, err := r.engine.Ask(t.Context(), Ask{Key: key, Regenerate: true}, nil); err != nil ||
			reply.MessageCount != 5 {
			t.Errorf("%+v, %v", reply, err)
		}
	})
}

// streamFor streams a letter every 10 ms.
func streamFor(d time.Duration) step {
	return func(ctx context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
		for range d / (10 * time.Millisecond) {
			time.Sleep(10 * time.Millisecond)
			emit(provider.Delta{Text: "x"})
		}
		return provider.Answer{Message: provider.Message{Content: strings.Repeat("x", int(d/(10*time.Millisecond)))}},
			ctx.Err()
	}
}

func TestDraftsAreSavedByTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, streamFor(200*time.Millisecond), streamFor(10*time.Second))
		if r.must("short"); r.store.saves != 0 {
			t.Errorf("%d drafts of a short answer", r.store.saves)
		}
		if r.must("long"); r.store.saves < 35 || r.store.saves > 40 {
			t.Errorf("%d drafts in 10 s, want one in 250 ms", r.store.saves)
		}
		r.free()
	})
}

// TestLastWordsBeforeAPauseAreNoted has the model stall: what was said must be in the draft though nothing follows.
func TestLastWordsBeforeAPauseAreNoted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, func(ctx context.Context, _ provider.Request,
			emit func(provider.Delta)) (provider.Answer, error) {
			emit(provider.Delta{Text: "so"})
			time.Sleep(260 * time.Millisecond)
			emit(provider.Delta{Text: " far"})
			<-ctx.Done()
			return provider.Answer{}, ctx.Err()
		})
		a := r.start(r.engine, "go")
		time.Sleep(time.Second)
		c, err := r.store.Conversation(t.Context(), key)
		var m provider.Message
		if err != nil || json.Unmarshal(c.Draft, &m) != nil || m.Content != "so far" {
			t.Errorf("draft %s, %v", c.Draft, err)
		}
		a.abort(ErrAborted)
		a.wantAborted(t)
	})
}

func TestSlowDraftsDoNotSlowTokens(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, streamFor(4*time.Second))
		hung := 0
		r.store.setFault(func(ctx context.Context, op string) error {
			if op == "draft" {
				hung++
				<-ctx.Done()
				return registry.StoreUnavailable(op, ctx.Err())
			}
			return nil
		})
		began := time.Now()
		r.must("go")
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %v", took)
		}
		if hung < 2 {
			t.Errorf("%d drafts tried: one that hangs must be dropped", hung)
		}
		r.wantHistory("user:go", "assistant:"+strings.Repeat("x", 400))
	})
}

// TestAnswerIsStoredAfterTheLastNote has a note under way when the answer ends, complete or not: it must be over before
// the answer is stored, or it could be stored after it.
func TestAnswerIsStoredAfterTheLastNote(t *testing.T) {
	for _, fails := range []error{nil, &provider.Error{Kind: provider.KindBroken, Message: "it broke"}} {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{}, func(ctx context.Context, q provider.Request,
				emit func(provider.Delta)) (provider.Answer, error) {
				answer, _ := streamFor(300*time.Millisecond)(ctx, q, emit)
				return answer, fails
			})
			var notes, under atomic.Int32
			r.store.setFault(func(ctx context.Context, op string) error {
				if op == "draft" {
					notes.Add(1)
					under.Add(1)
					<-ctx.Done()
					time.Sleep(time.Millisecond)
					under.Add(-1)
				}
				if n := under.Load(); op == "append" && n != 0 {
					t.Error("the answer was stored while a note was under way")
				}
				return nil
			})
			if _, _, err := r.ask(t.Context(), "go"); (err == nil) != (fails == nil) || notes.Load() != 1 {
				t.Errorf("%d notes, %v", notes.Load(), err)
			}
		})
	}
}

func TestNothingFollowsTheLastEvent(t *testing.T) {
	ev := &events{}
	out := newEmitter(ev.emit)
	_ = out.complete("all", nil)
	out.send(Event{Type: EventChunk})
	_ = out.complete("", ErrAborted)
	wantTypes(t, ev, EventChunkReset, EventDone)
}
