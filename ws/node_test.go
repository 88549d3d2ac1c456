package ws_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const installNode = "npm ci --prefix ws/testdata/node"

// saw is one line of what device.js prints.
type saw struct {
	Saw         map[string]any `json:"saw"`
	Subprotocol *string        `json:"subprotocol"`
	Closed      int            `json:"closed"`
	Problem     string         `json:"problem"`
}

// startNode runs device.js against the gateway. The channel is closed when it has nothing more to say; that it ended
// well is checked at the end of the test.
func startNode(t *testing.T, g *gateway, session string) <-chan saw {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("this test needs Node.js 18 or later, then: %s (%v)", installNode, err)
	}
	if _, err := os.Stat("testdata/node/node_modules/ws"); err != nil {
		t.Fatalf("the packages of the Node device are missing; install them with: %s", installNode)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*testTimeout)
	cmd := exec.CommandContext(ctx, node, "testdata/node/device.js", strings.TrimSuffix(g.url(""), "?"), testToken,
		session)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	lines := make(chan saw, 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			var s saw
			if err := json.Unmarshal(scan.Bytes(), &s); err != nil {
				t.Errorf("device.js printed %q", scan.Text())
			}
			lines <- s
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("device.js: %v\n%s", err, stderr.Bytes())
		}
	}()
	t.Cleanup(func() {
		if t.Failed() {
			cancel() // whatever it waits for will not come
		}
		<-done
		cancel()
	})
	return lines
}

// nextSaw returns the next line of device.js.
func nextSaw(t *testing.T, lines <-chan saw) saw {
	t.Helper()
	select {
	case s, ok := <-lines:
		if !ok {
			t.Fatal("device.js ended early")
		}
		if s.Problem != "" {
			t.Fatalf("device.js: %s", s.Problem)
		}
		return s
	case <-time.After(testTimeout):
		t.Fatal("device.js saw nothing")
		panic("unreachable")
	}
}

func expectSaw(t *testing.T, lines <-chan saw, typ string) map[string]any {
	t.Helper()
	s := nextSaw(t, lines)
	if s.Saw["type"] != typ {
		t.Fatalf("device.js saw %+v, want a frame of type %s", s, typ)
	}
	return s.Saw
}

// TestNodeDevice lets a device in another language, written from the protocol alone, do everything once.
func TestNodeDevice(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	lines := startNode(t, g, "node-1")
	if s := nextSaw(t, lines); s.Subprotocol == nil || *s.Subprotocol != "clawseed.v1" {
		t.Fatalf("subprotocol: %+v", s)
	}
	if start := expectSaw(t, lines, "session_start"); start["session_id"] != "node-1" || start["name"] != "node" {
		t.Fatalf("session_start: %v", start)
	}
	expectSaw(t, lines, "connected")
	if got := expectSaw(t, lines, "tools_registered"); got["count"] != 2.0 || got["registered"] != 2.0 ||
		got["rejected"] != nil {
		t.Fatalf("tools_registered: %v", got)
	}

	good := g.call("node-1", "node_echo", `{"text":"grüße <&>"}`)
	expectSaw(t, lines, "tool_call_request")
	expectSaw(t, lines, "result_acknowledged")
	if o := await(t, good); o.err != nil || !o.result.Success || o.result.Output != "echo: grüße <&>" {
		t.Fatalf("node_echo: %+v", o)
	}
	bad := g.call("node-1", "node_fail", `{}`)
	expectSaw(t, lines, "tool_call_request")
	expectSaw(t, lines, "result_acknowledged")
	if o := await(t, bad); o.err != nil || o.result.Success || o.result.Error != "permission denied" ||
		o.result.Output != "permission denied" {
		t.Fatalf("node_fail: %+v", o)
	}

	expectSaw(t, lines, "error")
	expectSaw(t, lines, "error")
	expectSaw(t, lines, "registered_tools")
	expectSaw(t, lines, "tools_registered")
	if s := nextSaw(t, lines); s.Closed != 1000 {
		t.Fatalf("closed: %+v", s)
	}
	if s := g.waitReleased(); s.Key.Session != "node-1" {
		t.Fatalf("released %s", s.Key.Session)
	}
	if len(g.pod.Hub.All()) != 0 {
		t.Fatalf("%d sessions remain", len(g.pod.Hub.All()))
	}
	for range lines { // until the process has ended by itself
		t.Error("device.js saw more than it should")
	}
}
