package textsafe

import (
	"strings"
	"testing"
	"unicode"
)

// Each line has a character and at least one that it looks like.
func TestConfusablesFile(t *testing.T) {
	lines := strings.Count(confusablesFile, "\n")
	table := confusables()
	if lines < 6000 || len(table) != lines {
		t.Fatalf("%d lines, %d characters", lines, len(table))
	}
	for line := range strings.Lines(confusablesFile) {
		if len(strings.Fields(line)) < 2 {
			t.Errorf("%q", line)
		}
	}
	for r, alike := range table {
		if r > unicode.MaxRune || alike == "" || strings.ContainsRune(alike, 0) {
			t.Errorf("%U looks like %q", r, alike)
		}
	}
	for from, to := range map[string]string{"\u0440\u0430\u0443\u0440\u0430l": "paypal", "ℓοgin": "login",
		"rn": "rn", "m": "rn", "0": "O"} {
		if got := exactSkeleton(from); got != to {
			t.Errorf("the skeleton of %q is %q, want %q", from, got, to)
		}
	}
}
