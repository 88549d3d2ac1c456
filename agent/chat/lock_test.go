package chat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farhand/farhand/agent/provider"
	"github.com/farhand/farhand/registry"
)

// TestTurnsQueueInOrder has turns of one conversation arrive at one pod while one is answered.
func TestTurnsQueueInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		slow := func(_ context.Context, _ provider.Request, emit func(provider.Delta)) (provider.Answer, error) {
			time.Sleep(time.Second)
			return text("ok")(t.Context(), provider.Request{}, emit)
		}
		r := newRig(t, Limits{}, slow, slow, slow, slow, slow, slow)
		var all []*asking
		for _, said := range []string{"1", "2", "3", "4", "5"} {
			all = append(all, r.start(r.engine, said))
			synctest.Wait()
		}
		refused := r.start(r.engine, "6")
		<-refused.ended
		if e := wantCode(t, refused.err, refused.ev, CodeSessionBusy); !errors.Is(e, registry.CodeBusy) {
			t.Errorf("%v, want busy", e)
		}
		began := time.Now()
		for i, a := range all {
			if <-a.ended; a.err != nil {
				t.Error(a.err)
			}
			if i == 0 { // the second is answered now, and waits no more
				synctest.Wait()
				all = append(all, r.start(r.engine, "7"))
			}
			if took := time.Since(began); took != time.Duration(i+1)*time.Second {
				t.Errorf("turn %d ended after %v: a turn on this pod does not wait for a look at the store", i+1, took)
			}
		}
		if last := all[len(all)-1]; len(all) != 6 {
			t.Errorf("%d turns", len(all))
		} else if <-last.ended; last.err != nil {
			t.Errorf("there was room to wait: %v", last.err)
		}
		r.wantHistory("user:1", "assistant:ok", "user:2", "assistant:ok", "user:3", "assistant:ok", "user:4",
			"assistant:ok", "user:5", "assistant:ok",
			"user:7", "assistant:ok")
	})
}

func TestTurnsQueueAcrossPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("", reached), text("ok"), text("ok"), text("ok"), text("ok"))
		first := r.start(r.engine, "first")
		<-reached
		other := r.pod(Limits{})
		var all []*asking
		for range 4 {
			all = append(all, r.start(other, "more"))
			synctest.Wait()
		}
		refused := r.start(other, "too many")
		<-refused.ended
		wantCode(t, refused.err, refused.ev, CodeSessionBusy)
		time.Sleep(20 * time.Second) // longer than the lease, which is renewed
		first.abort(ErrAborted)
		began := time.Now()
		for _, a := range all {
			if <-a.ended; a.err != nil {
				t.Error(a.err)
			}
		}
		if took := time.Since(began); took > 2*maxPause {
			t.Errorf("the others ended %v later", took)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("", reached))
		first := r.start(r.engine, "first")
		<-reached
		began := time.Now()
		local, remote := r.start(r.engine, "here"), r.start(r.pod(Limits{}), "there")
		for _, a := range []*asking{local, remote} {
			<-a.ended
			wantCode(t, a.err, a.ev, CodeSessionBusy)
			if took := time.Since(began); took != 30*time.Second {
				t.Errorf("waited %v", took)
			}
		}
		first.abort(ErrAborted)
		<-first.ended
		r.free()
	})
}

func TestOtherConversationsDoNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("", reached), text("ok"))
		first := r.start(r.engine, "first")
		<-reached
		if _, err := r.engine.Ask(t.Context(), Ask{Key: registry.Key{Tenant: "default", Session: "s2"}, Content: "hi"},
			nil); err != nil {
			t.Error(err)
		}
		first.abort(ErrAborted)
		<-first.ended
	})
}

// TestAskingAgainFromTheLastEvent holds the promise that whoever hears of the end may ask again at once.
func TestAskingAgainFromTheLastEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("one"), text("two"))
		other := r.pod(Limits{})
		var err error
		_, first := r.engine.Ask(t.Context(), Ask{Key: key, Content: "a"}, func(e Event) {
			if e.Type == EventDone {
				began := time.Now()
				_, err = other.Ask(t.Context(), Ask{Key: key, Content: "b"}, nil)
				if took := time.Since(began); took != 0 {
					t.Errorf("it waited %v", took)
				}
			}
		})
		if first != nil || err != nil {
			t.Error(first, err)
		}
	})
}

func TestLockLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reached := make(chan struct{})
		r := newRig(t, Limits{}, hang("half", reached))
		a := r.start(r.engine, "go")
		<-reached
		r.store.put(key, nil, provider.Message{Role: provider.RoleUser, Content: "from another pod"}) // takes the turn
		began := time.Now()
		<-a.ended
		if e := wantCode(t, a.err, a.ev, CodeAgent); !strings.Contains(e.Message, "lost its lease") {
			t.Errorf("message %q", e.Message)
		}
		if took := time.Since(began); took > renewEvery {
			t.Errorf("noticed after %v", took)
		}
		r.wantHistory("user:go", "user:from another pod") // what was said after the loss is refused
	})
}

