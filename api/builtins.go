package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/farhand/farhand/agent/policy"
	"github.com/farhand/farhand/registry"
)

// builtins are the tools of the gateway itself, in order of name. They are the same as long as the process runs.
type builtins struct {
	specs   []registry.ToolSpec
	missing map[builtinIn]string // why some cannot work
	digest  string               // of all this
}

// builtinIn is a built-in tool in a context.
type builtinIn struct {
	tool string
	in   policy.Context
}

func newBuiltins(from Builtins) (builtins, error) {
	if from == nil {
		return builtins{}, nil
	}
	var specs []registry.ToolSpec
	for _, t := range from.Specs() {
		t, err := t.Normalize()
		if err != nil {
			return builtins{}, fmt.Errorf("api: built-in tool %q: %w", t.Name, err)
		}
		specs = append(specs, t)
	}
	slices.SortFunc(specs, func(a, b registry.ToolSpec) int { return cmp.Compare(a.Name, b.Name) })
	sum := sha256.New()
	missing := make(map[builtinIn]string)
	for _, t := range specs {
		sum.Write([]byte(t.Hash()))
		for _, in := range policy.Contexts() {
			if why := from.Unavailable(in, t.Name); why != "" {
				missing[builtinIn{t.Name, in}] = why
				fmt.Fprintf(sum, "%q %q", in, why)
			}
		}
	}
	return builtins{specs: specs, missing: missing, digest: hex.EncodeToString(sum.Sum(nil))}, nil
}

// matching returns the built-in tools with which a list continues. They belong to no session, so a query that filters
// sessions does not mean them.
func (b builtins) matching(tq toolQuery, from cursor) []registry.ToolSpec {
	after, some := from.builtinsAfter()
	if !some || !tq.target.IsZero() || !tq.from(sourceBuiltin) {
		return nil
	}
	var found []registry.ToolSpec
	for _, t := range b.specs {
		if t.Name > after && tq.matches(t) {
			found = append(found, t)
		}
	}
	return found
}
