package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/redis/go-redis/v9"

	"github.com/farhand/farhand/redisstore/redistest"
)

// TestThousandCallsInParallel: three pods behind the load balancer, 50 devices, 1,000 calls at once from every pod
// to every other; each answer belongs to its question. It runs beside no other test. On a machine that other processes
// are busy on, a call that was not sent or not received in time is made again.
func TestThousandCallsInParallel(t *testing.T) {
	pods := startFleet(t, 3, redistest.Single(t))
	balancer := startBalancer(t, pods)
	const devices, calls = 50, 1000
	var connecting sync.WaitGroup
	for i := range devices {
		connecting.Go(func() { connectDevice(t, balancer, fmt.Sprintf("device-%d", i), echoTool()) })
	}
	connecting.Wait()
	// A body that the balancer keeps in a file before it sends it on.
	long := callTool(t, balancer, "/api/sessions/device-0/tools/echo/call",
		`{"args":{"text":"`+strings.Repeat("x", 100_000)+`"}}`)
	if !long.Success {
		t.Errorf("a long body through the balancer: %+v", long)
	}

	entries := []string{balancer, pods[0].url, pods[1].url, pods[2].url}
	var mu sync.Mutex
	routes := make(map[string]int)
	var wg sync.WaitGroup
	callers := bePatient(t)
	for i := range calls {
		wg.Go(func() {
			session, nonce := fmt.Sprintf("device-%d", i%devices), fmt.Sprintf("%d-%d", i, rand.Uint64())
			a := callers.call(t, entries[i%len(entries)], "/api/sessions/"+session+"/tools/echo/call",
				fmt.Sprintf(`{"args":{"nonce":%q}}`, nonce))
			if a.status != http.StatusOK || !a.Success || a.SessionID != session ||
				a.Output != fmt.Sprintf(`{"nonce":%q}`, nonce) {
				t.Errorf("call %d: %+v", i, a)
			}
			mu.Lock()
			routes[entries[i%len(entries)]]++
			mu.Unlock()
		})
	}
	wg.Wait()
	t.Logf("calls per entry: %v", routes)
	callers.check(t)

	// That every pod really has devices of its own, or "every pod to every other" was not tried.
	var sessions struct{ Sessions []struct{ Pod string } }
	getJSON(t, pods[0].url+"/api/sessions?limit=1000", &sessions)
	perPod := make(map[string]int)
	for _, s := range sessions.Sessions {
		perPod[s.Pod]++
	}
	if len(perPod) != 3 || len(sessions.Sessions) != devices {
		t.Errorf("sessions per pod: %v", perPod)
	}
}

// TestEveryPodToEveryOther: two processes, a device on each, all four directions.
func TestEveryPodToEveryOther(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 2, redistest.Single(t))
	for i, p := range pods {
		connectDevice(t, p.url, fmt.Sprintf("on-%d", i), echoTool())
	}
	for from, p := range pods {
		for to := range pods {
			a := callTool(t, p.url, fmt.Sprintf("/api/sessions/on-%d/tools/echo/call", to),
				`{"args":{"n":12345678901234567890}}`)
			if a.status != http.StatusOK || a.Output != `{"n":12345678901234567890}` {
				t.Errorf("from %d to %d: %+v", from, to, a)
			}
		}
		if got, want := toolsOf(t, p.url), (map[string]int{"on-0": 1, "on-1": 1}); !maps.Equal(got, want) {
			t.Errorf("pod %d lists %v", from, got)
		}
	}
}