func TestLockThatCannotBeRenewed(t *testing.T) {
	for name, fault := range map[string]func(ctx context.Context) error{
		"refused": func(context.Context) error { return registry.StoreUnavailable("renew", errors.New("away")) },
		"hanging": func(ctx context.Context) error {
			<-ctx.Done()
			return registry.StoreUnavailable("renew",
				ctx.Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				reached := make(chan struct{})
				r := newRig(t, Limits{}, hang("half", reached))
				began := time.Now()
				a := r.start(r.engine, "go")
				<-reached
				r.store.setFault(func(ctx context.Context, op string) error {
					if op == "renew" {
						return fault(ctx)
					}
					return nil
				})
				<-a.ended
				wantCode(t, a.err, a.ev, CodeAgent)
				if took := time.Since(began); took != leaseTime {
					t.Errorf("given up after %v, want the lease", took)
				}
			})
		})
	}
}

func TestRenewalSurvivesAShortFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, func(ctx context.Context, _ provider.Request, _ func(provider.Delta)) (provider.Answer,
			error) {
			time.Sleep(time.Minute)
			return provider.Answer{Message: provider.Message{Content: "ok"}}, ctx.Err()
		})
		failures := 0
		r.store.setFault(func(_ context.Context, op string) error {
			if op == "renew" {
				if failures++; failures%3 != 0 {
					return registry.StoreUnavailable(op, errors.New("away"))
				}
			}
			return nil
		})
		if r.must("go"); failures < 6 {
			t.Errorf("renewed %d times only", failures)
		}
	})
}

// TestStoreFailsAtEachStep wants a clear error and nothing left behind, whatever fails.
func TestStoreFailsAtEachStep(t *testing.T) {
	turn := func(fail func(op string) bool) (ops []string, ev *events, err error) {
		bubble(t, func(t *testing.T) {
			r := newRig(t, Limits{}, use(tool("a", "look", "{}")), text("ok"), text("next"))
			r.tools.set("look", returns("x"))
			var mu sync.Mutex // the turn is also renewed
			r.store.setFault(func(_ context.Context, op string) error {
				mu.Lock()
				defer mu.Unlock()
				if ops = append(ops, op); fail(op) {
					return registry.StoreUnavailable(op, errors.New("secret address"))
				}
				return nil
			})
			_, ev, err = r.ask(t.Context(), "go")
			r.store.setFault(nil)
			if c, _ := r.store.Conversation(t.Context(), key); c.Busy && ops[len(ops)-1] != "end" {
				t.Errorf("after %v the conversation is not free", ops)
			}
			time.Sleep(leaseTime) // of a turn that could not be given back
			r.model.mu.Lock()
			r.model.steps = []step{text("next")}
			r.model.mu.Unlock()
			r.must("and now?")
			sent := r.model.asked()[len(r.model.asked())-1].Messages
			checkWellFormed(t, sent)
		})
		return ops, ev, err
	}
	steps, _, err := turn(func(string) bool { return false })
	if want := []string{"begin", "read", "append", "append", "append", "append", "title", "end"}; err != nil ||
		!slices.Equal(steps, want) {
		t.Fatalf("steps %v, %v; want %v", steps, err, want)
	}
	if _, ev, err := turn(func(op string) bool { return op == "append" }); !errors.Is(err,
		registry.CodeStoreUnavailable) ||
		strings.Contains(wantCode(t, err, ev, CodeAgent).Message, "secret") {
		t.Errorf("appending fails for good: %v", err)
	}
	for n, op := range steps {
		seen := 0
		_, ev, err := turn(func(string) bool { seen++; return seen == n+1 })
		if op == "append" || op == "title" || op == "end" { // one failure costs no message
			if err != nil {
				t.Errorf("%s failing ends the turn: %v", op, err)
			}
			continue
		}
		e := wantCode(t, err, ev, CodeAgent)
		if !errors.Is(e, registry.CodeStoreUnavailable) || strings.Contains(e.Message, "secret") {
			t.Errorf("step %d, %s: %v", n, op, e)
		}
	}
}

// TestStoreThatHangs wants every write bounded.
func TestStoreThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		r.store.setFault(func(ctx context.Context, op string) error {
			if op == "append" || op == "end" {
				<-ctx.Done()
				return registry.StoreUnavailable(op, ctx.Err())
			}
			return nil
		})
		began := time.Now()
		_, ev, err := r.ask(t.Context(), "go")
		wantCode(t, err, ev, CodeAgent)
		if took := time.Since(began); took > 2*storeTime {
			t.Errorf("took %v", took)
		}
	})
}

// TestBeginThatIsAbortedGivesBack aborts while the store is being asked for the turn.
func TestBeginThatIsAbortedGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		r.store.setFault(func(_ context.Context, op string) error {
			if op == "begin" {
				time.Sleep(time.Second)
			}
			return nil
		})
		a := r.start(r.engine, "go")
		synctest.Wait()
		a.abort(ErrAborted)
		a.wantAborted(t)
		r.free()
		r.wantHistory()
	})
}

// A pod that dies in a turn keeps the next message waiting no longer than its lease as a pod lasts.
func TestDeadPodKeepsItsConversationNoLongerThanALease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{}, text("ok"))
		if _, err := r.store.BeginTurn(t.Context(), key, leaseTime); err != nil { // by a pod that says nothing more
			t.Fatal(err)
		}
		began := time.Now()
		a := r.start(r.engine, "go")
		<-a.ended
		if took := time.Since(began); a.err != nil || took > registry.DefaultPodLease {
			t.Errorf("answered after %v: %v", took, a.err)
		}
	})
}
