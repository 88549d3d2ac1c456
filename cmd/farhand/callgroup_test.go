package main

import (
	"strings"
	"testing"

	"github.com/farhand/farhand/api/wire"
	"github.com/farhand/farhand/ws/client"
)

// farhand call --all prints a line for each device, and exits by what the mode asks for.
func TestCallAll(t *testing.T) {
	t.Parallel()
	pod := startPod(t)
	for id, site := range map[string]string{"one": "vienna", "two": "vienna", "three": "graz"} {
		connectDevice(t, pod.url, id, echoTool(), client.WithDevice("d-"+id, "", ""),
			client.WithLabels(map[string]string{"site": site}))
	}
	environ := []string{"FARHAND_URL=" + pod.url, "FARHAND_TOKEN=" + fleetToken}
	code, out, errOut := command(t, environ, "call", "echo", `{"a":1}`, "--all", "--label", "site=vienna")
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(out, "d-one\tsucceeded\t{\"a\":1}\n") ||
		!strings.Contains(out, "d-two\tsucceeded\t") || !strings.Contains(errOut, "2 devices, 2 succeeded") {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	code, out, errOut = command(t, environ, "call", "echo", "--all", "--mode", "quorum", "--quorum", "4", "--json")
	if code != 1 || strings.Count(out, `"type":"result"`) != 3 || !strings.Contains(errOut, "failed: 3 devices") {
		t.Errorf("a quorum that is not reached: exit %d\n%s\n%s", code, out, errOut)
	}
	code, _, errOut = command(t, environ, "call", "echo", "--all", "--label", "site=linz")
	if code != 2 || !strings.Contains(errOut, "session_not_found") {
		t.Errorf("no device matches: exit %d\n%s", code, errOut)
	}
	code, out, errOut = command(t, environ, "call", "echo", "--all", "--queue", "1h")
	if code != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(errOut, "3 devices, 3 succeeded") {
		t.Errorf("no device sleeps: exit %d\n%s\n%s", code, out, errOut)
	}
	if line := groupLine(wire.GroupResult{DeviceID: "d", State: "queued", Position: 2, ExpiresAt: "T"}); line !=
		"d\tqueued\twaits for the device until T\n" {
		t.Errorf("a queued call: %q", line)
	}
	if code, _, errOut = command(t, environ, "call", "echo", "--mode", "first"); code != 2 ||
		!strings.Contains(errOut, "--mode needs --all") {
		t.Errorf("a mode of a single call: exit %d\n%s", code, errOut)
	}
}
