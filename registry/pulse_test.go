package registry

import (
	"testing"
	"time"
)

// A round trip is rounded up: one that is known is never zero, which says that it is not.
func TestNewPulse(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 1_999_999, time.FixedZone("", 3600))
	for trip, want := range map[time.Duration]time.Duration{
		0:                              0,
		time.Nanosecond:                time.Millisecond,
		300 * time.Microsecond:         time.Millisecond,
		40 * time.Millisecond:          40 * time.Millisecond,
		time.Second + time.Microsecond: 1001 * time.Millisecond,
	} {
		p := NewPulse(at, trip)
		if p.RoundTrip != want || !p.At.Equal(at.Truncate(time.Millisecond)) || p.At.Location() != time.UTC {
			t.Errorf("%v: %+v", trip, p)
		}
	}
}
