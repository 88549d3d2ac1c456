package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// jsonFigures is one line of the matrix for a program.
type jsonFigures struct {
	Side string `json:"side"`
	Figures
}

// report prints the matrix, side by side, and the target table if there is one.
func (o *Options) report(asJSON bool, sides []string, lines []line, verdicts []Verdict) error {
	if asJSON {
		doc := struct {
			Figures []jsonFigures `json:"figures"`
			Targets []Verdict     `json:"targets,omitempty"`
		}{Figures: []jsonFigures{}, Targets: verdicts}
		for _, l := range lines {
			for i, f := range l.sides {
				doc.Figures = append(doc.Figures, jsonFigures{Side: sides[i], Figures: f})
			}
		}
		enc := json.NewEncoder(o.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(doc)
	}
	tw := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
	if len(lines) > 0 {
		fmt.Fprintln(tw, "route\tcallers\t\tcalls/s\tp50\tp90\tp99\tmax\terrors\tused")
	}
	for _, l := range lines {
		for i, f := range l.sides {
			fmt.Fprintf(tw, "%s\t%d\t%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\n", l.route, l.callers, sides[i], f.PerSecond,
				shortly(f.P50), shortly(f.P90), shortly(f.P99), shortly(f.Max), errorsText(f.Errors), usageText(f.Usage))
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	return o.reportTargets(verdicts)
}

func (o *Options) reportTargets(verdicts []Verdict) error {
	if len(verdicts) == 0 {
		return nil
	}
	fmt.Fprintln(o.Out)
	tw := tabwriter.NewWriter(o.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "row\twhat\ttarget\tmeasured\tverdict")
	for _, v := range verdicts {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", v.Row, v.What, v.Target, v.Measured, v.verdict())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(o.Out)
	seen := make(map[string]bool)
	for _, v := range verdicts { // what several verdicts share is said once
		if v.Detail != "" && !seen[v.Row+v.Detail] {
			seen[v.Row+v.Detail] = true
			fmt.Fprintf(o.Out, "%s: %s\n", v.Row, v.Detail)
		}
	}
	return nil
}

func errorsText(errors map[string]int64) string {
	if len(errors) == 0 {
		return "-"
	}
	var parts []string
	for code, n := range errors {
		parts = append(parts, fmt.Sprintf("%s %d", code, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func usageText(list []Usage) string {
	parts := make([]string, len(list))
	for i, u := range list {
		parts[i] = fmt.Sprintf("%s %.0f%% %.0f MB", u.Name, u.CPU*100, float64(u.Memory)/1e6)
	}
	return strings.Join(parts, ", ")
}

// shortly renders a duration with about three digits.
func shortly(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.0fµs", float64(d)/float64(time.Microsecond))
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2fms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.0fms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
}
