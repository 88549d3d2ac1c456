package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// echoWork answers at once with what it was given.
func echoWork(args json.RawMessage) string { return string(args) }

// TestRollingRestart: three pods drained and restarted one after the other under load. Whatever was asked of a device
// that was connected succeeds; nothing is lost, nothing is uncertain, every pod exits 0.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 3)
	book := &ledger{}
	var devices []*ledgerDevice
	for i := range ledgerDevices {
		devices = append(devices, startLedgerDevice(t, book, i, 1, f.urls))
	}
	f.allListed(t, ledgerDevices, waitLimit)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 24}}
	defer client.CloseIdleConnections()
	control := startControl(t)
	var callers sync.WaitGroup
	callers.Go(func() { control.measure(ctx, book) })
	callers.Go(func() { f.measureRedis(ctx, book) })
	for i := range 12 {
		c := &ledgerCaller{book: book, fleet: f, http: client, random: rand.New(rand.NewPCG(uint64(i), 2)),
			limit: 30 * time.Second} // in which a device comes back, however slow the machine is
		callers.Go(func() {
			for ctx.Err() == nil {
				c.plain(ctx, "light", ledgerWork{DelayMS: c.random.IntN(60)}, "")
			}
		})
	}
	for i := range f.pods {
		waitFor(ctx, 500*time.Millisecond)
		f.pods[i].signal(syscall.SIGTERM)
		if code := f.pods[i].exit(t); code != 0 {
			t.Errorf("pod %d exited with %d", i, code)
		}
		f.restart(t, i)
		f.allListed(t, ledgerDevices, waitLimit)
	}
	waitFor(ctx, 500*time.Millisecond)
	cancel()
	callers.Wait()
	for _, d := range devices {
		d.stop()
	}
	for _, v := range book.audit() {
		if v.rule != "time" { // which TestLedger judges: here programs start all the time, and nobody waits for a pod
			t.Errorf("%s: %s\n%s", v.rule, v.text, book.history(v.callID, v.nonce))
		}
	}
	succeeded, stalled := 0, make(map[string]bool) // by nonce
	for _, e := range book.asked {
		switch {
		case e.Success:
			succeeded++
		case e.broken:
		case slices.Contains([]string{"not_connected", "timeout"}, e.Code) &&
			book.worstControl(e) > ledgerSlack:
			stalled[e.nonce] = true // the machine stood still for longer than a lease lasts
		default: // a call waits while its device is between its two pods
			t.Errorf("a rolling restart cost a call: %+v", e)
		}
	}
	// A connection that was idle may close under the very request that would use it again; HTTP/1.1 knows no better.
	// But no call that a device ran may have lost its answer that way.
	arrived := slices.DeleteFunc(book.arrived, func(a ledgerArrival) bool { return stalled[a.nonce] })
	if succeeded != len(arrived) {
		t.Errorf("%d calls were run, %d succeeded", len(arrived), succeeded)
	}
	if len(stalled) > succeeded/20 {
		t.Errorf("%d calls failed while the machine stood still, %d succeeded", len(stalled), succeeded)
	}
}

