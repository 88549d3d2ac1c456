// Package bytesize reads and writes sizes with units: 1MiB, 512KB, 78 KiB.
package bytesize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// prefixes are those of the units: each is 1,024 times the one before (KiB), or 1,000 times (KB).
const prefixes = "kmgtpe"

// Parse reads a number of bytes with or without a unit. Case, spaces before the unit, and the B of the unit do not
// count; KiB is 1,024 bytes and KB is 1,000. Digits may be separated by commas.
func Parse(text string) (uint64, error) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != ',' })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text[:end], ",", ""), 64)
	if err != nil {
		return 0, fmt.Errorf("%q does not begin with a number", text)
	}
	unit := strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text[end:])), "b")
	base := 1000.0
	if prefix, binary := strings.CutSuffix(unit, "i"); binary {
		unit, base = prefix, 1024
	}
	power := strings.Index(prefixes, unit) + 1
	if unit == "" {
		power = 0
	}
	if len(unit) > 1 || unit != "" && power == 0 || unit == "" && base == 1024 {
		return 0, fmt.Errorf("%q has no valid byte unit", text)
	}
	if n *= math.Pow(base, float64(power)); n >= math.MaxUint64 {
		return 0, fmt.Errorf("%q is too large", text)
	}
	return uint64(n), nil
}

// Format writes a size with two digits at least: 9 B, 1.5 KiB, 78 KiB.
func Format(n uint64) string {
	value, unit := float64(n), "B"
	for _, prefix := range strings.ToUpper(prefixes) {
		if math.Round(value) < 1024 {
			break
		}
		value, unit = value/1024, string(prefix)+"iB"
	}
	digits := 0
	if unit != "B" && math.Round(value*10) < 100 {
		digits = 1
	}
	return strconv.FormatFloat(value, 'f', digits, 64) + " " + unit
}
