package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/farhand/farhand/cmd/farhand/capacity"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	args := []string{"plan", "--devices", "1e6", "--calls-per-second", "5e4", "--payload", "2KB"}
	code, out, errOut := command(t, nil, args...)
	for _, says := range []string{"pods ", "cores ", "memory ", "Redis ", "network ", "breaks first ", "measured "} {
		if code != 0 || !strings.Contains(out, says) {
			t.Errorf("exits %d without %q:\n%s%s", code, says, out, errOut)
		}
	}
	_, out, _ = command(t, nil, append(args, "--json")...)
	var p capacity.Plan
	if err := json.Unmarshal([]byte(out), &p); err != nil || p.Pods == 0 || p.Demand.Payload != 2000 {
		t.Errorf("%v\n%s", err, out)
	}
	for _, wrong := range [][]string{
		{}, {"--devices", "0"}, {"--devices", "-5"}, {"--devices", "1e30"}, {"--devices", "NaN"}, {"--devices", "x"},
		{"--devices", "1", "--payload", "-1KB"}, {"--devices", "1", "--payload", "1TB"},
		{"--devices", "1", "--zones", "0"}, {"--devices", "1", "--pod-memory", "lots"}, {"--devices", "1", "more"},
	} {
		code, out, errOut := command(t, nil, append([]string{"plan"}, wrong...)...)
		if code != 2 || errOut == "" || out != "" {
			t.Errorf("%v: exits %d: %s%s", wrong, code, out, errOut)
		}
	}
}