// TestRedisAway: local calls go on, remote ones fail within a second, no socket drops; soon after Redis is back
// everything is listed and callable again. The same after FLUSHALL.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2, redisFails)
	var devices []*rawDevice
	for i, p := range f.pods {
		devices = append(devices, startRawDevice(t, fmt.Sprintf("on-%d", i), []string{p.url}, echoWork))
	}
	f.allListed(t, 2, waitLimit)
	stalls := testkit.Stalls(t)
	call := func(from, to int) (answer, time.Duration) {
		began := time.Now()
		a := callTool(t, f.pods[from].url, fmt.Sprintf("/api/sessions/on-%d/tools/work/call", to), `{"args":{}}`)
		return a, time.Since(began)
	}
	everything := func(when string) {
		took := eventually(t, waitLimit, when+" every session is listed and callable from every pod", func() bool {
			for from, p := range f.pods {
				if len(toolsOf(t, p.url)) != 2 {
					return false
				}
				for to := range f.pods {
					if a, _ := call(from, to); !a.Success {
						return false
					}
				}
			}
			return true
		})
		t.Logf("%s: everything works after %v", when, took.Round(time.Millisecond))
	}
	everything("before")
	for _, away := range []struct {
		name       string
		stop, back func()
	}{
		{"killed", f.redis.Kill, f.redis.Restart},
		{"frozen", f.redis.Pause, f.redis.Resume},
	} {
		away.stop()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			for i := range f.pods {
				if a, took := call(i, i); !a.Success || took > time.Second+10*stalls() {
					t.Errorf("redis %s: a local call: %+v after %v", away.name, a, took)
				}
				a, took := call(i, 1-i)
				if a.status != http.StatusServiceUnavailable || a.Code != "store_unavailable" ||
					took > 1200*time.Millisecond+10*stalls() {
					t.Errorf("redis %s: a remote call: %+v after %v", away.name, a, took)
				}
			}
			waitFor(context.Background(), 500*time.Millisecond)
		}
		away.back()
		everything("after redis was " + away.name)
	}
	if _, err := f.redis.Command("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	everything("after FLUSHALL")
	for i, d := range devices {
		d.mu.Lock()
		if d.connected != 1 {
			t.Errorf("the socket of device %d dropped: it connected %d times", i, d.connected)
		}
		d.mu.Unlock()
	}
}

// TestSentinelFailover: the same when the master of a Sentinel set dies.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	servers := redistest.Sentinel(t)
	pods := startFleet(t, 2, servers.URL, redisFails, "FARHAND_POD_LEASE=3s")
	for i, p := range pods {
		startRawDevice(t, fmt.Sprintf("on-%d", i), []string{p.url}, echoWork)
	}
	works := func() bool {
		for from, p := range pods {
			status, _ := request(t, http.MethodGet, p.url+"/readyz", "")
			if status != http.StatusOK {
				return false
			}
			for to := range pods {
				if a := callTool(t, pods[from].url, fmt.Sprintf("/api/sessions/on-%d/tools/work/call", to),
					`{"args":{}}`); !a.Success {
					return false
				}
			}
		}
		return true
	}
	eventually(t, waitLimit, "the fleet works", works)
	killed := time.Now()
	servers.Masters[0].Kill()
	servers.Promoted()
	eventually(t, waitLimit, "the fleet works on the new master", works)
	t.Logf("everything works %v after the master died", time.Since(killed).Round(time.Millisecond))
}

// TestKilledPodSaysLost: calls that wait for a killed pod end as lost when its lease lapses, and do not time out. How
// long that takes is logged.
func TestKilledPodSaysLost(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	hang := make(chan struct{})
	defer close(hang)
	began := make(chan struct{}, 1024)
	device := startRawDevice(t, "hanging", []string{f.pods[1].url},
		func(json.RawMessage) string { began <- struct{}{}; <-hang; return "" })
	f.allListed(t, 1, waitLimit)
	answers := make(chan answer, 8)
	for range 8 {
		go func() {
			answers <- callTool(t, f.pods[0].url, "/api/sessions/hanging/tools/work/call", `{"timeout_ms":120000}`)
		}()
	}
	for range 8 {
		<-began
	}
	// A later call knows that it was delivered when its receipt is back, and receipts come in order.
	eventually(t, waitLimit, "the receipts are back", func() bool {
		return callTool(t, f.pods[0].url, "/api/sessions/hanging/tools/work/call",
			`{"timeout_ms":500}`).Dispatched == "yes"
	})
	f.pods[1].signal(syscall.SIGKILL)
	killed := time.Now()
	for range 8 {
		a := <-answers
		if a.Code != "lost" || a.status != http.StatusBadGateway || a.Dispatched != "yes" {
			t.Errorf("%+v", a)
		}
	}
	t.Logf("the callers heard it after %v, the lease is 3s", time.Since(killed).Round(time.Millisecond))
	device.mu.Lock()
	device.stopped = true
	device.mu.Unlock()
}

