package loopguard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/chat/loopguard"
	"github.com/farhand/farhand/registry"
)

// inTurn has a call belong to a turn.
func inTurn(turn string) func(*agent.Request) { return func(r *agent.Request) { r.Turn = turn } }

// What somebody asks for in each turn is done in each turn, however often. A turn that repeats it is stopped as before.
func TestFirstCallOfATurnIsNeverStopped(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		for name, tools := range map[string][]string{
			"one call":             {"x"},
			"two in turn":          {"x", "y"},
			"denied, never asked":  {"denied"},
			"a tool there is none": {"nothing"},
		} {
			k := newConversation(t, s, loopguard.Config{})
			k.say("x", "same")
			k.say("y", "same")
			for n := range 30 {
				turn := fmt.Sprint("turn ", n)
				for _, tool := range tools {
					out, err := k.call(tool, `{}`, inTurn(turn))
					if verdict(t, out, err) == blocks {
						t.Fatalf("%s: %s is stopped in turn %d: %v", name, tool, n, err)
					}
					if n == 25 && verdict(t, out, err) != warns {
						t.Errorf("%s: no warning in turn %d", name, n)
					}
					if text := out.Result.Notice; n == 25 && err == nil &&
						!strings.Contains(text, "The next call like it in this turn will be stopped.") {
						t.Errorf("%s: the model reads %q", name, text)
					}
				}
			}
			for _, tool := range tools {
				if out, err := k.call(tool, `{}`, inTurn("turn 29")); verdict(t, out, err) != blocks {
					t.Errorf("%s: the turn may go on: %+v, %v", name, out, err)
				}
			}
		}
	})
}

// A conversation that its caller keeps is counted turn by turn, and leaves nothing in the store.
func TestStatelessTurnsCountForThemselves(t *testing.T) {
	onEachStore(t, func(t *testing.T, s stores) {
		k := newConversation(t, s, loopguard.Config{})
		k.say("x", "same")
		toolSets := agent.NewToolSets(agent.ToolSetsConfig{Invoker: k.invokers[0], Directory: k.directory,
			Policy: k.policy})
		for turn := range 2 {
			v := toolSets.Open(agent.SessionContext{Key: k.key, Stateless: true, Caller: anna})
			for n := 1; n <= 22; n++ {
				out, err := v.Invoke(t.Context(), agent.InvokeRequest{ModelName: "x", Args: registry.MustJSON(`{}`),
					Turn: fmt.Sprint(turn)})
				if got := verdict(t, out, err); got != expect(n) {
					t.Fatalf("turn %d, call %d %s, want %s: %v", turn, n, got, expect(n), err)
				}
			}
			malformed := agent.InvokeRequest{ModelName: "x", Args: registry.MustJSON(`["n"]`), Turn: fmt.Sprint(turn)}
			for n := 1; n <= 22; n++ {
				out, err := v.Invoke(t.Context(), malformed)
				if got := verdict(t, out, err); got != expect(n) {
					t.Fatalf("turn %d, malformed call %d %s: %v", turn, n, got, err)
				}
			}
		}
		if history, err := k.store.AppendTrail(t.Context(), k.key, "only this", 10); err != nil || len(history) != 1 {
			t.Errorf("history %q, %v", history, err)
		}
		// Without a session too.
		v := toolSets.Open(agent.SessionContext{Key: registry.Key{Tenant: "default"}, Stateless: true, Caller: anna})
		var err error
		for range 10 {
			_, err = v.Invoke(t.Context(), agent.InvokeRequest{ModelName: "x", Turn: "t"})
		}
		if !errors.Is(err, loopguard.ErrBlocked) {
			t.Errorf("the tenth ask for a tool there is none: %v", err)
		}
	})
}
