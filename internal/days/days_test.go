package days_test

import (
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/days"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30d": 30 * days.Day, "1d12h": 36 * time.Hour, "0d": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute,
		"-5s": -5 * time.Second, "0": 0, "106751d": 106751 * days.Day,
	} {
		if got, err := days.Parse(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "d", "-1d", "1.5d", "1d-2h", "1d2d", "106752d", "9999999999999999999d", "30", "1h2d", "30 d", "1D", "2w",
	} {
		if got, err := days.Parse(text); err == nil || !strings.Contains(err.Error(), "30d") {
			t.Errorf("%q was read as %v, %v", text, got, err)
		}
	}
}
