// Package days reads durations as people write them: those of the standard library, plus days.
package days

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Day is 24 hours.
const Day = 24 * time.Hour

// Parse reads a duration such as 90s, 1h30m, 30d or 1d12h. Days come first and are whole.
func Parse(text string) (time.Duration, error) {
	rest, days := text, int64(0)
	if n, after, ok := strings.Cut(text, "d"); ok {
		var err error
		if days, err = strconv.ParseInt(n, 10, 64); err != nil || days < 0 || days > math.MaxInt64/int64(Day) {
			return 0, wrong(text)
		}
		if rest = after; rest == "" {
			rest = "0s"
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || days > 0 && (d < 0 || d > math.MaxInt64-time.Duration(days)*Day) {
		return 0, wrong(text)
	}
	return time.Duration(days)*Day + d, nil
}

func wrong(text string) error {
	return fmt.Errorf("%.40q is not a duration: write it as 90s, 30m, 24h or 30d", text)
}
