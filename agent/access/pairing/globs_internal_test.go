package pairing

import (
	"fmt"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scopes, glob string
		want         bool
	}{
		{"", "*", true}, {"*", "*", true}, {"*", "a?c*", true}, {"a*", "a*", true}, {"a*", "ab*", true},
		{"a* b", "b", true}, {"a*b", "a*b", true}, {"a*", "abc", true}, {"a?", "ab", true}, {"a?", "a?", true},
		{"a*", "a?", true}, {"*a*", "*a", true}, {"a?*", "a?*", true},
		{"a*", "*", false}, {"a*", "b*", false}, {"a", "a*", false}, {"a?", "a*", false}, {"a?*", "a*", false},
		{"*a", "*", false}, {"a*b", "a*", false}, {"ab", "a?", false}, {" ", "*", false}, {"\x01", "*", false},
		{"b c", "a", false}, {"[a-z]*", "a*", true},
	} {
		if got := covers(c.scopes, c.glob); got != c.want {
			t.Errorf("%q covers %q: %t", c.scopes, c.glob, got)
		}
	}
}

// However small they are, no more tools of a device wait than each of its frames can look at.
func TestWaitingToolsAreFew(t *testing.T) {
	t.Parallel()
	var tools []registry.ToolSpec
	for i := range 2 * maxWaitingTools {
		tools = append(tools, registry.ToolSpec{Name: fmt.Sprint("t", i)})
	}
	kept, r := review(nil, registry.DeviceTools{}, tools)
	if len(kept.Waiting) != maxWaitingTools || len(r.Waiting) != len(tools) {
		t.Errorf("%d wait, and %d are named", len(kept.Waiting), len(r.Waiting))
	}
	again, _ := review(nil, kept, tools[:maxWaitingTools])
	if len(again.Waiting) != maxWaitingTools {
		t.Errorf("%d wait when they are offered again", len(again.Waiting))
	}
}
