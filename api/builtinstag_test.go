package api

import (
	"slices"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// specs are built-in tools.
type specs []registry.ToolSpec

func (s specs) Specs() []registry.ToolSpec { return s }

func (specs) Tool(policy.Context, string) agent.Tool { return nil }

// The tag of a list says which built-in tools it has, whatever order they are told in.
func TestETagFollowsTheBuiltins(t *testing.T) {
	rules, err := agent.NewPolicy(agent.PolicyRules{})
	if err != nil {
		t.Fatal(err)
	}
	tag := func(own Builtins) string {
		b, err := newBuiltins(own)
		if err != nil {
			t.Fatal(err)
		}
		h := &handler{Config: Config{Policy: rules}, builtins: b}
		return h.listTag("1", auth.Identity{Tenant: registry.DefaultTenant}, "/api/tools", nil, false)
	}
	two := specs{{Name: "time"}, {Name: "zone"}}
	turned := slices.Clone(two)
	slices.Reverse(turned)
	other := specs{{Name: "time"}, {Name: "zone", Description: "another"}}
	if tag(two) != tag(turned) {
		t.Error("the tag depends on the order")
	}
	if tag(two) == tag(other) || tag(two) == tag(nil) || tag(two) == tag(two[:1]) {
		t.Error("the tag does not depend on the tools")
	}
}
