package mcptest

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/mcp-conformance.md")

const (
	tableFile  = "../../../docs/mcp-conformance.md"
	tableBegin = "<!-- table: go test ./cmd/farhand/mcptest -run TestConformance -update -->\n"
	tableEnd   = "<!-- end of table -->\n"
)

// checkTable checks that the document says what the suite said.
func checkTable(t *testing.T, rows []row) {
	t.Helper()
	text, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no marks around its table", tableFile)
	}
	want := before + tableBegin + tableOf(rows) + tableEnd + after
	if want == string(text) {
		return
	}
	if !*update {
		t.Errorf("%s does not say what the suite says; run\n"+
			"  go test ./cmd/farhand/mcptest -run TestConformance -update", tableFile)
		return
	}
	if err := os.WriteFile(tableFile, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tableOf renders a line for each scenario, scored ones first.
func tableOf(rows []row) string {
	var text strings.Builder
	for _, scored := range []bool{true, false} {
		title := map[bool]string{true: "scenario", false: "scenario, not scored"}[scored]
		fmt.Fprintf(&text, "\n| %s | %s | why not |\n| --- | --- | --- | --- |\n", title,
			strings.Join(revisions, " | "))
		var names []string
		for _, r := range rows {
			if r.scored == scored && !slices.Contains(names, r.scenario) {
				names = append(names, r.scenario)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			line, reasons := "| `"+name+"` |", []string(nil)
			for _, revision := range revisions {
				cell := "–"
				for _, r := range rows {
					if r.scenario == name && r.revision == revision && r.scored == scored {
						cell = r.verdict()
						reasons = append(reasons, r.reasons()...)
					}
				}
				line += " " + cell + " |"
			}
			slices.Sort(reasons)
			fmt.Fprintf(&text, "%s %s |\n", line, strings.Join(slices.Compact(reasons), " "))
		}
	}
	return text.String() + "\n"
}

// verdict says how a scenario went.
func (r row) verdict() string {
	switch {
	case len(r.failed) > 0 && len(r.passed) > 0:
		return fmt.Sprintf("%d of %d checks", len(r.passed), len(r.passed)+len(r.failed))
	case len(r.failed) > 0:
		return "no"
	case len(r.passed) > 0:
		return "passes"
	default:
		return "nothing to check"
	}
}

// reasons says why its failed checks do not apply.
func (r row) reasons() (list []string) {
	for _, check := range r.failed {
		for _, e := range exceptions {
			if e.covers(r, check) {
				list = append(list, e.reason)
			}
		}
	}
	return list
}
