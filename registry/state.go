package registry

import (
	"maps"
	"time"
)

// State is the state of a call.
type State string

// The states of a call.
//
//	queued ─▶ accepted ─▶ routed ─▶ delivered ─▶ running ─▶ succeeded | failed
//
// Only a call to a sleeping device is queued. If the device leaves before it has the call, the call is queued again.
// A call that does not get that far ends as rejected (a check refused it, or no device could take it), expired (an
// asynchronous call that no device took in time), cancelled, timed_out or lost. The last three are final for the
// waiting caller, but not for the record: a later answer of the device is still kept.
const (
	StateQueued    State = "queued"    // waits for its device, which sleeps or has earlier calls waiting
	StateAccepted  State = "accepted"  // known to the gateway
	StateRouted    State = "routed"    // handed to the pod that owns the session
	StateDelivered State = "delivered" // written to the device's socket
	StateRunning   State = "running"   // the device reported the start
	StateSucceeded State = "succeeded" // the tool ran
	StateFailed    State = "failed"    // the tool ran and failed
	StateCancelled State = "cancelled" // the caller cancelled it
	StateTimedOut  State = "timed_out" // no answer before the deadline
	StateLost      State = "lost"      // the connection, or the pod that held it, is gone
	StateRejected  State = "rejected"  // refused; never reached a device
	StateExpired   State = "expired"   // no device took it before its deadline; never reached a device
)

// States returns every state, for tests and documents that must cover all of them.
func States() []State {
	return []State{
		StateQueued, StateAccepted, StateRouted, StateDelivered, StateRunning, StateSucceeded, StateFailed,
		StateCancelled, StateTimedOut, StateLost, StateRejected, StateExpired,
	}
}

// Event moves a call from one state to the next.
type Event string

// The events.
const (
	EventRoute   Event = "route"    // handed to the owning pod
	EventDeliver Event = "deliver"  // written to the socket
	EventRun     Event = "run"      // accepted by the device, or progress
	EventSucceed Event = "succeed"  // answered
	EventFail    Event = "fail"     // answered: the tool failed
	EventCancel  Event = "cancel"   // cancelled by the caller
	EventTimeOut Event = "time_out" // the deadline passed
	EventLose    Event = "lose"     // connection or pod gone
	EventReject  Event = "reject"   // refused before it reached a device
	EventExpire  Event = "expire"   // not taken before the deadline
	EventQueue   Event = "queue"    // its device sleeps
	EventAccept  Event = "accept"   // a queued call is begun; only CallStore.BeginCall applies it
	EventReturn  Event = "return"   // the socket did not take it; only the claiming pod sends it
)

// Events returns every event.
func Events() []Event {
	return []Event{
		EventRoute, EventDeliver, EventRun, EventSucceed, EventFail, EventCancel, EventTimeOut, EventLose,
		EventReject, EventExpire, EventQueue, EventAccept, EventReturn,
	}
}

// machine is the state machine. It is never changed.
var machine = transitions()

