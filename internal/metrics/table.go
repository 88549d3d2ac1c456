package metrics

import (
	"strings"

	"github.com/farhand/farhand/agent/hooks"
	"github.com/farhand/farhand/agent/tools/upstream"
)

// Table describes all metrics of a pod with one model, one HTTP hook and one MCP server, in order of name: Farhand's
// own, as Set.Metrics does. The docs, dashboards and rules take names, labels and values from it.
func Table() []Metric { return described().Metrics() }

// described returns the metrics of a pod that does not run.
func described() *Set {
	s := New([]string{"model"}, "version")
	s.Watch(Pod{
		Hooks:      []func() hooks.Stats{func() hooks.Stats { return hooks.Stats{} }},
		MCPServers: func() []upstream.Status { return []upstream.Status{{}} },
	})
	return s
}

// Runtime returns the names of the metrics of the Go runtime and of the process.
func Runtime() []string {
	var names []string
	families, _ := described().registry.Gather() // without values of a pod, nothing can fail
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "farhand_") {
			names = append(names, f.GetName())
		}
	}
	return names
}
