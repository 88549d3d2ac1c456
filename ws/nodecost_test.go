package ws_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand/ws"
	"github.com/farhand/farhand/ws/node/nodetest"
)

// costs is what connections add to the process, per connection. It includes the peer's side.
type costs struct{ bytes, goroutines float64 }

func measure(t *testing.T, n int, connect func(i int)) costs {
	t.Helper()
	var before, after runtime.MemStats
	read := func(m *runtime.MemStats) {
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(m)
	}
	g := stableGoroutines(t)
	read(&before)
	for i := range n {
		connect(i)
	}
	goroutines := stableGoroutines(t) - g
	read(&after)
	bytes := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	return costs{float64(bytes) / float64(n), float64(goroutines) / float64(n)}
}

// stableGoroutines returns the number of goroutines when it no longer changes: others end soon, such as writers.
func stableGoroutines(t *testing.T) int {
	t.Helper()
	const same = 10 // readings
	count, seen := runtime.NumGoroutine(), 0
	eventually(t, "the number of goroutines is stable", func() bool {
		if now := runtime.NumGoroutine(); now != count {
			count, seen = now, 0
		}
		seen++
		return seen > same
	})
	return count
}

// An idle node costs what an idle device with as many tools does: one goroutine, and about as much memory. Its timer is
// that of all pings.
func TestIdleNodeCostsWhatADeviceDoes(t *testing.T) {
	const many = 400
	g := newGateway(t, func(c *ws.Config) { c.PingInterval, c.PongTimeout = time.Hour, 2*time.Hour })
	commands := []string{"acme.a", "acme.b", "acme.c", "acme.d", "acme.e"}
	names := []string{"acme_a", "acme_b", "acme_c", "acme_d", "acme_e"}
	keys := make([]nodetest.Key, many+1)
	for i := range keys {
		keys[i] = newKey(t)
	}
	g.connectWithTools("first", names...) // what is made once
	g.connectNode(keys[many], commands...)
	native := measure(t, many, func(i int) {
		g.connectWithTools(fmt.Sprintf("device-%.50d", i), names...)
	})
	node := measure(t, many, func(i int) { g.connectNode(keys[i], commands...) })
	t.Logf("an idle device: %.0f bytes, %.2f goroutines; an idle node: %.0f bytes, %.2f goroutines",
		native.bytes, native.goroutines, node.bytes, node.goroutines)
	if node.goroutines > native.goroutines+0.05 {
		t.Errorf("a node has %.2f goroutines, a device %.2f", node.goroutines, native.goroutines)
	}
	if node.bytes > 1.15*native.bytes {
		t.Errorf("a node takes %.0f bytes, a device %.0f", node.bytes, native.bytes)
	}
}

// answerWith answers every call at once, as a device or as a node.
func answerWith(conn *websocket.Conn, answer func(text []byte) string) {
	for {
		_, text, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if a := answer(text); a != "" && conn.WriteMessage(websocket.TextMessage, []byte(a)) != nil {
			return
		}
	}
}

// A call to a node takes at most maxNodeRatio times as long as one to a device, in the median of calls measured in
// turns. A machine that stalls has some rounds for that.
func TestNodeCallsAreAsFast(t *testing.T) {
	const rounds, calls = 6, 400
	g := newGateway(t)
	key := newKey(t)
	device, node := g.connectWithTools("native", "acme_look").conn, g.connectNode(key, "acme.look").conn
	for _, conn := range []*websocket.Conn{device, node} {
		must(t, conn.SetReadDeadline(time.Time{}))
	}
	go answerWith(device, func(text []byte) string {
		id := idOf(text, `{"type":"tool_call_request","id":"`)
		if id == "" {
			return ""
		}
		return `{"type":"tool_result","id":"` + id + `","output":{"seen":[1,2,3]}}`
	})
	go answerWith(node, func(text []byte) string {
		id := idOf(text, `{"type":"event","event":"node.invoke.request","payload":{"id":"`)
		if id == "" {
			return ""
		}
		return `{"type":"req","id":"` + id + `","method":"node.invoke.result","params":{"id":"` + id +
			`","nodeId":"` + key.ID + `","ok":true,"payload":{"seen":[1,2,3]}}}`
	})
	var ratio float64
	for range rounds {
		took := make(map[string][]time.Duration)
		for range calls {
			for _, session := range []string{"native", key.ID} {
				started := time.Now()
				if o := await(t, g.call(session, "acme_look", `{"at":"x"}`)); o.err != nil || !o.result.Success {
					t.Fatalf("%s: %+v", session, o)
				}
				took[session] = append(took[session], time.Since(started))
			}
		}
		native, node := median(took["native"]), median(took[key.ID])
		ratio = float64(node) / float64(native)
		t.Logf("p50 of a call: device %v, node %v, ratio %.2f", native, node, ratio)
		if ratio <= maxNodeRatio {
			return
		}
	}
	t.Errorf("a call to a node takes %.2f times as long", ratio)
}

// idOf returns the id after the beginning of a frame, empty for other frames. The peers cost as little as they can.
func idOf(text []byte, begin string) string {
	rest, ok := strings.CutPrefix(string(text), begin)
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}