// transitions returns the whole state machine. Transitions outside it do not happen. Steps may be skipped forwards,
// because a fast answer overtakes the notes about its own delivery.
func transitions() map[State]map[Event]State {
	answered := map[Event]State{EventSucceed: StateSucceeded, EventFail: StateFailed}
	ended := map[Event]State{EventCancel: StateCancelled, EventTimeOut: StateTimedOut, EventLose: StateLost}
	undelivered := map[Event]State{EventReject: StateRejected, EventExpire: StateExpired}
	delivering := map[Event]State{EventDeliver: StateDelivered, EventRun: StateRunning}
	return map[State]map[Event]State{
		StateQueued: union(map[Event]State{EventAccept: StateAccepted, EventCancel: StateCancelled}, undelivered),
		StateAccepted: union(map[Event]State{EventRoute: StateRouted, EventQueue: StateQueued},
			delivering, answered, ended, undelivered),
		StateRouted:    union(delivering, answered, ended, undelivered),
		StateDelivered: union(map[Event]State{EventRun: StateRunning, EventReturn: StateAccepted}, answered, ended),
		StateRunning:   union(answered, ended),
		// After a cancellation a device reports a failure, which adds nothing.
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

// Next returns the state after an event, or false if the event does not apply in state s.
func (s State) Next(e Event) (State, bool) {
	next, ok := machine[s][e]
	return next, ok
}

// Sources returns the states to which an event applies, each with its next state. Stores use it to enforce the state
// machine inside their own atomic step.
func Sources(e Event) map[State]State {
	from := make(map[State]State)
	for s, next := range machine {
		if to, ok := next[e]; ok {
			from[s] = to
		}
	}
	return from
}

// Status groups states for people who follow a call.
type Status string

// The statuses.
const (
	StatusPending   Status = "pending"   // not running yet
	StatusExecuting Status = "executing" // on the device, or running here
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed" // for any reason; a late answer may still complete it
)

// traits are the properties of a state.
type traits struct {
	status     Status
	overdue    Event      // ends the call after its deadline; empty: the state is final
	dispatched Dispatched // what the state proves; empty: nothing new
	rank       int        // orders the events of a call; even, so that a state is logged once; negative: never
}

// states has the traits of the states. It is never changed.
var states = map[State]traits{
	StateQueued:    {StatusPending, EventExpire, DispatchedNo, -2},
	StateAccepted:  {StatusPending, EventExpire, DispatchedNo, 0},
	StateRouted:    {StatusPending, EventExpire, DispatchedUnknown, 2},
	StateDelivered: {StatusExecuting, EventTimeOut, DispatchedYes, 4},
	StateRunning:   {StatusExecuting, EventTimeOut, DispatchedYes, 6},
	StateCancelled: {StatusFailed, "", "", 8}, // the answer may still come
	StateTimedOut:  {StatusFailed, "", "", 8},
	StateLost:      {StatusFailed, "", "", 8},
	StateSucceeded: {StatusCompleted, "", DispatchedYes, lastRank},
	StateFailed:    {StatusFailed, "", DispatchedYes, lastRank},
	StateRejected:  {StatusFailed, "", DispatchedNo, lastRank},
	StateExpired:   {StatusFailed, "", DispatchedNo, lastRank},
}

const (
	progressRank = 7 // of a device's reports
	lastRank     = 10
)

// traits returns what s says. An unknown state is a final one.
func (s State) traits() traits {
	if t, ok := states[s]; ok {
		return t
	}
	return traits{status: StatusFailed, rank: lastRank}
}

// Final reports whether the waiting caller gets its outcome in this state.
func (s State) Final() bool { return s.traits().overdue == "" }

// Status returns the status of s.
func (s State) Status() Status { return s.traits().status }

// Answered reports whether the device's answer has arrived. It is never replaced.
func (s State) Answered() bool { return s == StateSucceeded || s == StateFailed }

// OverdueGrace is how long after a call's deadline a store ends the call itself. A waiting caller ends it earlier.
const OverdueGrace = 2 * time.Second

// Overdue returns the event that ends a call in state s if its deadline has passed and its pod has not ended it. It
// returns false for final states.
func (s State) Overdue() (Event, bool) {
	e := s.traits().overdue
	return e, e != ""
}

// Dispatched returns what a state proves about whether the call reached its device. It is empty if the state proves
// nothing new.
func (s State) Dispatched() Dispatched { return s.traits().dispatched }

// Keeping says how a store merges the stored record of a light call with a new one from the pod that runs it. The new
// record has the outcome that the caller got.
type Keeping string

// The merge modes.
const (
	KeepReplace Keeping = "replace" // the new record replaces it
	KeepFill    Keeping = "fill"    // it stays; only missing fields are filled in
	KeepLate    Keeping = "late"    // its answer stays, as later than the end of the new record
	KeepAnswer  Keeping = "answer"  // the new record replaces it; its answer is later than the stored end
)

// Keep returns how a record in state s is merged with a new one in state next.
func (s State) Keep(next State) Keeping {
	switch {
	case !s.Final():
		return KeepReplace
	case !next.Final():
		return KeepFill
	case !s.Answered() && next.Answered():
		return KeepAnswer
	case !s.Answered():
		return KeepFill
	case next.Answered():
		return KeepReplace // of two answers, the one that the caller got counts
	case next.leadsTo(s):
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
