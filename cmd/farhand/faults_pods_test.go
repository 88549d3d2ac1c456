package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// pendingCall is a call made in the background.
type pendingCall struct {
	done chan struct{}
	answer
	took time.Duration
}

func callInBackground(t *testing.T, url, path, body string) *pendingCall {
	c := &pendingCall{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		began := time.Now()
		c.answer = callTool(t, url, path, body)
		c.took = time.Since(began)
	}()
	t.Cleanup(func() { <-c.done })
	return c
}

func (c *pendingCall) wait(t *testing.T) answer {
	t.Helper()
	select {
	case <-c.done:
		return c.answer
	case <-time.After(3 * waitLimit):
		t.Fatal("the call does not end")
		return answer{}
	}
}

// TestOwnerKilledBeforeItTookTheCall (row 1): the call is in the owner's socket buffer, and the owner is killed before
// it reads it. The caller is told long before the call's own deadline, and not that it did or did not run.
func TestOwnerKilledBeforeItTookTheCall(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	device := startRawDevice(t, "phone", []string{f.pods[1].url}, echoWork)
	f.allListed(t, 1, waitLimit)
	f.pods[1].signal(syscall.SIGSTOP) // it takes no call any more, and Redis still counts it as a receiver
	call := callInBackground(t, f.pods[0].url, "/api/sessions/phone/tools/work/call", `{"args":{},"timeout_ms":120000}`)
	keyed := callInBackground(t, f.pods[0].url, "/api/sessions/phone/tools/work/call",
		`{"args":{},"timeout_ms":120000,"idempotency_key":"once"}`)
	for _, c := range []*pendingCall{call, keyed} {
		if a := c.wait(t); a.Code != "lost" || a.Dispatched != "unknown" {
			t.Errorf("%+v", a)
		}
		t.Logf("told after %v", c.took.Round(time.Millisecond))
	}
	f.pods[1].signal(syscall.SIGKILL)
	f.pods[1].exit(t)
	eventually(t, waitLimit, "its tools are gone", func() bool { return len(toolsOf(t, f.pods[0].url)) == 0 })
	device.stop()
	if n := len(device.executions()); n != 0 {
		t.Errorf("the device ran %d calls", n)
	}
}

