package farhand_test

import (
	"context"
	"testing"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/agent"
)

// factoryTool returns a tool without parameters of a factory.
func factoryTool(t *testing.T, name string, run func(ctx context.Context) (any, error)) agent.Tool {
	t.Helper()
	tool, err := farhand.NewTool(name, "A tool of the program.", func(ctx context.Context, _ struct{}) (any, error) {
		return run(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// A tool of the program that opens the workspace, and does not say that it keeps something, takes part in its turn like
// any other: the tools after it work in the same folder.
func TestAToolOfTheProgramOpensTheWorkspaceOfItsTurn(t *testing.T) {
	h := newHome(t, nil, func(c *farhand.Config) { c.Builtins = []string{"write", "read"} },
		farhand.WithToolFactory(agent.Registration{
			Names: []string{"look"}, Make: func(sc agent.SessionContext) []agent.Tool {
				return []agent.Tool{factoryTool(t, "look", func(ctx context.Context) (any, error) {
					_, err := sc.Workspace.Open(ctx)
					return "opened", err
				})}
			},
		}))
	calls := h.turn(h.keys["admin main"], "main", "look", `{}`, "write", `{"path":"a.txt","content":"kept"}`,
		"read", `{"path":"a.txt"}`)
	if len(calls) != 3 {
		t.Fatalf("calls: %+v", calls)
	}
	for _, c := range calls {
		if c.Status != "completed" {
			t.Errorf("%+v", c)
		}
	}
}