// TestPausedPod: a pod that stood still for longer than its lease finds out, and its sessions are back; a session that
// moved meanwhile stays where it is.
func TestPausedPod(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	startRawDevice(t, "stays", []string{f.pods[0].url}, echoWork)
	moves := startRawDevice(t, "moves", []string{f.pods[0].url}, echoWork)
	f.allListed(t, 2, waitLimit)
	f.pods[0].signal(syscall.SIGSTOP)
	eventually(t, waitLimit, "the other pod has noticed", func() bool { return len(toolsOf(t, f.pods[1].url)) == 0 })
	second := startRawDevice(t, "moves", []string{f.pods[1].url}, echoWork)
	eventually(t, waitLimit, "the session has moved", func() bool { return toolsOf(t, f.pods[1].url)["moves"] == 1 })
	moves.mu.Lock()
	moves.stopped = true // what is left of its first life does not come back
	moves.mu.Unlock()
	f.pods[0].signal(syscall.SIGCONT)
	f.allListed(t, 2, waitLimit)
	for _, p := range f.pods {
		for _, session := range []string{"stays", "moves"} {
			// The pod that stood still may need a moment to hear that it was replaced; until then it says so.
			eventually(t, waitLimit, session+" is callable from everywhere", func() bool {
				a := callTool(t, p.url, "/api/sessions/"+session+"/tools/work/call", `{"args":{}}`)
				if !a.Success && a.Dispatched != "no" {
					t.Errorf("%s: %+v", session, a)
				}
				return a.Success
			})
		}
	}
	if n := len(second.executions()); n != 2 {
		t.Errorf("the device that moved ran %d calls of 2", n)
	}
}

// TestOneSessionManyClaims: devices with one session id throw each other out, on two pods. Whoever has the session at a
// moment gets the call, alone, and what the caller is told of it is true; when one device is left, every call succeeds.
func TestOneSessionManyClaims(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	var devices []*rawDevice
	for i := range 4 {
		devices = append(devices, startRawDevice(t, "contested", []string{f.pods[i%2].url}, echoWork))
	}
	eventually(t, waitLimit, "the session is there", func() bool { return toolsOf(t, f.pods[0].url)["contested"] == 1 })
	contested := func(i int) answer {
		return callTool(t, f.pods[i%2].url, "/api/sessions/contested/tools/work/call",
			fmt.Sprintf(`{"args":{"n":%d}}`, i))
	}
	answers := make([]answer, 0, 200)
	successes := 0
	eventually(t, 3*waitLimit, "20 of at least 100 calls succeed while four devices fight over the session",
		func() bool {
			a := contested(len(answers))
			if a.Success {
				successes++
			}
			answers = append(answers, a)
			return successes >= 20 && len(answers) >= 100
		})
	t.Logf("%d of %d calls succeeded while four devices fought over the session", successes, len(answers))
	if got := toolsOf(t, f.pods[0].url); len(got) > 1 || got["contested"] > 1 {
		t.Errorf("listed: %v", got)
	}
	for _, d := range devices[1:] {
		d.stop()
	}
	eventually(t, waitLimit, "the last device has the session",
		func() bool { return contested(0).Success && contested(1).Success })
	for i := range 10 {
		if a := contested(i); !a.Success {
			t.Errorf("one device is left, and a call fails: %+v", a)
		}
	}
	devices[0].stop()
	executed := make(map[string]int)
	for _, d := range devices {
		for id, n := range d.executions() {
			executed[id] += n
		}
	}
	for i, a := range answers {
		n := executed[a.CallID]
		switch {
		case n > 1:
			t.Errorf("ran %d times: %+v", n, a)
		case a.Success && (n != 1 || a.Output != fmt.Sprintf(`{"n":%d}`, i)):
			t.Errorf("ran %d times, and succeeded: %+v", n, a)
		case a.Dispatched == "no" && n > 0:
			t.Errorf("ran, although it was not dispatched: %+v", a)
		case !a.Success && a.Code != "not_connected" && a.Code != "connection_lost":
			t.Errorf("%+v", a)
		}
	}
}

