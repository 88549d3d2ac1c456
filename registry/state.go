package registry

import (
	"maps"
	"time"
)

// State is where a call stands.
type State string

// The states of a call.
//
//	accepted ─▶ routed ─▶ delivered ─▶ running ─▶ succeeded | failed
//
// A call that does not get that far ends as rejected (a check refused it, or no device could take it), expired (an
// asynchronous call nobody could take in time), cancelled, timed_out or lost. The last three are final for whoever
// is waiting, but not for the record: the device's answer may still come, and then it is kept.
const (
	StateAccepted  State = "accepted"  // known to the gateway
	StateRouted    State = "routed"    // handed to the pod that owns the session
	StateDelivered State = "delivered" // written to the device's socket
	StateRunning   State = "running"   // the device said that it has begun
	StateSucceeded State = "succeeded" // the tool ran
	StateFailed    State = "failed"    // the tool ran and failed
	StateCancelled State = "cancelled" // the caller gave it up
	StateTimedOut  State = "timed_out" // no answer before the deadline
	StateLost      State = "lost"      // the connection, or the pod that held it, is gone
	StateRejected  State = "rejected"  // refused; never reached a device
	StateExpired   State = "expired"   // nobody could take it before its deadline; never reached a device
)

// States returns every state, for tests and documents that must cover all of them.
func States() []State {
	return []State{
		StateAccepted, StateRouted, StateDelivered, StateRunning, StateSucceeded, StateFailed, StateCancelled,
		StateTimedOut, StateLost, StateRejected, StateExpired,
	}
}

// Event is what moves a call from one state to the next.
type Event string

// The events.
const (
	EventRoute   Event = "route"    // handed to the owning pod
	EventDeliver Event = "deliver"  // written to the socket
	EventRun     Event = "run"      // accepted by the device, or progress
	EventSucceed Event = "succeed"  // answered
	EventFail    Event = "fail"     // answered: the tool failed
	EventCancel  Event = "cancel"   // given up by the caller
	EventTimeOut Event = "time_out" // the deadline passed
	EventLose    Event = "lose"     // connection or pod gone
	EventReject  Event = "reject"   // refused before it reached a device
	EventExpire  Event = "expire"   // not taken before the deadline
	EventReturn  Event = "return"   // the socket did not take it after all; said by the pod that claimed it, nobody else
)

// Events returns every event.
func Events() []Event {
	return []Event{
		EventRoute, EventDeliver, EventRun, EventSucceed, EventFail, EventCancel, EventTimeOut, EventLose,
		EventReject, EventExpire, EventReturn,
	}
}

// machine is the state machine. It is never changed.
var machine = transitions()

// transitions is the whole state machine: what is not in it does not happen. Steps may be skipped forwards, because
// a fast answer overtakes the notes about its own delivery.
func transitions() map[State]map[Event]State {
	answered := map[Event]State{EventSucceed: StateSucceeded, EventFail: StateFailed}
	ended := map[Event]State{EventCancel: StateCancelled, EventTimeOut: StateTimedOut, EventLose: StateLost}
	undelivered := map[Event]State{EventReject: StateRejected, EventExpire: StateExpired}
	delivering := map[Event]State{EventDeliver: StateDelivered, EventRun: StateRunning}
	return map[State]map[Event]State{
		StateAccepted:  union(map[Event]State{EventRoute: StateRouted}, delivering, answered, ended, undelivered),
		StateRouted:    union(delivering, answered, ended, undelivered),
		StateDelivered: union(map[Event]State{EventRun: StateRunning, EventReturn: StateAccepted}, answered, ended),
		StateRunning:   union(answered, ended),
		// The failure a device reports of a call it was told to cancel is no news.
		StateCancelled: map[Event]State{EventSucceed: StateSucceeded}, // late
		StateTimedOut:  answered,                                      // late
		StateLost:      answered,                                      // late
		StateSucceeded: nil,
		StateFailed:    nil,
		StateRejected:  nil,
		StateExpired:   nil,
	}
}

func union(all ...map[Event]State) map[Event]State {
	merged := make(map[Event]State)
	for _, m := range all {
		maps.Copy(merged, m)
	}
	return merged
}

