package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// A person sees the devices that sleep and the calls that wait for one, and cancels a call.
func TestQueueCommands(t *testing.T) {
	gateway := startGateway(t)
	env := []string{"FARHAND_URL=" + gateway, "FARHAND_TOKEN=" + fleetToken, "HOME=" + t.TempDir()}
	device := start(t, env, farhandBinary, "device", "--device", "phone-7", "--tools", "echo")
	eventually(t, waitLimit, "the tool is listed", func() bool {
		_, raw := request(t, http.MethodGet, gateway+"/api/tools", "")
		return strings.Contains(string(raw), `"echo"`)
	})
	device.signal(syscall.SIGTERM)
	device.exit(t)
	run := func(args ...string) string {
		t.Helper()
		code, out, errOut := command(t, env, args...)
		if code != 0 {
			t.Fatalf("%v: exit %d\n%s%s", args, code, out, errOut)
		}
		return out
	}
	eventually(t, waitLimit, "the device sleeps", func() bool {
		return strings.Contains(run("sessions", "--presence", "sleeping"), "sleeps, seen")
	})
	id := strings.Fields(run("call", "echo", `{"text":"hi"}`, "--device", "phone-7", "--queue", "1h"))[0]
	if out := run("queue", "list", "phone-7"); !strings.Contains(out, id) || !strings.Contains(out, "queued") {
		t.Errorf("the queue: %s", out)
	}
	run("queue", "cancel", id)
	if out := run("queue", "list", "phone-7", "--json"); strings.Contains(out, id) {
		t.Errorf("the cancelled call is still there: %s", out)
	}
}
