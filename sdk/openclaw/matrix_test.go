package openclaw_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// document has the matrix between two lines.
const (
	document    = "../../docs/openclaw.md"
	matrixBegin = "<!-- The table is written by the tests of OpenClaw's node hosts: `.ci/extra openclaw`. -->\n"
	matrixEnd   = "<!-- The end of the table. -->\n"
)

// results are what a version can do, in the order of steps.
type results struct {
	protocol int
	rows     []string
}

// matrix returns the table of versions and what works.
func matrix(of map[string]*results) string {
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names) // no month of these years has two digits
	var b strings.Builder
	b.WriteString("| node host |")
	for _, name := range names {
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(names)) + "\n| protocol |")
	for _, name := range names {
		fmt.Fprintf(&b, " %d |", of[name].protocol)
	}
	b.WriteString("\n")
	for i, s := range steps {
		fmt.Fprintf(&b, "| %s |", s.what)
		for _, name := range names {
			note := "not tried"
			if i < len(of[name].rows) {
				note = of[name].rows[i]
			}
			fmt.Fprintf(&b, " %s |", note)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// holdDocument compares the document with a matrix, or writes it with -update.
func holdDocument(t *testing.T, table string) {
	t.Helper()
	before, old, after := cutDocument(t)
	switch {
	case *update:
		must(t, os.WriteFile(document, []byte(before+"\n"+table+"\n"+after), 0o644))
	case strings.TrimSpace(old) != strings.TrimSpace(table):
		t.Errorf("%s has another table; run the test with -update. It is now:\n%s", document, table)
	}
}

// cutDocument returns the document before the table, the table, and the rest.
func cutDocument(t *testing.T) (before, table, after string) {
	t.Helper()
	text, err := os.ReadFile(document)
	must(t, err)
	before, rest, begins := strings.Cut(string(text), matrixBegin)
	table, after, ends := strings.Cut(rest, matrixEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for its table", document)
	}
	return before + matrixBegin, table, matrixEnd + after
}

// TestMatrixHasItsRows holds the table in the document to the versions and steps of these tests.
func TestMatrixHasItsRows(t *testing.T) {
	_, table, _ := cutDocument(t)
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if want := "| node host | " + strings.Join(pinned(t), " | ") + " |"; lines[0] != want {
		t.Errorf("the table is of %q, the tests are of %q", lines[0], want)
	}
	for i, s := range steps {
		if i+3 >= len(lines) || !strings.HasPrefix(lines[i+3], "| "+s.what+" |") {
			t.Errorf("the table has no row %q at its place", s.what)
		}
	}
	if len(lines) != len(steps)+3 {
		t.Errorf("the table has %d rows, the tests %d steps", len(lines)-3, len(steps))
	}
}
