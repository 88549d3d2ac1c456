package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/farhand/farhand/cmd/farhand/bench"
)

// report prints the lines, side by side, and the target table.
func (o *options) report(asJSON bool, sides []string, lines []bench.Line, verdicts []verdict) error {
	if asJSON {
		enc := json.NewEncoder(o.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(struct {
			Figures []bench.JSONFigures `json:"figures"`
			Targets []verdict           `json:"targets,omitempty"`
		}{bench.JSONLines(sides, lines), verdicts})
	}
	if err := bench.PrintLines(o.Out, sides, lines); err != nil {
		return err
	}
	return o.reportTargets(verdicts)
}

func (o *options) reportTargets(verdicts []verdict) error {
	if len(verdicts) == 0 {
		return nil
	}
	fmt.Fprintln(o.Out)
	tw := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "row\twhat\ttarget\tmeasured\tverdict")
	for _, v := range verdicts {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", v.Row, v.What, v.Target, v.Measured, v.text())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(o.Out)
	seen := make(map[string]bool)
	for _, v := range verdicts { // details shared by several verdicts are printed once
		if v.Detail != "" && !seen[v.Row+v.Detail] {
			seen[v.Row+v.Detail] = true
			fmt.Fprintf(o.Out, "%s: %s\n", v.Row, v.Detail)
		}
	}
	return nil
}