// Next returns the state an event leads to, false if the event means nothing in state s.
func (s State) Next(e Event) (State, bool) {
	next, ok := machine[s][e]
	return next, ok
}

// Sources returns, for an event, the states it applies to and where it leads from each. Stores enforce the state
// machine with it, inside their own atomic step.
func Sources(e Event) map[State]State {
	from := make(map[State]State)
	for s, next := range machine {
		if to, ok := next[e]; ok {
			from[s] = to
		}
	}
	return from
}

// Final reports whether a caller that waits is done in this state.
func (s State) Final() bool {
	switch s {
	case StateAccepted, StateRouted, StateDelivered, StateRunning:
		return false
	default:
		return true
	}
}

// Status groups states by what people who follow a call want to know.
type Status string

// The statuses.
const (
	StatusPending   Status = "pending"   // nothing runs yet
	StatusExecuting Status = "executing" // the device has it, or it runs here
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed" // for whatever reason; an answer that comes late may still complete it
)

// Statuses returns every status.
func Statuses() []Status {
	return []Status{StatusPending, StatusExecuting, StatusCompleted, StatusFailed}
}

// Status returns the group s is in.
func (s State) Status() Status {
	switch s {
	case StateAccepted, StateRouted:
		return StatusPending
	case StateDelivered, StateRunning:
		return StatusExecuting
	case StateSucceeded:
		return StatusCompleted
	default:
		return StatusFailed
	}
}

// Answered reports whether the device's answer is in. Nothing replaces it.
func (s State) Answered() bool { return s == StateSucceeded || s == StateFailed }

// OverdueGrace is how long a store waits after the deadline of a call before it says itself that the call has ended:
// whoever waits for it says so first.
const OverdueGrace = 2 * time.Second

// Overdue returns the event that ends a call in state s when its deadline has passed and nobody was left to say so.
// It reports false for final states.
func (s State) Overdue() (Event, bool) {
	switch s {
	case StateAccepted, StateRouted:
		return EventExpire, true
	case StateDelivered, StateRunning:
		return EventTimeOut, true
	default:
		return "", false
	}
}

// Dispatched says what being in a state proves about whether the call reached its device; empty when it proves
// nothing beyond what was known before.
func (s State) Dispatched() Dispatched {
	switch s {
	case StateAccepted, StateRejected, StateExpired:
		return DispatchedNo
	case StateRouted:
		return DispatchedUnknown
	case StateDelivered, StateRunning, StateSucceeded, StateFailed:
		return DispatchedYes
	default:
		return ""
	}
}

// Keeping is what becomes of the stored record of a call without one of its own when the pod that runs it keeps it
// anew: what that pod says is what the call's caller was told.
type Keeping string

// The ways.
const (
	KeepReplace Keeping = "replace" // the new record takes its place
	KeepFill    Keeping = "fill"    // it stays, and only what it lacks is filled in
	KeepLate    Keeping = "late"    // its answer stays, and came after the end that the new record tells of
	KeepAnswer  Keeping = "answer"  // the new record takes its place, and its answer came after the end that was stored
)

// Keep returns what becomes of a record in state s when one in state told is kept.
func (s State) Keep(told State) Keeping {
	switch {
	case !s.Final():
		return KeepReplace
	case !told.Final():
		return KeepFill
	case !s.Answered() && told.Answered():
		return KeepAnswer
	case !s.Answered():
		return KeepFill
	case told.Answered():
		return KeepReplace // of two answers the one its caller has counts
	case told.leadsTo(s):
		return KeepLate
	default:
		return KeepReplace
	}
}

// leadsTo reports whether an event leads from s to next.
func (s State) leadsTo(next State) bool {
	for _, to := range machine[s] {
		if to == next {
			return true
		}
	}
	return false
}

// progressRank is the rank of what a device reports of a call on its way.
const progressRank = 7

// rank orders what is told of a call: nothing of a lower rank follows. It is even; of an odd one there may be several.
func (s State) rank() int {
	switch s {
	case StateAccepted:
		return 0
	case StateRouted:
		return 2
	case StateDelivered:
		return 4
	case StateRunning:
		return 6
	case StateCancelled, StateTimedOut, StateLost:
		return 8 // the answer may still come
	default:
		return 10
	}
}
