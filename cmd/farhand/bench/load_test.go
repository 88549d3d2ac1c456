package bench

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// slowCaller takes longer for a call than the run is long.
type slowCaller struct {
	takes time.Duration
	code  string
}

func (c slowCaller) Call() string {
	time.Sleep(c.takes)
	return c.code
}

func (slowCaller) Close() {}

// TestWhatOutlastsTheRunIsNotHidden: the callers that fail slowest are those whose failure must not be missed.
func TestWhatOutlastsTheRunIsNotHidden(t *testing.T) {
	synctest.Test(t, testWhatOutlastsTheRun)
}

func testWhatOutlastsTheRun(t *testing.T) {
	o := Options{Duration: 500 * time.Millisecond}
	const takes = 600 * time.Millisecond
	f, err := o.Drive(t.Context(), "callers", 10, func(i int) (Caller, error) {
		if i < 8 {
			return slowCaller{takes, "lost"}, nil
		}
		return slowCaller{takes, ""}, nil
	})
	if !errors.Is(err, errNothing) {
		t.Fatal(err)
	}
	if f.Failed() != 8 || f.Errors["lost"] != 8 {
		t.Errorf("errors %v, want 8 lost", f.Errors)
	}
	if f.Max < takes {
		t.Errorf("max %v, want at least %v", f.Max, takes)
	}
	if f.Calls != 0 || f.PerSecond != 0 || f.P50 != 0 {
		t.Errorf("%d calls and a median of %v, although none ended within the run", f.Calls, f.P50)
	}
}

// TestARunWaitsForItsFirstSuccess: on a busy machine not one call may end within a short run. The figures are worth
// little then, but a run that only shows that everything works must not fail for it.
func TestARunWaitsForItsFirstSuccess(t *testing.T) {
	synctest.Test(t, testARunWaits)
}

func testARunWaits(t *testing.T) {
	o := Options{Duration: time.Millisecond, Grace: time.Minute}
	f, err := o.Drive(t.Context(), "callers", 4, func(i int) (Caller, error) {
		if i > 0 {
			return slowCaller{10 * time.Millisecond, "lost"}, nil
		}
		return slowCaller{100 * time.Millisecond, ""}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if f.Calls != 1 || f.P50 <= 0 || f.Errors["lost"] < 3 {
		t.Errorf("%d calls, median %v, errors %v: the first success was not waited for", f.Calls, f.P50, f.Errors)
	}
}
