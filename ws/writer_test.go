package ws_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farhand/farhand/ws"
)

// Not parallel: it counts goroutines.
func TestAnIdleDeviceTakesOneGoroutine(t *testing.T) {
	g := newGateway(t)
	g.connectWithTools("first", "a")
	sessions := make([]string, 50)
	for i := range sessions {
		sessions[i] = fmt.Sprintf("idle-%d", i)
	}
	before := runtime.NumGoroutine()
	for _, s := range sessions {
		g.connectWithTools(s, "a") // dialled by hand, so the test adds no goroutine
	}
	const shared = 4 // goroutines of the pool of stacks
	eventually(t, "one goroutine for each device",
		func() bool { return runtime.NumGoroutine() <= before+len(sessions)+shared })
}

// Whatever a device sends, the stack of its reader stays small. Not parallel: it measures the stacks of all goroutines.
func TestReadersHaveSmallStacks(t *testing.T) {
	const devices = 300
	atMost := uint64(6 << 10) // bytes for each
	if b, _ := debug.ReadBuildInfo(); slices.Contains(b.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		atMost *= 2 // as the race detector does with stacks
	}
	g := newGateway(t)
	nested := `{"type":"nested","a":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}`
	introduce := func(session string) {
		d := g.connectWithTools(session, "a")
		d.send(nested)
		d.expectError("UNKNOWN_MESSAGE_TYPE", "nested")
	}
	stacks := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.StackInuse
	}
	introduce("first")
	before := stacks()
	for i := range devices {
		introduce(fmt.Sprint("idle-", i))
	}
	eventually(t, "the stack of each device is small",
		func() bool { return stacks() < before+devices*atMost })
	t.Logf("%d bytes for each device", (int64(stacks())-int64(before))/devices)
}

func TestStuckDevicesHoldUpNobody(t *testing.T) {
	t.Parallel()
	g := newGateway(t, func(c *ws.Config) { c.MaxOutbound, c.WriteTimeout = 64<<20, time.Minute })
	var calls []<-chan outcome
	stuck := []string{"stuck-1", "stuck-2", "stuck-3"}
	for _, s := range stuck {
		g.deafDevice(s)
		calls = append(calls, g.swamp(s, 40)...) // more than the kernel takes
	}
	for i := range 8 {
		d := g.connectWithTools(fmt.Sprintf("fine-%d", i), "ask")
		done := g.call(fmt.Sprintf("fine-%d", i), "ask", `{}`)
		id := d.expect("tool_call_request")["id"]
		d.send(fmt.Sprintf(`{"type":"tool_result","id":%q,"success":true,"output":"yes"}`, id))
		if o := await(t, done); o.err != nil || !o.result.Success {
			t.Fatalf("outcome: %+v", o)
		}
	}
	for _, s := range stuck {
		must(t, g.pod.Hub.Kick(context.Background(), g.session(s).Session()))
	}
	for _, done := range calls {
		if o := await(t, done); o.err == nil {
			t.Fatal("a call to a device that reads nothing was answered")
		}
	}
}

// All devices are pinged at every interval, those that came later, too, and a burst of them; those that are gone, not.
func TestEveryDeviceIsPinged(t *testing.T) {
	t.Parallel()
	const devices, rounds = 20, 3
	g := newGateway(t, func(c *ws.Config) { c.PingInterval, c.PongTimeout = 100*time.Millisecond, testTimeout })
	pinged := make(chan int, 10_000)
	open := make([]*device, devices)
	for i := range open {
		open[i] = g.connect(fmt.Sprint("d-", i))
		answer := open[i].conn.PingHandler()
		open[i].conn.SetPingHandler(func(data string) error {
			pinged <- i
			return answer(data)
		})
	}
	for i := range devices / 2 {
		must(t, open[2*i].conn.Close())
	}
	for range devices / 2 {
		g.waitReleased()
	}
	for i := range devices / 2 {
		go func() { _, _, _ = open[2*i+1].conn.ReadMessage() }() // pings are answered while it reads
	}
	counts := make(map[int]int)
	limit := time.After(testTimeout)
	for done := 0; done < devices/2; {
		select {
		case i := <-pinged:
			if counts[i]++; counts[i] == rounds {
				done++
			}
		case <-limit:
			t.Fatalf("pings: %v", counts)
		}
	}
	select {
	case gone := <-g.store.released:
		t.Fatalf("%v is gone", gone.Key)
	default:
	}
}