// TestToolsVanish: with the device from every pod, and with a killed pod when its lease lapses. No key expires during
// the test, so each is removed; how long that takes is logged.
func TestToolsVanish(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 3, redistest.Single(t), "FARHAND_SESSION_TTL=1h")
	disconnect := connectDevice(t, pods[0].url, "leaving", echoTool())
	connectDevice(t, pods[1].url, "staying", echoTool())
	connectDevice(t, pods[2].url, "killed", echoTool())
	for _, p := range pods {
		eventually(t, waitLimit, "every pod lists all", func() bool { return len(toolsOf(t, p.url)) == 3 })
	}
	disconnect()
	began := time.Now()
	for i, p := range pods {
		eventually(t, waitLimit, "the tools of the device are gone", func() bool {
			return toolsOf(t, p.url)["leaving"] == 0
		})
		t.Logf("pod %d: gone %v after the disconnect", i, time.Since(began).Round(time.Millisecond))
	}
	pods[2].signal(syscall.SIGKILL)
	pods[2].exit(t)
	began = time.Now()
	for i, p := range pods[:2] {
		eventually(t, waitLimit, "the tools of the killed pod are gone", func() bool {
			return maps.Equal(toolsOf(t, p.url), map[string]int{"staying": 1})
		})
		t.Logf("pod %d: gone %v after kill -9", i, time.Since(began).Round(time.Millisecond))
		a := callTool(t, p.url, "/api/sessions/killed/tools/echo/call", `{}`)
		if a.status != http.StatusConflict || a.Code != "not_connected" || a.Dispatched != "no" {
			t.Errorf("a call to the killed pod's device: %+v", a)
		}
	}
}

// TestNoKeyOutlivesItsTTL: with a short TTL, nothing lives for ever while the fleet runs, and nothing is left when it
// was killed.
func TestNoKeyOutlivesItsTTL(t *testing.T) {
	t.Parallel()
	url := redistest.Single(t)
	pods := startFleet(t, 2, url, "FARHAND_SESSION_TTL=2s", "FARHAND_POD_LEASE=2s",
		"FARHAND_RETENTION=2s", "FARHAND_ACTIVITY_TTL=2s", "FARHAND_USAGE_TTL=2s", "FARHAND_AUDIT_TTL=2s")
	for i := range 6 {
		connectDevice(t, pods[i%2].url, fmt.Sprintf("s%d", i), echoTool(), silentTool())
	}
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			callTool(t, pods[i%2].url, fmt.Sprintf("/api/sessions/s%d/tools/echo/call", i%6), `{"args":{}}`)
		})
	}
	wg.Wait()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	defer rdb.Close()
	keys := scanKeys(t, rdb)
	if len(keys) == 0 {
		t.Fatal("a running fleet has no keys")
	}
	for key, ttl := range keys {
		if ttl < 0 {
			t.Errorf("%s has no TTL", key)
		}
	}
	for _, p := range pods {
		p.signal(syscall.SIGKILL)
	}
	var left map[string]time.Duration
	defer func() {
		if t.Failed() {
			t.Logf("left: %v", left)
		}
	}()
	took := eventually(t, waitLimit, "no key is left", func() bool {
		left = scanKeys(t, rdb)
		maps.DeleteFunc(left, func(key string, _ time.Duration) bool {
			return strings.HasPrefix(key, "fh:{:tenants}:")
		})
		return len(left) == 0 // but for the names of tenants, which are kept for 400 days
	})
	t.Logf("%d keys, none left %v after kill -9", len(keys), took.Round(time.Millisecond))
}

