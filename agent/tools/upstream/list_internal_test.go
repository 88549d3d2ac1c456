package upstream

import (
	"context"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// What the SDK keeps of a page of tools is what is counted: a title is not.
func TestTrimLeavesNoTitles(t *testing.T) {
	list := trim(func(context.Context, string, mcp.Request) (mcp.Result, error) {
		long := strings.Repeat("t", 1<<20)
		return &mcp.ListToolsResult{Tools: []*mcp.Tool{
			{Name: "do", Title: long, Annotations: &mcp.ToolAnnotations{Title: long, ReadOnlyHint: true}},
		}}, nil
	})
	res, err := list(t.Context(), "tools/list", nil)
	if err != nil {
		t.Fatal(err)
	}
	tool := res.(*mcp.ListToolsResult).Tools[0]
	if tool.Title != "" || tool.Annotations.Title != "" || !tool.Annotations.ReadOnlyHint {
		t.Errorf("titles of %d and %d bytes, read-only %v",
			len(tool.Title), len(tool.Annotations.Title), tool.Annotations.ReadOnlyHint)
	}
}
