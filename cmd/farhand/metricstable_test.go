package main

import (
	"fmt"
	"strings"

	"github.com/farhand/farhand/internal/metrics"
)

// longList is how many values of a label are written out in a document.
const longList = 16

// metricsTable returns all metrics as a table for a document, with the bound of their series.
func metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | kind | labels | meaning | series |\n| --- | --- | --- | --- | --- |\n")
	total := 0
	for _, m := range metrics.Table() {
		total += m.Bound()
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %d |\n", m.Name, m.Kind, labelsOf(m), m.Help, m.Bound())
	}
	fmt.Fprintf(&b, "\nAt most %d series on one pod with one model, one HTTP hook and one MCP server, %d more for "+
		"each further\nmodel, beside those of the Go runtime (`go_…`) and the process (`process_…`). What has not "+
		"happened has no series: a\npod in ordinary use has a tenth of that.\n", total, perModel())
	return b.String()
}

// perModel returns how many series each configured model can have.
func perModel() int {
	n := 0
	for _, m := range metrics.Table() {
		for _, l := range m.Labels {
			if l.Name == "model" {
				n += m.Bound() / (len(l.Values) + l.More)
			}
		}
	}
	return n
}

func labelsOf(m metrics.Metric) string {
	var all []string
	for _, l := range m.Labels {
		switch {
		case l.Name == "model":
			all = append(all, "`model` (a configured one, `other`)")
		case l.Name == "hook":
			all = append(all, "`hook` (one of the file)")
		case l.Name == "server":
			all = append(all, "`server` (one of the file)")
		case l.Name == "version":
			all = append(all, "`version`")
		case l.More > 0:
			all = append(all, fmt.Sprintf("`%s` (%d chosen ones, `other`)", l.Name, l.More))
		case len(l.Values) > longList:
			all = append(all, fmt.Sprintf("`%s` (%d values)", l.Name, len(l.Values)))
		default:
			all = append(all, fmt.Sprintf("`%s` (`%s`)", l.Name, strings.Join(l.Values, "`, `")))
		}
	}
	return strings.Join(all, ", ")
}
