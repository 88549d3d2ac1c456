package metrics_test

import (
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/agent/hooks"
)

func hookStats() hooks.Stats {
	return hooks.Stats{
		Name: "guard", Questions: map[string]int64{"continue": 3, "failed": 2}, Took: 1500 * time.Millisecond,
	}
}

// What became of questions to hooks, and how long they took, is exported by hook.
func TestHooksAreCounted(t *testing.T) {
	families := newTestPod(t).scrape()
	got := make(map[string]float64)
	for _, name := range []string{"farhand_hook_questions_total", "farhand_hook_seconds_total"} {
		for _, s := range families[name] {
			key := strings.TrimSpace(name + " " + s.labels["hook"] + " " + s.labels["outcome"])
			got[key] = s.value
		}
	}
	for key, want := range map[string]float64{
		"farhand_hook_questions_total guard continue": 3, "farhand_hook_questions_total guard failed": 2,
		"farhand_hook_seconds_total guard": 1.5,
	} {
		if got[key] != want {
			t.Errorf("%s is %v: %v", key, got[key], got)
		}
	}
}
