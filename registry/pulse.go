package registry

import "time"

// Pulse is what the last pong says of a device's connection. Its pod measures it, and the store has what the pod wrote
// with its last Refresh. The zero value: no pong is known.
type Pulse struct {
	At        time.Time     // when the pong came, by the clock of the pod; milliseconds
	RoundTrip time.Duration // from ping to pong, in whole milliseconds, at least one; zero: not known
}

// NewPulse returns the pulse of a pong that came at a time, so long after its ping; zero: it is not known how long.
func NewPulse(at time.Time, roundTrip time.Duration) Pulse {
	return Pulse{
		At:        at.UTC().Truncate(time.Millisecond),
		RoundTrip: (roundTrip + time.Millisecond - 1).Truncate(time.Millisecond),
	}
}
