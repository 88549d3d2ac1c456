package memory

import (
	"slices"
	"strings"

	"github.com/farhand/farhand/registry"
)

// toolList is tools by name. It never changes, so sessions with equal tools have the one that their pod has.
type toolList []registry.ToolSpec

// listID tells lists apart by where they are in memory.
type listID struct {
	first *registry.ToolSpec
	n     int
}

// id returns the id of a list that is not empty.
func (l toolList) id() listID { return listID{&l[0], len(l)} }

// sharedList is a list, and how many sessions have it.
type sharedList struct {
	tools    toolList
	sessions int
}

// newToolList returns the list of tools, which are ordered already if they come from a pod. The last of a name counts.
func newToolList(tools []registry.ToolSpec) toolList {
	rises := func(a, b registry.ToolSpec) bool { return a.Name < b.Name }
	for i := 1; i < len(tools); i++ {
		if !rises(tools[i-1], tools[i]) {
			return registry.MergeTools(nil, tools, nil)
		}
	}
	return toolList(slices.Clip(tools))
}

// get returns the tool of a name.
func (l toolList) get(name string) (registry.ToolSpec, bool) {
	byName := func(t registry.ToolSpec, name string) int { return strings.Compare(t.Name, name) }
	i, ok := slices.BinarySearchFunc(l, name, byName)
	if !ok {
		return registry.ToolSpec{}, false
	}
	return l[i], true
}
