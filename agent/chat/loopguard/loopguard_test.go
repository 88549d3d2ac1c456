package loopguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/registry"
)

// verdicts of the guard about one call.
const (
	passes = "passes"
	warns  = "warns"
	blocks = "blocks"
)

// verdict reads what the guard made of a call.
func verdict(t *testing.T, out agent.Outcome, err error) string {
	t.Helper()
	switch {
	case errors.Is(err, loopguard.ErrBlocked):
		if e := registry.AsError(err); e.Code != registry.CodeHookCancelled || e.Dispatched != registry.DispatchedNo ||
			e.CallID == "" {
			t.Errorf("blocked with %+v", e)
		}
		return blocks
	case err != nil && strings.Contains(registry.AsError(err).Notice, "[Farhand: "),
		strings.Contains(out.Result.Notice, "[Farhand: "):
		return warns
	default:
		return passes
	}
}

// expect is the verdict of the nth call of a run.
func expect(n int) string {
	switch {
	case n >= 20:
		return blocks
	case n >= 10:
		return warns
	default:
		return passes
	}
}

func TestIdenticalCalls(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{})
		args := []string{`{"n":1,"m":"a"}`, ` {"m":"a", "n":1}`} // the same
		k.say("x", "nothing new")
		for n := 1; n <= 25; n++ {
			out, err := k.call("x", args[n%2])
			if got := verdict(t, out, err); got != expect(n) {
				t.Fatalf("call %d %s, want %s: %+v, %v", n, got, expect(n), out.Result, err)
			}
			if n == 10 && out.Result.Output+out.Result.Notice != "nothing new[Farhand: this is the 10th identical "+
				"call of \"x\" with the same result; "+
				"try something else, or answer with what you know. The 20th will be stopped.]" {
				t.Errorf("the model reads %q", out.Result.Output)
			}
			if n == 20 && !strings.Contains(registry.AsError(err).Message, "20th identical call") {
				t.Errorf("the model reads %v", err)
			}
		}
		if n := len(k.device.Calls()); n != 19 {
			t.Errorf("the device saw %d calls", n)
		}
		// Something else is not stopped, and then the first thing is not either.
		for _, tool := range []string{"y", "x"} {
			if out, err := k.call(tool, `{"n":1,"m":"a"}`); verdict(t, out, err) != passes {
				t.Errorf("%s: %+v, %v", tool, out, err)
			}
		}
	})
}

func TestWhatBreaksARun(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		for name, between := range map[string]func(k *conversation){
			"another outcome":  func(k *conversation) { k.say("x", "news") },
			"failing":          func(k *conversation) { k.say("x", "fails") },
			"another call":     func(k *conversation) { _, _ = k.call("y", `{}`) },
			"other arguments":  func(k *conversation) { _, _ = k.call("x", `{"n":2}`) },
			"an unknown tool":  func(k *conversation) { _, _ = k.call("nothing", `{}`) },
			"a malformed call": func(k *conversation) { _, _ = k.call("x", `["n"]`) },
		} {
			k := newConversation(t, s, loopguard.Config{})
			k.say("x", "same")
			for range 9 {
				_, _ = k.call("x", `{"n":1}`)
			}
			between(k)
			for n := 1; n <= 10; n++ {
				out, err := k.call("x", `{"n":1}`)
				if got := verdict(t, out, err); got != expect(n) {
					t.Errorf("%s: call %d afterwards %s", name, n, got)
				}
			}
		}
	})
}

func TestPingPong(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{})
		for n := 1; n <= 24; n++ {
			out, err := k.call([]string{"x", "y"}[n%2], `{"n":1}`)
			if got := verdict(t, out, err); got != expect(n) {
				t.Fatalf("call %d %s, want %s: %+v, %v", n, got, expect(n), out.Result, err)
			}
			if n == 10 && !strings.Contains(out.Result.Notice, "10th call in a row that alternates") {
				t.Errorf("the model reads %q", out.Result.Output)
			}
		}
		// A third call ends it, and so does news from one of the two.
		for name, between := range map[string]func(k *conversation){
			"a third call": func(k *conversation) { _, _ = k.call("z", `{}`) },
			"news":         func(k *conversation) { k.say("y", "news") },
		} {
			k := newConversation(t, s, loopguard.Config{})
			for n := 1; n <= 8; n++ {
				_, _ = k.call([]string{"y", "x"}[n%2], `{"n":1}`)
			}
			between(k)
			for n := 1; n <= 10; n++ {
				out, err := k.call([]string{"y", "x"}[n%2], `{"n":1}`)
				if got := verdict(t, out, err); got != expect(n) {
					t.Errorf("%s: call %d afterwards %s", name, n, got)
				}
			}
		}
	})
}