// TestAStalledDeviceStopsNoOther (row 11): a device that does not read, with large calls under way to it from another
// pod, holds up no call to the other devices of its pod.
func TestAStalledDeviceStopsNoOther(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	stalled := dialRaw(t, f.pods[1].url, "stalled")
	for _, text := range []string{
		`{"type":"register_tools","tools":[{"name":"work","description":"never reads"}]}`,
	} {
		if err := stalled.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	startRawDevice(t, "lively", []string{f.pods[1].url}, echoWork)
	f.allListed(t, 2, waitLimit)
	large := fmt.Sprintf(`{"args":{"n":%q},"timeout_ms":20000}`, strings.Repeat("x", 256<<10))
	var swamped []*pendingCall
	for range 48 { // 12 MB, more than socket buffers and outbox take
		swamped = append(swamped, callInBackground(t, f.pods[0].url, "/api/sessions/stalled/tools/work/call", large))
	}
	caller, served := bePatient(t), 0
	for pending := true; pending || served < 50; served++ {
		if a := caller.call(t, f.pods[0].url, "/api/sessions/lively/tools/work/call", `{"args":{}}`); !a.Success {
			t.Fatalf("a call to another device of the pod: %+v", a)
		}
		pending = false
		for _, c := range swamped {
			select {
			case <-c.done:
			default:
				pending = true
			}
		}
	}
	caller.check(t)
	for _, c := range swamped {
		if a := c.wait(t); a.Success || a.Code == "internal" {
			t.Errorf("%+v", a)
		}
	}
	t.Logf("%d calls to the other device succeeded meanwhile", served)
}

// dialRaw opens a socket of a session and leaves it alone.
func dialRaw(t *testing.T, url, session string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/ws/chat?session_id="+session,
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// TestChangedDefinitionsCount (row 47): a tool registered again with another definition is what every pod lists,
// validates against and calls; the feed says that the tools changed.
func TestChangedDefinitionsCount(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	conn := dialRaw(t, f.pods[1].url, "changeling")
	var write sync.Mutex
	send := func(v any) {
		write.Lock()
		defer write.Unlock()
		_ = conn.WriteJSON(v)
	}
	registered := make(chan struct{}, 8)
	go func() {
		for {
			var frame struct{ Type, ID string }
			if conn.ReadJSON(&frame) != nil {
				return
			}
			switch frame.Type {
			case "tools_registered":
				registered <- struct{}{}
			case "tool_call_request":
				send(map[string]any{"type": "tool_result", "id": frame.ID, "output": "ran"})
			}
		}
	}()
	define := func(property string) {
		send(map[string]any{"type": "register_tools",
			"tools": []any{map[string]any{"name": "work", "description": "takes " + property,
				"parameters": map[string]any{"type": "object", "required": []string{property},
					"additionalProperties": false,
					"properties":           map[string]any{property: map[string]any{"type": "string"}}}}}})
		select {
		case <-registered:
		case <-time.After(waitLimit):
			t.Fatal("not registered")
		}
	}
	call := func(p *pod, property string) answer {
		return callTool(t, p.url, "/api/sessions/changeling/tools/work/call",
			fmt.Sprintf(`{"args":{%q:"x"}}`, property))
	}
	for _, property := range []string{"first", "second", "third"} {
		define(property)
		for _, p := range f.pods {
			if a := call(p, property); !a.Success { // the pod remembers the definition before this one
				t.Errorf("%s: %+v", property, a)
			}
			if a := call(p, "another"); a.Code != "invalid_arguments" {
				t.Errorf("%s: %+v", property, a)
			}
			status, raw := request(t, http.MethodGet, p.url+"/api/tools?session_id=changeling", "")
			if status != http.StatusOK || strings.Count(string(raw), "takes ") != 1 ||
				!strings.Contains(string(raw), "takes "+property) {
				t.Errorf("%s is listed as %s", property, raw)
			}
		}
	}
}

// TestAnotherTokenAfterARestart (row 65): the token lives as long as its process. Pods that come back with another one
// have closed every socket of the old, and take neither its devices nor its callers.
func TestAnotherTokenAfterARestart(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 1)
	conn := dialRaw(t, f.pods[0].url, "old")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	f.pods[0].signal(syscall.SIGTERM)
	f.pods[0].exit(t)
	select {
	case <-closed:
	case <-time.After(waitLimit):
		t.Fatal("the socket outlives the pod that knew its token")
	}
	const rotated = "rotated-token-fedcba9876543210"
	addr := strings.TrimPrefix(f.pods[0].url, "http://")
	startPodAt(t, addr, append(f.settings, "FARHAND_TOKEN="+rotated)...)
	_, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+"/ws/chat?session_id=old",
		http.Header{"Authorization": {"Bearer " + fleetToken}})
	if err == nil || resp == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a device with the old token: %v", err)
	}
	if status, _ := request(t, http.MethodGet, f.pods[0].url+"/api/tools", ""); status != http.StatusUnauthorized {
		t.Errorf("a caller with the old token: %d", status)
	}
	conn, _, err = websocket.DefaultDialer.Dial("ws://"+addr+"/ws/chat?session_id=old",
		http.Header{"Authorization": {"Bearer " + rotated}})
	if err != nil {
		t.Fatalf("a device with the new token: %v", err)
	}
	conn.Close()
}

// TestSilentDevicesStay (row 58): a device that registers nothing and says nothing but pongs stays, is listed as a
// session without tools, and can begin to offer some at any time.
func TestSilentDevicesStay(t *testing.T) {
	t.Parallel()
	p := startPod(t, "FARHAND_PING_INTERVAL=100ms", "FARHAND_PONG_TIMEOUT=5s")
	conn := dialRaw(t, p.url, "silent")
	pings := make(chan struct{}, 1000)
	answerPing := conn.PingHandler()
	conn.SetPingHandler(func(data string) error { pings <- struct{}{}; return answerPing(data) })
	frames := make(chan string, 8)
	go func() {
		defer close(frames)
		for {
			var frame struct{ Type string }
			if conn.ReadJSON(&frame) != nil {
				return
			}
			frames <- frame.Type
		}
	}()
	for n := range 20 {
		select {
		case <-pings:
		case <-time.After(waitLimit):
			t.Fatalf("ping %d does not come", n)
		}
	}
	if status, _ := request(t, http.MethodGet, p.url+"/api/sessions/silent", ""); status != http.StatusOK {
		t.Errorf("the silent session is answered with %d", status)
	}
	if n := len(toolsOf(t, p.url)); n != 0 {
		t.Errorf("%d sessions offer tools", n)
	}
	text, _ := json.Marshal(map[string]any{"type": "register_tools",
		"tools": []any{map[string]any{"name": "late", "description": "d"}}})
	if err := conn.WriteMessage(websocket.TextMessage, text); err != nil {
		t.Fatal(err)
	}
	for frame := range frames {
		if frame == "tools_registered" {
			break
		}
	}
	if n := toolsOf(t, p.url)["silent"]; n != 1 {
		t.Errorf("it offers %d tools", n)
	}
}