// TestDurableCalls: asynchronous calls and idempotency keys over real pods and Redis.
func TestDurableCalls(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 3)
	release := make(chan struct{})
	device := startRawDevice(t, "phone", []string{f.pods[2].url}, func(args json.RawMessage) string {
		if strings.Contains(string(args), "wait") {
			<-release
		}
		return string(args)
	})
	f.allListed(t, 1, waitLimit)
	// Asynchronous: asked at one pod, waited for at another.
	accepted := callTool(t, f.pods[0].url, "/api/sessions/phone/tools/work/call",
		`{"args":{"wait":1},"mode":"async","timeout_ms":20000}`)
	if accepted.status != http.StatusAccepted || accepted.CallID == "" {
		t.Fatalf("%+v", accepted)
	}
	type record struct {
		State    string
		Success  bool
		Output   string
		Timeline []struct{ State string }
	}
	read := func(p *pod, id, query string) (r record) {
		getJSON(t, p.url+"/api/calls/"+id+query, &r)
		return r
	}
	eventually(t, waitLimit, "the call is with the device", func() bool {
		s := read(f.pods[1], accepted.CallID, "").State
		return s == "delivered" || s == "running"
	})
	ended := make(chan record, 1)
	go func() { ended <- read(f.pods[1], accepted.CallID, "?wait_ms=20000") }()
	waitFor(context.Background(), 100*time.Millisecond)
	close(release)
	if r := <-ended; r.State != "succeeded" || !r.Success || r.Output != `{"wait":1}` {
		t.Errorf("%+v", r)
	}
	// One key, many callers at the same instant on all pods: the device sees one request.
	before := len(device.executions())
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			a := callTool(t, f.pods[i%3].url, "/api/sessions/phone/tools/work/call",
				`{"args":{"n":1},"idempotency_key":"once"}`)
			if !a.Success || a.Output != `{"n":1}` {
				t.Errorf("%+v", a)
			}
		})
	}
	wg.Wait()
	if n := len(device.executions()) - before; n != 1 {
		t.Errorf("the device saw %d requests", n)
	}
	if a := callTool(t, f.pods[1].url, "/api/sessions/phone/tools/work/call",
		`{"args":{"n":2},"idempotency_key":"once"}`); a.Code != "idempotency_conflict" {
		t.Errorf("%+v", a)
	}
	if a := callTool(t, f.pods[1].url, "/api/sessions/nobody/tools/work/call",
		`{"idempotency_key":"free"}`); a.Code != "session_not_found" || a.Dispatched != "no" {
		t.Errorf("%+v", a)
	}
}

// TestCallerPodKilled: the pod that was asked dies while the device works; the record of a durable call comes to its
// true end all the same.
func TestCallerPodKilled(t *testing.T) {
	t.Parallel()
	f := startFaultFleet(t, 2)
	release := make(chan struct{})
	startRawDevice(t, "phone", []string{f.pods[1].url},
		func(args json.RawMessage) string { <-release; return string(args) })
	f.allListed(t, 1, waitLimit)
	a := callTool(t, f.pods[0].url, "/api/sessions/phone/tools/work/call",
		`{"args":{"n":1},"mode":"async","timeout_ms":20000}`)
	state := func() string {
		var r struct{ State string }
		getJSON(t, f.pods[1].url+"/api/calls/"+a.CallID, &r)
		return r.State
	}
	eventually(t, waitLimit, "the call is with the device", func() bool { return state() == "delivered" })
	f.pods[0].signal(syscall.SIGKILL)
	f.pods[0].exit(t)
	close(release)
	eventually(t, waitLimit, "the answer is in the record", func() bool { return state() == "succeeded" })
}
