package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// JSONFigures is one line for one side.
type JSONFigures struct {
	Side string `json:"side"`
	Figures
}

// Report prints lines, side by side.
func (o *Options) Report(asJSON bool, sides []string, lines []Line) error {
	if !asJSON {
		return PrintLines(o.Out, sides, lines)
	}
	enc := json.NewEncoder(o.Out)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"figures": JSONLines(sides, lines)})
}

// JSONLines converts lines for output as JSON.
func JSONLines(sides []string, lines []Line) []JSONFigures {
	list := []JSONFigures{}
	for _, l := range lines {
		for i, f := range l.Sides {
			list = append(list, JSONFigures{Side: sides[i], Figures: f})
		}
	}
	return list
}

// PrintLines prints lines as a table.
func PrintLines(out io.Writer, sides []string, lines []Line) error {
	tw := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if len(lines) > 0 {
		fmt.Fprintln(tw, "route\tworkload\tcallers\t\tcalls/s\tp50\tp90\tp99\tmax\terrors\tused\tfound")
	}
	for _, l := range lines {
		for i, f := range l.Sides {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				l.Route, l.Workload, l.Callers, sides[i], f.PerSecond, Short(f.P50), Short(f.P90), Short(f.P99),
				Short(f.Max), ErrorsText(f.Errors), UsageText(f.Usage), f.Found.Text())
		}
	}
	return tw.Flush()
}

// ErrorsText renders the number of errors by code.
func ErrorsText(errors map[string]int64) string {
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

// UsageText renders the usage of processes.
func UsageText(list []Usage) string {
	parts := make([]string, len(list))
	for i, u := range list {
		parts[i] = fmt.Sprintf("%s %.0f%% %.0f MB", u.Name, u.CPU*100, float64(u.Memory)/1e6)
	}
	return strings.Join(parts, ", ")
}

// Short renders a duration with about three digits.
func Short(d time.Duration) string {
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
