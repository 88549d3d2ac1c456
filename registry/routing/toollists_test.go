package routing

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

func TestEqualToolListsAreShared(t *testing.T) {
	list := func(name string) []registry.ToolSpec {
		spec, err := registry.ToolSpec{Name: name, Description: "d"}.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		return []registry.ToolSpec{spec}
	}
	l := newToolLists(toolListBytes)
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
}

// What counts is what the lists keep in memory: the definitions, not only the keys they are found by.
func TestSharedToolListsAreBoundedInBytes(t *testing.T) {
	l := newToolLists(toolListBytes)
	const large = 60 << 10
	schema := func(i, size int) registry.ToolSpec {
		spec := registry.ToolSpec{Name: "tool",
			Parameters: json.RawMessage(fmt.Sprintf(`{"title":"%d %s"}`, i, strings.Repeat("x", size)))}
		spec, err := spec.NormalizeWithin(registry.ToolLimits{SchemaBytes: 2 * toolListBytes})
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	first := []registry.ToolSpec{schema(0, large)}
	l.share(first)
	kept := func() bool { return &l.share([]registry.ToolSpec{schema(0, large)})[0] == &first[0] }
	for i := range toolListBytes / large / 2 {
		l.share([]registry.ToolSpec{schema(1+i, large)})
	}
	if !kept() {
		t.Error("a list was forgotten though the cache is not full")
	}
	huge := []registry.ToolSpec{schema(0, toolListBytes)}
	if got := l.share(huge); &got[0] != &huge[0] || !kept() {
		t.Error("a list that is larger than all may be together is kept, or makes others be forgotten")
	}
	for i := range 4 * toolListBytes / large {
		l.share([]registry.ToolSpec{schema(1+i, large)})
	}
	if kept() {
		t.Error("a list that nobody wanted while many others came is still kept")
	}
}
