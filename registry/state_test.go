package registry

import (
	"slices"
	"testing"
)

// expectedMoves is the state machine written out by hand: one line per state, one word per event in the order of
// Events; '-' where the event means nothing.
var expectedMoves = map[State][13]State{
	// route deliver run succeed fail cancel time_out lose reject expire queue accept return
	StateQueued: {"-", "-", "-", "-", "-", "cancelled", "-", "-", "rejected", "expired", "-", "accepted", "-"},
	StateAccepted: {"routed", "delivered", "running", "succeeded", "failed", "cancelled", "timed_out", "lost",
		"rejected", "expired", "queued", "-", "-"},
	StateRouted: {"-", "delivered", "running", "succeeded", "failed", "cancelled", "timed_out", "lost", "rejected",
		"expired", "-", "-", "-"},
	StateDelivered: {"-", "-", "running", "succeeded", "failed", "cancelled", "timed_out", "lost", "-", "-", "-", "-",
		"accepted"},
	StateRunning:   {"-", "-", "-", "succeeded", "failed", "cancelled", "timed_out", "lost", "-", "-", "-", "-", "-"},
	StateSucceeded: {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
	StateFailed:    {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
	StateCancelled: {"-", "-", "-", "succeeded", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
	StateTimedOut:  {"-", "-", "-", "succeeded", "failed", "-", "-", "-", "-", "-", "-", "-", "-"},
	StateLost:      {"-", "-", "-", "succeeded", "failed", "-", "-", "-", "-", "-", "-", "-", "-"},
	StateRejected:  {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
	StateExpired:   {"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"},
}

func TestStatusOfEveryState(t *testing.T) {
	want := map[State]Status{
		StateQueued:   StatusPending,
		StateAccepted: StatusPending, StateRouted: StatusPending, StateDelivered: StatusExecuting,
		StateRunning:   StatusExecuting,
		StateSucceeded: StatusCompleted, StateFailed: StatusFailed, StateCancelled: StatusFailed,
		StateTimedOut: StatusFailed,
		StateLost:     StatusFailed, StateRejected: StatusFailed, StateExpired: StatusFailed,
	}
	for _, s := range States() {
		if got, known := s.Status(), want[s]; got != known {
			t.Errorf("%s is %q, want %q", s, got, known)
		}
	}
}

func TestEveryMove(t *testing.T) {
	order := []Event{
		"route", "deliver", "run", "succeed", "fail", "cancel", "time_out", "lose", "reject", "expire",
		"queue", "accept", "return",
	}
	if !slices.Equal(Events(), order) {
		t.Fatalf("events %v: change the table with them", Events())
	}
	if len(States()) != len(expectedMoves) {
		t.Fatalf("%d states, %d in the table", len(States()), len(expectedMoves))
	}
	for _, s := range States() {
		for i, e := range order {
			want := expectedMoves[s][i]
			next, ok := s.Next(e)
			if !ok {
				next = "-"
			}
			if next != want {
				t.Errorf("%s in state %s leads to %s, want %s", e, s, next, want)
			}
			if from, ok := Sources(e)[s]; ok != (want != "-") || ok && from != want {
				t.Errorf("sources of %s say %s of state %s, want %s", e, from, s, want)
			}
		}
	}
	if next, ok := State("nonsense").Next(EventRun); ok {
		t.Errorf("an unknown state moves to %s", next)
	}
	if from := Sources("nonsense"); len(from) != 0 {
		t.Errorf("an unknown event has sources %v", from)
	}
}

func TestWhatStatesSay(t *testing.T) {
	for s, want := range map[State]struct {
		final, answered bool
		dispatched      Dispatched
		overdue         Event
	}{
		StateAccepted:  {false, false, DispatchedNo, EventExpire},
		StateRouted:    {false, false, DispatchedUnknown, EventExpire},
		StateDelivered: {false, false, DispatchedYes, EventTimeOut},
		StateRunning:   {false, false, DispatchedYes, EventTimeOut},
		StateSucceeded: {true, true, DispatchedYes, ""},
		StateFailed:    {true, true, DispatchedYes, ""},
		StateCancelled: {true, false, "", ""},
		StateTimedOut:  {true, false, "", ""},
		StateLost:      {true, false, "", ""},
		StateRejected:  {true, false, DispatchedNo, ""},
		StateExpired:   {true, false, DispatchedNo, ""},
	} {
		e, ok := s.Overdue()
		if s.Final() != want.final || s.Answered() != want.answered || s.Dispatched() != want.dispatched ||
			e != want.overdue || ok != (want.overdue != "") {
			t.Errorf("%s: final %v, answered %v, dispatched %q, overdue %q", s, s.Final(), s.Answered(), s.Dispatched(),
				e)
		}
		if ok {
			if _, applies := s.Next(e); !applies {
				t.Errorf("%s: %s ends it but does not apply", s, e)
			}
		}
	}
}

// TestFinalStatesTakeAnswersOnly holds for whatever the table becomes.
func TestFinalStatesTakeAnswersOnly(t *testing.T) {
	for _, s := range States() {
		for _, e := range Events() {
			next, ok := s.Next(e)
			if !s.Final() || !ok {
				continue
			}
			if e != EventSucceed && e != EventFail {
				t.Errorf("%s leaves the final state %s", e, s)
			}
			if !next.Answered() {
				t.Errorf("%s leads from the final state %s to %s", e, s, next)
			}
		}
	}
}
