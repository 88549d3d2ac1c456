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

// State is what the function of WithState gets.
type State struct {
	Phase      Phase
	SessionID  string        // empty until the gateway chose one
	Resumed    bool          // with PhaseConnected: the session existed before
	Registered int           // with PhaseConnected: how many tools the session offers
	Rejected   []Rejection   // with PhaseConnected: what the last registration left out
	Err        error         // with PhaseWaiting: what ended the last attempt
	RetryIn    time.Duration // with PhaseWaiting
}
