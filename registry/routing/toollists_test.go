package routing

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/farhand/farhand/registry"
)

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
