package shell

import (
	"maps"
	"slices"
)

// Known returns the programs whose options are looked at.
func Known() []string { return slices.Sorted(maps.Keys(hazards)) }