// One call with two outcomes in turn is no loop: something changes each time.
func TestOneCallWithChangingOutcomes(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{})
		for n := range 40 {
			k.say("x", strconv.Itoa(n%2))
			if out, err := k.call("x", `{}`); verdict(t, out, err) != passes {
				t.Fatalf("call %d: %+v, %v", n, out, err)
			}
		}
	})
}

func TestUnknownTool(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{})
		for n := 1; n <= 12; n++ {
			out, err := k.call("nothing", fmt.Sprintf(`{"n":%d}`, n)) // what it is asked does not matter
			got, want := verdict(t, out, err), passes
			if n >= 10 {
				want = blocks
			} else if !errors.Is(err, registry.CodeToolNotFound) {
				t.Fatal(err)
			}
			if got != want {
				t.Fatalf("ask %d %s, want %s: %v", n, got, want, err)
			}
		}
	})
}

// Failures count like results, also those that stop a call before the guard is asked.
func TestFailingCalls(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		for name, call := range map[string]func(k *conversation) (agent.Outcome, error){
			"denied":            func(k *conversation) (agent.Outcome, error) { return k.call("denied", `{}`) },
			"invalid arguments": func(k *conversation) (agent.Outcome, error) { return k.call("x", `{"n":"one"}`) },
			"no JSON":           func(k *conversation) (agent.Outcome, error) { return k.call("x", `["n"]`) },
		} {
			k := newConversation(t, s, loopguard.Config{})
			for n := 1; n <= 22; n++ {
				out, err := call(k)
				if got := verdict(t, out, err); err == nil || got != expect(n) {
					t.Fatalf("%s: call %d %s: %v", name, n, got, err)
				}
			}
		}
	})
}

// Parallel calls count although none has ended, and pods count together.
func TestParallelCallsOfTwoPods(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{})
		k.say("x", "same")
		var blocked atomic.Int64
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				_, err := k.invokers[n%2].Invoke(t.Context(), agent.Request{
					Caller: anna, Tool: "x", Target: registry.Target{SessionID: k.key.Session}, Conversation: k.key,
				})
				if errors.Is(err, loopguard.ErrBlocked) {
					blocked.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(k.device.Calls()); n != 19 || blocked.Load() != 31 {
			t.Errorf("%d calls reached the device, %d were stopped", n, blocked.Load())
		}
	})
}

func TestLocalToolsCount(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{Warn: 2, Block: 3})
		local := func(r *agent.Request) { r.Local, r.Target = silent{}, registry.Target{} }
		for n, want := range []string{passes, warns, blocks} {
			out, err := k.call("silent", `{}`, local)
			if got := verdict(t, out, err); got != want {
				t.Errorf("call %d %s, want %s", n+1, got, want)
			}
		}
	})
}

// silent is a tool without output.
type silent struct{}

func (silent) Spec() registry.ToolSpec { return registry.ToolSpec{Name: "silent"} }

func (silent) Execute(context.Context, json.RawMessage) (registry.Result, error) {
	return registry.Result{Success: true}, nil
}

// A custom hook that makes every call a little different does not hide that they are the same.
func TestArgumentsCountAsAsked(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{Warn: 2, Block: 3}, &stamp{})
		k.say("x", "same")
		for n, want := range []string{passes, warns, blocks} {
			out, err := k.call("x", `{}`)
			if got := verdict(t, out, err); got != want {
				t.Errorf("call %d %s, want %s", n+1, got, want)
			}
		}
	})
}

// stamp numbers calls.
type stamp struct{ n atomic.Int64 }

func (*stamp) Name() string { return "stamp" }

func (s *stamp) Before(context.Context, agent.Invocation) (agent.Decision, error) {
	return agent.Modify(fmt.Appendf(nil, `{"n":%d}`, s.n.Add(1))), nil
}

func TestOnlyConversationsCount(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{Warn: 2, Block: 3})
		for range 5 {
			out, err := k.call("x", `{}`, func(r *agent.Request) { r.Conversation = registry.Key{} })
			if verdict(t, out, err) != passes || err != nil {
				t.Fatalf("%+v, %v", out, err)
			}
		}
		// And each for itself.
		for n := range 6 {
			out, err := k.call("x", `{}`, func(r *agent.Request) { r.Conversation.Session = "c" + strconv.Itoa(n) })
			if verdict(t, out, err) != passes {
				t.Fatalf("conversation %d: %+v", n, out)
			}
		}
	})
}

// The guard saves money; a store that is away does not stop anybody from working.
func TestBrokenStore(t *testing.T) {
	k := newConversation(t, stores{away{}, away{}}, loopguard.Config{Warn: 2, Block: 3})
	for range 5 {
		if out, err := k.call("x", `{}`); verdict(t, out, err) != passes || err != nil {
			t.Fatalf("%+v, %v", out, err)
		}
	}
}

// away is a store that cannot be reached.
type away struct{}

func (away) AppendTrail(context.Context, registry.Key, string, int) ([]string, error) {
	return nil, registry.StoreUnavailable("trail", errors.New("gone"))
}
