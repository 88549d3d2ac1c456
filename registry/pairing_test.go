package registry_test

import (
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// An approver has a part of what is left of the tenant's guesses, and the tenant a part of what is left of all.
func TestFullGuess(t *testing.T) {
	guesses := []registry.Guess{
		{Name: "approver", Limit: 5, Window: time.Hour, Share: 4},
		{Name: "tenant", Limit: 100, Window: time.Hour, Share: 8},
		{Name: "all", Limit: 400, Window: time.Hour},
	}
	for name, tt := range map[string]struct {
		counts []int
		full   int
	}{
		"nothing is counted":              {[]int{0, 0, 0}, -1},
		"the approver has had all":        {[]int{5, 5, 5}, 0},
		"the tenant has had its share":    {[]int{0, 50, 50}, 0},
		"little is left, some for others": {[]int{0, 0, 392}, -1},
		"and the approver had that":       {[]int{1, 0, 399}, 0},
		"nothing is left":                 {[]int{0, 0, 400}, 0},
	} {
		if got := registry.FullGuess(guesses, tt.counts); got != tt.full {
			t.Errorf("%s: guess %d is full, want %d", name, got, tt.full)
		}
	}
}
