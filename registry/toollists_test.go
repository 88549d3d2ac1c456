package registry

import (
	"fmt"
	"testing"
)

func TestEqualToolListsAreShared(t *testing.T) {
	list := func(name string) []ToolSpec {
		spec, err := ToolSpec{Name: name, Description: "d"}.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		return []ToolSpec{spec}
	}
	l := newToolLists()
	first := l.share(list("a"))
	if again := l.share(list("a")); &again[0] != &first[0] {
		t.Error("equal lists are two")
	}
	if other := l.share(list("b")); other[0].Name != "b" {
		t.Errorf("another list became %v", other)
	}
	// Lists nobody asks for any more are forgotten in the end; those in use are not.
	for i := range 2 * toolListBytes / 64 {
		l.share(list(fmt.Sprintf("t%d", i)))
		if i%1000 == 0 {
			if again := l.share(list("a")); &again[0] != &first[0] {
				t.Fatal("a list in use was forgotten")
			}
		}
	}
	if n := len(l.current) + len(l.previous); n > 2*toolListBytes/64 {
		t.Errorf("%d lists are kept", n)
	}
}
