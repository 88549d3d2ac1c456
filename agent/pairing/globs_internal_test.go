package pairing

import "testing"

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
