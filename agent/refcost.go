package agent

import (
	"errors"
	"strings"
)

// maxRefCost bounds how many subschemas one pass over a schema visits with its references followed. References that
// double at each step ("billion laughs") reach it after a few dozen bytes; real schemas stay in the hundreds.
const maxRefCost = 20_000

var errRefCost = errors.New("its references expand to too many subschemas")

// refCost counts the subschemas reachable from a schema document with local references followed. A reference back
// into what is being counted costs one: it repeats per level of the data, which is bounded elsewhere.
type refCost struct {
	root    any
	known   map[string]int // by reference
	visited map[string]bool
}

func checkRefCost(doc any) error {
	c := refCost{root: doc, known: make(map[string]int), visited: make(map[string]bool)}
	if c.of(doc) > maxRefCost {
		return errRefCost
	}
	return nil
}

func (c refCost) of(node any) int {
	cost := 1
	switch n := node.(type) {
	case map[string]any:
		for key, child := range n {
			ref, isString := child.(string)
			if isString && (key == "$ref" || key == "$dynamicRef") {
				cost += c.ofRef(ref)
				continue
			}
			if key == "$defs" || key == "definitions" {
				continue // counted where they are referred to
			}
			cost = min(cost+c.of(child), maxRefCost+1)
		}
	case []any:
		for _, child := range n {
			cost = min(cost+c.of(child), maxRefCost+1)
		}
	}
	return min(cost, maxRefCost+1)
}

func (c refCost) ofRef(ref string) int {
	if cost, ok := c.known[ref]; ok {
		return cost
	}
	if c.visited[ref] {
		return 1
	}
	c.visited[ref] = true
	cost := 1
	if target, ok := c.lookup(ref); ok {
		cost = c.of(target)
	}
	c.visited[ref] = false
	c.known[ref] = cost
	return cost
}

// lookup follows a local reference: #, #/json/pointer or #anchor.
func (c refCost) lookup(ref string) (any, bool) {
	fragment, ok := strings.CutPrefix(ref, "#")
	switch {
	case !ok:
		return nil, false // another document: the compiler refuses it
	case fragment == "":
		return c.root, true
	case fragment[0] != '/':
		return findAnchor(c.root, fragment)
	}
	node := c.root
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(fragment[1:], "/") {
		object, ok := node.(map[string]any)
		if !ok {
			return nil, false
		}
		if node, ok = object[unescape.Replace(token)]; !ok {
			return nil, false
		}
	}
	return node, true
}

func findAnchor(node any, name string) (any, bool) {
	switch n := node.(type) {
	case map[string]any:
		if n["$anchor"] == name || n["$dynamicAnchor"] == name {
			return n, true
		}
		for _, child := range n {
			if found, ok := findAnchor(child, name); ok {
				return found, true
			}
		}
	case []any:
		for _, child := range n {
			if found, ok := findAnchor(child, name); ok {
				return found, true
			}
		}
	}
	return nil, false
}
