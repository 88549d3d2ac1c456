package main

import (
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestDeviceExample runs the device of examples/device, as the README of it says: its calls work and report, its
// connection is cut in the middle of a call and the caller gets the answer all the same, a call that nobody waits for
// ends, it survives the restart of its pod, and it leaves for good when an operator ends its session.
func TestDeviceExample(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs Node.js 18 or later: %v", err)
	}
	p := startPod(t)
	addr := strings.TrimPrefix(p.url, "http://")
	proxy := newMutedProxy(t, addr)
	device := start(t, []string{"FARHAND_TOKEN=" + fleetToken}, node, "../../examples/device/node.js",
		"http://"+proxy.addr(), "laptop")
	listed := func() bool { return toolsOf(t, p.url)["laptop"] == 2 }
	eventually(t, waitLimit, "the device offers two tools", listed)

	if a := callTool(t, p.url, "/api/tools/host/call", `{"args":{}}`); !a.Success ||
		!strings.Contains(a.Output, "uptime_s") {
		t.Errorf("%+v", a)
	}
	if a := callTool(t, p.url, "/api/tools/count/call", `{"args":{"to":0}}`); a.Code != "invalid_arguments" {
		t.Errorf("%+v", a)
	}
	code, out, errOut := command(t, []string{"FARHAND_URL=" + p.url, "FARHAND_TOKEN=" + fleetToken}, "call", "count",
		`{"to":3}`, "--progress")
	if code != 0 || !strings.Contains(out, "counted to 3") || !strings.Contains(errOut, "at 2") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}

	// Cut off in the middle of a call: it comes back, and its answer reaches the caller who waits.
	call := callInBackground(t, p.url, "/api/tools/count/call", `{"args":{"to":20,"step_ms":50},"timeout_ms":20000}`)
	eventually(t, waitLimit, "the call runs", func() bool {
		_, raw := request(t, http.MethodGet, p.url+"/api/sessions/laptop", "")
		return len(raw) > 0 && strings.Contains(string(raw), "laptop")
	})
	waitFor(t.Context(), honestPause*10)
	proxy.cut()
	if a := call.wait(t); !a.Success || a.Output != "counted to 20" {
		t.Errorf("the connection was cut in the middle of a call: %+v", a)
	}

	// The pod is stopped and started again at its address.
	p.signal(syscall.SIGTERM)
	p.exit(t)
	p = startPodAt(t, addr)
	eventually(t, 2*waitLimit, "the device is back after the restart", listed)

	if status, raw := request(t, http.MethodDelete, p.url+"/api/sessions/laptop", ""); status/100 != 2 {
		t.Fatalf("%d %s", status, raw)
	}
	if code := device.exit(t); code != 1 {
		t.Errorf("it exited with %d\n%s", code, device.out)
	}
	if strings.Contains(device.out.String(), fleetToken) || strings.Contains(device.out.String(), "resumeToken") {
		t.Errorf("it prints secrets:\n%s", device.out)
	}
}
