package main

import "testing"

// An amount of money has at most six decimal places. No amount loses a sign.
func TestAmounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, text string
		want       int64 // 0: an error
	}{
		{"calls", "5000", 5000}, {"bytes", "1KiB", 1024}, {"money", "25.50", 25_500_000}, {"money", "3", 3_000_000},
		{"money", "0.000001", 1}, {"money", "0.0000001", 0}, {"money", "-0.5", 0}, {"money", "1.-5", 0},
		{"money", "9223372036854775807", 0}, {"money", ".5", 0}, {"money", "x", 0}, {"calls", "x", 0},
	} {
		got, err := parseAmount(c.kind, c.text)
		if c.want == 0 && err == nil || c.want != 0 && (err != nil || got != c.want) {
			t.Errorf("%s=%s: %d, %v", c.kind, c.text, got, err)
		}
	}
}
