package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// groupLines makes a group call of the tool hang, and returns its lines.
func groupLines(t *testing.T, url, more string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url+"/api/calls", strings.NewReader(`{"tool":"hang"`+more+`}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return bufio.NewScanner(resp.Body)
}

// A pod that dies takes only the results of its own devices along. If the pod of the parent dies, its record ends with
// an outcome, and its key runs nothing again.
func TestGroupCallWhenPodsDie(t *testing.T) {
	t.Parallel()
	pods := startFleet(t, 3, redistest.Start(t).URL(), "FARHAND_POD_LEASE=1s")
	asked := make(chan string, 16)
	var calls atomic.Int64
	for i, pod := range pods {
		id := fmt.Sprintf("device-%d", i)
		connectDevice(t, pod.url, id, client.WithTool(client.Tool{Name: "hang"},
			func(ctx context.Context, _ client.Call) (any, error) {
				calls.Add(1)
				asked <- id
				<-ctx.Done()
				return nil, ctx.Err()
			}))
	}
	all := func(n int) {
		t.Helper()
		for range n {
			testkit.Receive(t, "a call", asked)
		}
	}
	type row struct {
		Type      string `json:"type"`
		CallID    string `json:"call_id"`
		SessionID string `json:"session_id"`
		State     string `json:"state"`
	}
	lines := groupLines(t, pods[0].url, `,"device_timeout_ms":10000`)
	all(3)
	pods[1].signal(syscall.SIGKILL)
	states := make(map[string]string)
	for lines.Scan() {
		var r row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		states[cmp.Or(r.SessionID, r.Type)] = r.State
	}
	if states["device-1"] != "lost" || states["device-0"] != "timed_out" || states["device-2"] != "timed_out" ||
		states["done"] != "failed" {
		t.Errorf("the pod of a device died: %v", states)
	}

	began := calls.Load()
	key := `,"timeout_ms":4000,"idempotency_key":"once"`
	lines = groupLines(t, pods[2].url, key)
	all(2)
	var parent row
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &parent) != nil || parent.CallID == "" {
		t.Fatalf("no parent: %s, %v", lines.Text(), lines.Err())
	}
	pods[2].signal(syscall.SIGKILL)
	testkit.Eventually(t, "an outcome of the parent", func() bool {
		var rec row
		_, text := request(t, http.MethodGet, pods[0].url+"/api/calls/"+parent.CallID+"?wait_ms=1000", "")
		return json.Unmarshal(text, &rec) == nil && (rec.State == "timed_out" || rec.State == "lost")
	})
	if _, text := request(t, http.MethodPost, pods[0].url+"/api/calls", `{"tool":"hang"`+key+`}`); !strings.Contains(
		string(text), parent.CallID) {
		t.Errorf("the key again: %s", text)
	}
	if n := calls.Load() - began; n != 2 {
		t.Errorf("%d calls reached the two devices", n)
	}
}
