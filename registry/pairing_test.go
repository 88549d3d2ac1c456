package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/registry"
)

// The guesses are full whose windows must pass. An approver has a part of what is left of the tenant's guesses, and the
// tenant a part of what is left of all.
func TestFullGuesses(t *testing.T) {
	guesses := []registry.Guess{
		{Name: "approver", Limit: 5, Window: time.Hour, Share: 4},
		{Name: "tenant", Limit: 100, Window: time.Hour, Share: 8},
		{Name: "all", Limit: 400, Window: time.Hour},
	}
	for name, tt := range map[string]struct {
		counts []int
		full   string
	}{
		"nothing is counted":              {[]int{0, 0, 0}, ""},
		"the approver has had all":        {[]int{5, 5, 5}, "approver"},
		"the tenant has had its share":    {[]int{0, 50, 50}, "tenant approver"},
		"little is left, some for others": {[]int{0, 0, 392}, ""},
		"and the approver had that":       {[]int{1, 0, 399}, "approver"},
		"nothing is left":                 {[]int{0, 0, 400}, "all tenant approver"},
	} {
		var names []string
		for _, g := range registry.FullGuesses(guesses, tt.counts) {
			names = append(names, g.Name)
		}
		if got := strings.Join(names, " "); got != tt.full {
			t.Errorf("%s: %q are full, want %q", name, got, tt.full)
		}
	}
}
