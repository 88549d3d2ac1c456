package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// stormCalls is how many calls wait for each device.
const stormCalls = 1

// TestWakeStorm: 10,000 devices sleep, a call waits for each, and all come back at once. Each call runs once and
// succeeds, within 60 s on a machine with nothing else to do, and calls to other devices keep flowing meanwhile. Like
// TestHerd it runs the program without the race detector.
func TestWakeStorm(t *testing.T) {
	plain := plainProgram(t)
	server := redistest.Start(t)
	settings := []string{
		"FARHAND_REDIS_URL=" + server.URL(), "FARHAND_LOG_LEVEL=error", "FARHAND_CALL_BYTES=16GiB",
		"FARHAND_QUEUE_USER=1000000", "FARHAND_QUEUE_USER_BYTES=1GiB", "FARHAND_QUEUE_TENANT=1000000",
		"FARHAND_QUEUE_TENANT_BYTES=1GiB",
	}
	var pods []*pod
	for range 2 {
		pods = append(pods, startProgram(t, plain, testkit.FreeAddr(t), settings...))
	}
	asleep := newHerd(t, herdSize, pods[0].url, pods[1].url)
	eventually(t, time.Minute, "all are connected", func() bool { return asleep.registered.Load() == herdSize })
	asleep.stop()
	eventually(t, time.Minute, "all are known to sleep", func() bool {
		_, raw := request(t, http.MethodGet, pods[0].url+"/api/tools?name=herd&view=grouped", "")
		return !strings.Contains(string(raw), `"name":"herd"`)
	})
	began := time.Now()
	ids := queueForAll(t, pods)
	t.Logf("%d calls queued in %v", len(ids), time.Since(began).Round(time.Millisecond))

	others := callOthers(t, pods)
	began = time.Now()
	awake := newHerd(t, herdSize, pods[0].url, pods[1].url)
	eventually(t, herdLimit, "all are back", func() bool { return awake.registered.Load() >= herdSize })
	back := time.Since(began)
	eventually(t, herdLimit, "all calls ran", func() bool { return awake.answered.Load() >= int64(len(ids)) })
	t.Logf("%d devices were back after %v, their %d calls had run after %v", herdSize, back.Round(time.Millisecond),
		len(ids), time.Since(began).Round(time.Millisecond))
	others.check()
	checkStorm(t, pods, awake, ids)
}

// queueForAll queues the calls of all devices, 64 at a time, and returns their ids.
func queueForAll(t *testing.T, pods []*pod) []string {
	t.Helper()
	ids := make([]string, herdSize*stormCalls)
	forEach(len(ids), func(i int) {
		status, raw := request(t, http.MethodPost, pods[i%2].url+"/api/tools/herd/call",
			fmt.Sprintf(`{"args":{},"target":{"session_id":"herd-%d"},"queue":{"ttl_ms":3600000}}`, i%herdSize))
		var accepted struct {
			CallID string `json:"call_id"`
			State  string
		}
		if err := json.Unmarshal(raw, &accepted); err != nil || status != http.StatusAccepted ||
			accepted.State != "queued" {
			t.Errorf("%d: %d %s", i, status, raw)
		}
		ids[i] = accepted.CallID
	})
	if t.Failed() {
		t.FailNow()
	}
	return ids
}

// checkStorm wants each call to have succeeded, and to have run once.
func checkStorm(t *testing.T, pods []*pod, awake *herd, ids []string) {
	t.Helper()
	forEach(len(ids), func(i int) {
		_, raw := request(t, http.MethodGet, pods[i%2].url+"/api/calls/"+ids[i]+"?wait_ms=20000", "")
		var rec struct{ State string }
		if err := json.Unmarshal(raw, &rec); err != nil || rec.State != "succeeded" {
			t.Errorf("%s: %s", ids[i], raw)
		}
		if times, ran := awake.ran.Load(ids[i]); !ran || times.(*atomic.Int64).Load() != 1 {
			t.Errorf("%s did not run exactly once", ids[i])
		}
	})
}

// forEach does n pieces of work, 64 at a time.
func forEach(n int, work func(i int)) {
	var next atomic.Int64
	var working sync.WaitGroup
	for range 64 {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	working.Wait()
}
