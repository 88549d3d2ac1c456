package registry

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

func TestApplyWritesTheTimeline(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	r := Record{
		CallID: "c", State: StateAccepted, Dispatched: DispatchedNo, Timeline: []Step{{StateAccepted, at(0)}},
	}
	key := Key{Tenant: "t", Session: "s"}
	result := &Result{Success: true, Output: "out"}
	gone := Errorf(CodeLost, "gone").With(DispatchedYes)
	for i, step := range []struct {
		event  Event
		change Change
	}{
		{EventRoute, Change{Session: key, DeviceID: "d"}},
		{EventDeliver, Change{Owner: "pod"}},
		{EventRun, Change{}},
		{EventLose, Change{Err: gone}},
		{EventSucceed, Change{Session: key, Result: result}},
	} {
		if r.Late || !r.Apply(step.event, step.change, at(i+1)) {
			t.Fatalf("%s does not apply to %+v", step.event, r)
		}
		if step.event == EventLose && (r.Err != gone || r.Dispatched != DispatchedYes) {
			t.Errorf("lost: %+v", r)
		}
	}
	want := Record{
		CallID: "c", SessionID: "s", DeviceID: "d", Owner: "pod", State: StateSucceeded, Dispatched: DispatchedYes,
		Late: true, Result: result, Timeline: []Step{
			{StateAccepted, at(0)}, {StateRouted, at(1)}, {StateDelivered, at(2)}, {StateRunning, at(3)},
			{StateLost, at(4)}, {StateSucceeded, at(5)},
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	if r.Apply(EventFail, Change{Result: &Result{}, Owner: "x"}, at(9)) || !reflect.DeepEqual(r, want) {
		t.Errorf("a second answer changed it: %+v", r)
	}
}

func TestApplyLearnsWhetherItWasDispatched(t *testing.T) {
	for _, c := range []struct {
		before, says, want Dispatched
		event              Event
	}{
		{DispatchedNo, "", DispatchedNo, EventCancel},
		{DispatchedUnknown, "", DispatchedUnknown, EventTimeOut},
		{DispatchedUnknown, DispatchedYes, DispatchedYes, EventLose},
		{DispatchedUnknown, DispatchedYes, DispatchedNo, EventReject}, // the state knows better
		{DispatchedUnknown, "", DispatchedNo, EventExpire},
	} {
		r := Record{State: StateRouted, Dispatched: c.before}
		if !r.Apply(c.event, Change{Err: Errorf(CodeLost, "x").With(c.says)}, time.Time{}) || r.Dispatched != c.want {
			t.Errorf("%s: dispatched %q, want %q", c.event, r.Dispatched, c.want)
		}
	}
}

// A claim is written before the call is given to the socket, so a caller that heard nothing cannot say.
func TestEndsAfterTheClaim(t *testing.T) {
	for _, c := range []struct {
		state      State
		says, want Dispatched
	}{
		{StateDelivered, DispatchedUnknown, DispatchedUnknown},
		{StateDelivered, DispatchedYes, DispatchedYes}, // a receipt had come
		{StateDelivered, "", DispatchedYes},
		{StateDelivered, DispatchedNo, DispatchedYes},    // as the record was when the error was made
		{StateRunning, DispatchedUnknown, DispatchedYes}, // the device has reported
	} {
		for _, event := range []Event{EventLose, EventTimeOut, EventCancel} {
			r := Record{State: c.state, Dispatched: DispatchedYes}
			if !r.Apply(event, Change{Err: Lost().With(c.says)}, time.Time{}) || r.Dispatched != c.want {
				t.Errorf("%s when %s, the error says %q: dispatched %q, want %q", event, c.state, c.says, r.Dispatched,
					c.want)
			}
		}
	}
}

func TestOutcome(t *testing.T) {
	for state, code := range map[State]Code{
		StateExpired: CodeTimeout, StateTimedOut: CodeTimeout, StateCancelled: CodeCancelled, StateLost: CodeLost,
	} {
		_, err := Record{State: state, Dispatched: DispatchedNo}.Outcome()
		if !errors.Is(err, code) || AsError(err).Dispatched != DispatchedNo {
			t.Errorf("%s: %v", state, err)
		}
	}
	r := Record{State: StateFailed, Err: Errorf(CodeBusy, "x"), Result: &Result{Error: "no"}}
	if res, err := r.Outcome(); err != nil || res.Error != "no" {
		t.Errorf("a result counts for more than an error: %+v, %v", res, err)
	}
	r = Record{State: StateRejected, Err: Errorf(CodeBusy, "x"), Dispatched: DispatchedNo}
	if _, err := r.Outcome(); !errors.Is(err, CodeBusy) || AsError(err).Dispatched != DispatchedNo {
		t.Errorf("rejected: %v", err)
	}
}

func TestSummaryLeavesTheRecordAlone(t *testing.T) {
	r := Record{Result: &Result{Success: true, Output: "secret", Structured: MustJSON(`{}`)},
		Err: Errorf(CodeLost, "x")}
	s := r.Summary()
	if !reflect.DeepEqual(s.Result, &Result{Success: true}) || s.Err != r.Err || r.Result.Output != "secret" {
		t.Errorf("summary %+v of %+v", s, r)
	}
}
