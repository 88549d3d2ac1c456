package chat

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

// TestCallsThatReachPeople: a call that reaches people runs once of several in one answer, and a later one of the turn
// is marked as a repetition. Other arguments, and tools that reach nobody, are not.
func TestCallsThatReachPeople(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, Limits{},
			use(tool("1", "notify", `{"a":1,"b":2}`), tool("2", "notify", `{"b":2, "a":1}`),
				tool("3", "notify", `{"a":2}`), tool("4", "look", `{}`), tool("5", "look", `{}`)),
			use(tool("6", "notify", `{"a":1,"b":2}`), tool("7", "look", `{}`)),
			text("done"))
		r.tools.set("notify", returns("sent"))
		r.tools.set("look", returns("seen"))
		r.tools.effects = map[string]*registry.Effects{"notify": {Class: registry.ClassPeople}}
		reply, _ := r.must("go")
		repeats := 0
		for _, c := range r.tools.called() {
			if c.Repeats {
				repeats++
				if c.ModelName != "notify" || c.Args.String() != `{"a":1,"b":2}` {
					t.Errorf("%s %s counts as a repetition", c.ModelName, c.Args)
				}
			}
		}
		if n := len(r.tools.called()); n != 6 || repeats != 1 {
			t.Errorf("%d calls ran, %d of them repetitions", n, repeats)
		}
		if c := reply.Calls[1]; c.Status != StatusFailed || !strings.Contains(c.Output, "not run") {
			t.Errorf("the second of one answer: %+v", c)
		}
	})
}
