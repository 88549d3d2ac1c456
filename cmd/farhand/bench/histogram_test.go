package bench

import (
	"testing"
	"time"
)

func TestHistogramIsExactToOnePercent(t *testing.T) {
	var h, other Histogram
	for i := 1; i <= 10_000; i++ {
		half := &h
		if i%2 == 0 {
			half = &other
		}
		half.Record(time.Duration(i) * 10 * time.Microsecond)
	}
	h.merge(&other)
	for q, want := range map[float64]time.Duration{.5: 50 * time.Millisecond, .9: 90 * time.Millisecond,
		.99: 99 * time.Millisecond} {
		if got := h.Quantile(q); got < want*99/100 || got > want*101/100 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if h.Max != 100*time.Millisecond || h.total != 10_000 {
		t.Errorf("max %v of %d", h.Max, h.total)
	}
}

func TestHistogramAtItsEnds(t *testing.T) {
	var h Histogram
	if h.Quantile(.5) != 0 {
		t.Error("an empty histogram has no median")
	}
	h.Record(-time.Second)
	h.Record(0)
	h.Record(time.Hour)
	if h.Quantile(0) > 2*time.Microsecond || h.Quantile(1) < 100*time.Second {
		t.Errorf("%v to %v", h.Quantile(0), h.Quantile(1))
	}
}

func TestMedianOfFigures(t *testing.T) {
	runs := []Figures{
		{PerSecond: 10, P50: 3, Max: 9, Calls: 1, Errors: map[string]int64{"busy": 1}},
		{PerSecond: 30, P50: 1, Max: 7, Calls: 1, Errors: map[string]int64{"busy": 2}},
		{PerSecond: 20, P50: 2, Max: 8, Calls: 1},
	}
	f := MedianFigures(runs)
	if f.PerSecond != 20 || f.P50 != 2 || f.Max != 9 || f.Calls != 3 || f.Errors["busy"] != 3 {
		t.Errorf("%+v", f)
	}
}