func scanKeys(t *testing.T, rdb *redis.Client) map[string]time.Duration {
	t.Helper()
	ctx := context.Background()
	found := make(map[string]time.Duration)
	for it := rdb.Scan(ctx, 0, "*", 1000).Iterator(); it.Next(ctx); {
		ttl, err := rdb.PTTL(ctx, it.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ttl != -2 { // it went between SCAN and PTTL
			found[it.Val()] = ttl
		}
	}
	return found
}

// TestHalfOpenSocketRemovesNothing: a device comes back on another pod while its old socket hangs half-open; the old
// one's end, however late, removes nothing of the new one.
func TestHalfOpenSocketRemovesNothing(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 2, redistest.Single(t))
	header := http.Header{"Authorization": {"Bearer " + fleetToken}}
	old, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(pods[0].url,
		"http")+"/ws/chat?session_id=phone", header)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.WriteMessage(websocket.TextMessage,
		[]byte(`{"type":"register_tools","tools":[{"name":"echo","description":"old"}]}`)); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitLimit, "the old socket's tool is listed",
		func() bool { return toolsOf(t, pods[1].url)["phone"] == 1 })
	// From here on the old socket reads nothing: to the gateway it looks half-open.
	connectDevice(t, pods[1].url, "phone", echoTool())
	works := func(when string) {
		for i, p := range pods {
			if a := callTool(t, p.url, "/api/sessions/phone/tools/echo/call",
				`{"args":{"n":1}}`); a.Output != `{"n":1}` {
				t.Errorf("%s, pod %d: %+v", when, i, a)
			}
			if got := toolsOf(t, p.url)["phone"]; got != 1 {
				t.Errorf("%s, pod %d lists %d tools", when, i, got)
			}
		}
	}
	// A call that pod 0 takes before it hears of the new socket goes to the old one, and its outcome is lost.
	eventually(t, waitLimit, "pod 0 knows the new socket", func() bool {
		return callTool(t, pods[0].url, "/api/sessions/phone/tools/echo/call", `{"args":{"n":1}}`).Output == `{"n":1}`
	})
	works("while the old socket hangs")
	eventually(t, waitLimit, "pod 0 has given the old socket up", func() bool {
		_, _, err := old.ReadMessage()
		return err != nil
	})
	works("after the old socket's end")
}

// TestNobodyAndSilence: a call to no device fails, and one to a silent device ends at the asked time, 30 s by default:
// never before it, and the shortest first.
func TestNobodyAndSilence(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 2, redistest.Single(t))
	disconnect := connectDevice(t, pods[0].url, "gone", echoTool())
	disconnect()
	connectDevice(t, pods[0].url, "quiet", silentTool())
	for i, p := range pods {
		eventually(t, waitLimit, "the disconnect is known", func() bool { return toolsOf(t, p.url)["gone"] == 0 })
		a := callTool(t, p.url, "/api/sessions/gone/tools/echo/call", `{}`)
		if a.Code != "not_connected" || a.status != http.StatusConflict {
			t.Errorf("pod %d, no device: %+v", i, a)
		}
	}
	limits := []time.Duration{700 * time.Millisecond, 10 * time.Second, 30 * time.Second}
	var wg sync.WaitGroup
	for i, p := range pods {
		ends := make(chan time.Duration, len(limits))
		for _, limit := range limits {
			body := fmt.Sprintf(`{"timeout_ms":%d}`, limit.Milliseconds())
			if limit == limits[len(limits)-1] {
				body = `{}` // the default
			}
			wg.Go(func() {
				began := time.Now()
				a := callTool(t, p.url, "/api/sessions/quiet/tools/silent/call", body)
				off := time.Since(began) - limit
				ends <- limit
				t.Logf("pod %d, %s: %s, %v off", i, body, a.Code, off.Round(time.Millisecond))
				if a.Code != "timeout" || a.status != http.StatusGatewayTimeout || a.Dispatched != "yes" {
					t.Errorf("pod %d, %s: %+v", i, body, a)
				}
				if off < -100*time.Millisecond {
					t.Errorf("pod %d, %s: %v too early", i, body, -off)
				}
			})
		}
		wg.Go(func() {
			for _, limit := range limits {
				if ended := <-ends; ended != limit {
					t.Errorf("pod %d: the call of %v ended where that of %v was due", i, ended, limit)
				}
			}
		})
	}
	wg.Wait()
}

// TestServeStopsCleanly: SIGTERM releases the sessions and exits 0.
func TestServeStopsCleanly(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 2, redistest.Single(t))
	connectDevice(t, pods[0].url, "s1", echoTool())
	pods[0].signal(syscall.SIGTERM)
	if code := pods[0].exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if got := toolsOf(t, pods[1].url); len(got) != 0 {
		t.Errorf("still listed: %v", got)
	}
}

func getJSON(t testing.TB, url string, v any) {
	t.Helper()
	status, raw := request(t, http.MethodGet, url, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", url, status, raw)
	}
	if err := unmarshal(raw, v); err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
}
