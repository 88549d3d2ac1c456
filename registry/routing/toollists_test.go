package routing

import (
	"encoding/json"
	"fmt"
	"runtime"
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
	l := newSharedLists()
	first := l.share(list("a"))
	other := l.share(list("b"))
	if other.all()[0].Name != "b" {
		t.Errorf("another list became %v", other.all())
	}
	// Lists that nobody has any more are forgotten; those in use are not, however many there are.
	used := make([]*toolList, 10*minSweep)
	for i := range used {
		used[i] = l.share(list(fmt.Sprintf("t%d", i)))
	}
	if again := l.share(list("a")); again != first {
		t.Error("equal lists are two")
	}
	if len(l.lists) != len(used)+2 {
		t.Errorf("%d lists are known", len(l.lists))
	}
	clear(used)
	runtime.GC()
	for i := range 10 * minSweep {
		l.share(list(fmt.Sprintf("n%d", i)))
	}
	if len(l.lists) > 15*minSweep {
		t.Errorf("%d lists are known, %d of them have gone", len(l.lists), 10*minSweep)
	}
	if again := l.share(list("a")); again != first {
		t.Error("a list in use was forgotten")
	}
	runtime.KeepAlive(other)
}

// What counts is what the lists keep in memory: the definitions, not only the keys they are found by.
func TestListsOfRoutesAreBoundedInBytes(t *testing.T) {
	const limit, large = 4 << 20, 60 << 10
	l := newToolLists(limit)
	put := func(i, size int) toolListKey {
		spec := registry.ToolSpec{Name: "tool",
			Parameters: json.RawMessage(fmt.Sprintf(`{"title":"%d %s"}`, i, strings.Repeat("x", size)))}
		spec, err := spec.NormalizeWithin(registry.ToolLimits{SchemaBytes: 2 * limit})
		if err != nil {
			t.Fatal(err)
		}
		return l.keep([]registry.ToolSpec{spec})
	}
	first := put(0, large)
	kept := func(key toolListKey) bool { return l.hashed.Has(key) }
	for i := range limit / large / 2 {
		put(1+i, large)
	}
	if !kept(first) {
		t.Error("a list was forgotten though the cache is not full")
	}
	if kept(put(0, limit)) || !kept(first) {
		t.Error("a list that is larger than all may be together is kept, or makes others be forgotten")
	}
	for i := range 4 * limit / large {
		put(1+i, large)
	}
	if kept(first) {
		t.Error("a list that nobody wanted while many others came is still kept")
	}
}
