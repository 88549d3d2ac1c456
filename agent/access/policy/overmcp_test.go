package policy_test

import (
	"testing"

	"github.com/farhand/farhand/agent/access/policy"
	"github.com/farhand/farhand/registry"
)

// The condition "over MCP" is about calls over MCP, those of models and of persons' programs alike, and what was
// answered about one way is not the answer about another.
func TestOverMCP(t *testing.T) {
	p := newPolicy(t, policy.Options{File: []byte("version: 1\ntools:\n" +
		"  - {id: closed, names: vault, forbid: over MCP}\n" +
		"  - {id: asked, names: door, approval: {when: over MCP, except: approver}}\n" +
		"  - {id: models, names: diary, forbid: asked by a model}\n")})
	for range 2 { // as it is decided, and as it is remembered
		for _, model := range []bool{true, false} {
			for _, over := range []bool{true, false} {
				ask := func(tool string) *policy.Decision {
					return p.Decide(policy.Question{
						Who: anybody, Tool: registry.ToolSpec{Name: tool}, Model: model, OverMCP: over,
					})
				}
				if d := ask("vault"); d.Allowed == over || over && d.Rule != "closed" {
					t.Errorf("over MCP %t, by a model %t: vault: %+v", over, model, d)
				}
				d := ask("door").Approval(0)
				if (d != nil) != over || over && d.Rule != "asked" {
					t.Errorf("over MCP %t, by a model %t: door: %+v", over, model, d)
				}
				if d := ask("diary"); d.Allowed == model {
					t.Errorf("over MCP %t, by a model %t: diary: %+v", over, model, d)
				}
			}
		}
	}
	q := policy.Question{Who: approver, Tool: registry.ToolSpec{Name: "door"}, OverMCP: true}
	if d := p.Decide(q); d.Approval(0) != nil {
		t.Errorf("an exception: %+v", d)
	}
}
