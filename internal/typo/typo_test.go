package typo_test

import (
	"testing"

	"github.com/farhand/farhand/internal/typo"
)

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"same", "same", 0},
		{"kitten", "sitting", 3},
		{"flaw", "lawn", 2},
		{"größe", "grösse", 2},
		{"日本語", "日本", 1},
	} {
		if got := typo.Distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := typo.Distance(tt.b, tt.a); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}
