package chat

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/registry"
)

// asking is a turn under way.
type asking struct {
	ev    *events
	abort context.CancelCauseFunc
	ended chan struct{}
	err   error
}

func (r *rig) start(e *Engine, content string) *asking {
	ctx, abort := context.WithCancelCause(context.Background())
	a := &asking{ev: &events{}, abort: abort, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		_, a.err = e.Ask(ctx, Ask{Key: key, Content: content}, a.ev.emit)
	}()
	return a
}

func (a *asking) wantAborted(t *testing.T) {
	t.Helper()
	<-a.ended
	if types := a.ev.types(); !errors.Is(a.err, ErrAborted) || types[len(types)-1] != EventAborted {
		t.Errorf("%v, events %v; want aborted", a.err, types)
	}
}

// endings are the ways a turn is ended from outside.
var endings = map[string]struct {
	end  func(r *rig, a *asking)
	says string // empty: aborted
}{
	"aborted":     {func(_ *rig, a *asking) { a.abort(ErrAborted) }, ""},
	"caller gone": {func(_ *rig, a *asking) { a.abort(context.Canceled) }, "the caller disconnected"},
	"drained": {func(r *rig, _ *asking) {
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		if err := r.engine.Close(ctx); err != nil || ctx.Err() != nil {
			r.t.Errorf("close: %v, %v", err, ctx.Err())
		}
	}, "pod is stopping"},
}

func (a *asking) wantEnded(t *testing.T, says string) {
	t.Helper()
	if says == "" {
		a.wantAborted(t)
		return
	}
	<-a.ended
	if e := wantCode(t, a.err, a.ev, CodeAgent); !strings.Contains(e.Message, says) {
		t.Errorf("message %q", e.Message)
	}
}

func TestEndedWhileTheModelSpeaks(t *testing.T) {
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				reached := make(chan struct{})
				r := newRig(t, Limits{}, hang("The answer", reached), text("again"))
				a := r.start(r.engine, "go")
				<-reached
				c.end(r, a)
				a.wantEnded(t, c.says)
				r.wantHistory("user:go", "assistant:The answer interrupted")
				r.free()
				next := r.start(r.pod(Limits{}), "more")
				if <-next.ended; next.err != nil {
					t.Error(next.err)
				}
			})
		})
	}
}

func TestEndedWhileToolsRun(t *testing.T) {
	for name, c := range endings {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, Limits{ParallelCalls: 2},
					use(tool("a", "fast", "{}"), tool("b", "slow", "{}"), tool("c", "slow", "{}"),
						tool("d", "fast", "{}")))
				reached := make(chan struct{}, 2)
				var cancelled atomic.Int32
				r.tools.set("fast", returns("x"))
				r.tools.set("slow", func(ctx context.Context, _ agent.InvokeRequest) (agent.Outcome, error) {
					reached <- struct{}{}
					<-ctx.Done()
					if cancelled.Add(1) == 1 { // this one's answer was on its way
						return agent.Outcome{Result: registry.Result{Success: true, Output: "late"}}, nil
					}
					return agent.Outcome{}, registry.Errorf(registry.CodeCancelled, "cancelled")
				})
				a := r.start(r.engine, "go")
				<-reached
				<-reached
				c.end(r, a)
				a.wantEnded(t, c.says)
				if n := cancelled.Load(); n != 2 {
					t.Errorf("%d calls were cancelled, want 2", n)
				}
				h := r.history()
				if h[2] != "tool:x (a)" || h[5] != "tool:interrupted; it did not run (d) failed" {
					t.Errorf("history %q", h)
				}
				if both := h[3] + h[4]; !strings.Contains(both, "tool:late") ||
					!strings.Contains(both, "tool:interrupted; it may have run") {
					t.Errorf("history %q", h)
				}
				if got := len(a.ev.of(EventToolResult)); got != 4 {
					t.Errorf("%d of 4 calls ended for people", got)
				}
				r.free()
			})
		})
	}
}

func TestEndedWhileWaiting(t *testing.T) {
	for name, c := range endings {
		for _, elsewhere := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					reached := make(chan struct{})
					r := newRig(t, Limits{}, hang("", reached))
					holder := r.engine
					if elsewhere {
						holder = r.pod(Limits{})
					}
					first := r.start(holder, "first")
					<-reached
					a := r.start(r.engine, "second")
					synctest.Wait()
					c.end(r, a)
					<-a.ended
					if c.says != "pod is stopping" {
						a.wantEnded(t, c.says)
					} else if e := wantCode(t, a.err, a.ev, CodeAgent); !errors.Is(e, registry.CodeDraining) {
						t.Errorf("%v, want draining", e)
					}
					first.abort(ErrAborted)
					<-first.ended
					r.wantHistory("user:first")
					r.free()
				})
			})
		}
	}
}

func TestCloseLetsTurnsEndWhileThereIsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, use(tool("c", "slow", "{}")), text("done"))
		r.tools.set("slow", func(ctx context.Context, _ agent.InvokeRequest) (agent.Outcome, error) {
			time.Sleep(6 * time.Second)
			return agent.Outcome{Result: registry.Result{Success: true}}, ctx.Err()
		})
		a := r.start(r.engine, "go")
		synctest.Wait()
		closed := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), testkit.Limit)
			defer cancel()
			closed <- r.engine.Close(ctx)
		}()
		synctest.Wait()
		_, ev, err := r.ask(t.Context(), "new")
		if e := wantCode(t, err, ev, CodeAgent); !errors.Is(e, registry.ErrDraining) {
			t.Errorf("%v, want draining", e)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if <-a.ended; a.err != nil {
			t.Errorf("the turn had time, and ended with %v", a.err)
		}
	})
}

func TestCloseOfAnEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("half", reached))
		a := r.start(r.engine, "go")
		<-reached
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.engine.Close(ctx); err != nil {
			t.Error(err)
		}
		a.wantEnded(t, "pod is stopping")
		r.wantHistory("user:go", "assistant:half interrupted")
	})
}

func TestAbortAfterTheEndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("done"))
		a := r.start(r.engine, "go")
		<-a.ended
		a.abort(ErrAborted)
		if types := a.ev.types(); a.err != nil || types[len(types)-1] != EventDone {
			t.Errorf("%v, %v", a.err, types)
		}
	})
}
