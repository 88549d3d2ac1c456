package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/farhand/farhand/agent"
	"github.com/farhand/farhand/agent/access/auth"
	"github.com/farhand/farhand/registry"
)

// checkedTool is a tool with everything a tool may be besides.
type checkedTool struct {
	agent.Tool
	steps   *[]string
	invalid error
	missing string
}

func (c checkedTool) Validate(context.Context, json.RawMessage) error {
	*c.steps = append(*c.steps, "validate")
	return c.invalid
}

func (c checkedTool) Authorize(context.Context, auth.Identity, json.RawMessage) error {
	*c.steps = append(*c.steps, "authorize")
	return nil
}

func (c checkedTool) NeedsApproval(args json.RawMessage) (string, bool) {
	*c.steps = append(*c.steps, "demand")
	return "more rights", strings.Contains(string(args), "elevated")
}

func (c checkedTool) Unavailable() string { return c.missing }

func (c checkedTool) Execute(ctx context.Context, args json.RawMessage) (registry.Result, error) {
	*c.steps = append(*c.steps, "execute")
	return c.Tool.Execute(ctx, args)
}

func TestLocalToolIsCheckedInOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		tool  checkedTool
		args  string
		code  registry.Code
		says  string
		steps []string
	}{
		"all well": {checkedTool{}, `{}`, "", "", []string{"validate", "authorize", "demand", "execute"}},
		"several errors": {checkedTool{invalid: errors.Join(errors.New("no path"), errors.New("no text"))}, `{}`,
			registry.CodeInvalidArguments, "The arguments cannot be used.", []string{"validate"}},
		"one error": {checkedTool{invalid: errors.Join(errors.New("no path"))}, `{}`,
			registry.CodeInvalidArguments, "no path", []string{"validate"}},
		"a person must agree": {checkedTool{}, `{"elevated":true}`, registry.CodeApprovalDenied,
			"has no approver", []string{"validate", "authorize", "demand"}},
		"what it needs is missing": {checkedTool{missing: "install it"}, `{}`, registry.CodeToolNotFound,
			"install it", nil},
	} {
		h := newFixture(t, agent.PolicyRules{})
		var steps []string
		tt.tool.Tool, tt.tool.steps = says("work", "done"), &steps
		_, err := h.call(t.Context(), tt.tool, func(r *agent.Request) { r.Args = registry.MustJSON(tt.args) })
		e := registry.AsError(errors.Join(err))
		if (err == nil) != (tt.code == "") ||
			err != nil && (e.Code != tt.code || !strings.Contains(e.Message, tt.says)) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(steps, tt.steps) {
			t.Errorf("%s: %v", name, steps)
		}
		said := e.Message
		for _, v := range e.Violations {
			said += "\n" + v.String()
		}
		for _, problem := range []string{"no path", "no text"} { // each once
			named := tt.tool.invalid != nil && strings.Contains(tt.tool.invalid.Error(), problem)
			if n := strings.Count(said, problem); n > 1 || named != (n == 1) {
				t.Errorf("%s: says %q", name, said)
			}
		}
	}
}

// A model is not offered what cannot work.
func TestUnavailableToolIsNotOffered(t *testing.T) {
	h := newFixture(t, agent.PolicyRules{})
	var steps []string
	box := localTools(t, registration(checkedTool{Tool: says("gone", ""), steps: &steps, missing: "install it"}),
		registration(says("here", "")))
	set := agent.NewToolSets(agent.ToolSetsConfig{
		Invoker: h.invoker, Policy: newPolicy(t, agent.PolicyRules{}), LocalTools: box,
	}).Open(agent.SessionContext{})
	tools, err := set.Tools(t.Context())
	if err != nil || len(tools) != 1 || tools[0].Spec.Name != "here" {
		t.Errorf("%+v, %v", tools, err)
	}
}

// wakes is a tool that is there once its owner was waited for.
type wakes struct {
	localTool
	there *bool
}

func (w wakes) Unavailable() string {
	if *w.there {
		return ""
	}
	return "its server does not answer"
}

// A call that has waited for the owner of its tool is refused only if the tool cannot work then either.
func TestToolThatIsThereAfterTheWait(t *testing.T) {
	var there bool
	tools := &live{await: func(string) error { there = true; return nil }}
	own := localTools(t, registration(says("zone", "own"))).WithLive(tools)
	h := newFixture(t, agent.PolicyRules{}, func(c *agent.Config) { c.LocalTools = own })
	out, err := h.call(t.Context(), wakes{says("files__read", "read"), &there})
	if err != nil || out.Result.Output != "read" {
		t.Errorf("%+v, %v", out.Result, err)
	}
}
