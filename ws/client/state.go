package client

import "time"

// Phase is where the connection stands.
type Phase string

// The phases.
const (
	PhaseConnecting Phase = "connecting"
	PhaseConnected  Phase = "connected" // the gateway has answered a registration; reported again after each change
	PhaseWaiting    Phase = "waiting"   // before the next attempt
)

// State is what WithState's function is told.
type State struct {
	Phase      Phase
	SessionID  string        // empty until the gateway chose one
	Resumed    bool          // with PhaseConnected: somebody held the session before
	Registered int           // with PhaseConnected: how many tools the gateway has of this session
	Rejected   []Rejection   // with PhaseConnected: what the last registration left out
	Err        error         // with PhaseWaiting: what ended the last attempt
	RetryIn    time.Duration // with PhaseWaiting
}
