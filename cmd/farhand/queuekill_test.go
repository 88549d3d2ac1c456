package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// phoneBook is what a device has run, in order.
type phoneBook struct {
	mu   sync.Mutex
	ran  []int
	held chan struct{} // closed when the call stuckAt runs, which never answers
}

// stuckAt is the call during which the pod of its device dies.
const stuckAt = 3

func (l *phoneBook) tool() client.Option {
	return client.WithTool(client.Tool{Name: "note", Description: "notes a number"},
		func(ctx context.Context, call client.Call) (any, error) {
			var args struct{ N int }
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return nil, err
			}
			l.mu.Lock()
			l.ran = append(l.ran, args.N)
			l.mu.Unlock()
			if args.N == stuckAt {
				close(l.held)
				<-ctx.Done()
			}
			return args.N, nil
		})
}

func (l *phoneBook) all() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ran)
}

// TestQueuesSurviveRedisAndPods: calls that wait for a device outlive a restart of Redis with persistence, the pod that
// accepted them, and the pod that was delivering them. None runs twice, all end, and the order is kept.
func TestQueuesSurviveRedisAndPods(t *testing.T) {
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	pods := startFleet(t, 3, redis.URL(), "FARHAND_POD_LEASE=2s", redisFails)
	book := &phoneBook{held: make(chan struct{})}
	phone := client.WithDevice("phone", "", "")
	connectDevice(t, pods[1].url, "phone", phone, book.tool())()
	eventually(t, waitLimit, "the device is remembered", func() bool {
		status, _ := request(t, http.MethodGet, pods[2].url+"/api/devices/phone/queue", "")
		return status == http.StatusOK
	})
	const calls = 10
	ids := make([]string, calls)
	for n := range ids {
		status, raw := request(t, http.MethodPost, pods[0].url+"/api/tools/note/call", fmt.Sprintf(
			`{"args":{"n":%d},"timeout_ms":1500,"target":{"device_id":"phone"},"queue":{"ttl_ms":600000}}`, n))
		var accepted struct {
			CallID string `json:"call_id"`
			Place  int
		}
		if err := json.Unmarshal(raw, &accepted); err != nil || status != http.StatusAccepted || accepted.Place != n+1 {
			t.Fatalf("call %d: %d %s", n, status, raw)
		}
		ids[n] = accepted.CallID
	}
	redis.Kill()
	pods[0].signal(syscall.SIGKILL)
	redis.Restart()
	eventually(t, waitLimit, "a pod is ready again", func() bool {
		status, _, err := tryRequest(t, http.MethodGet, pods[1].url+"/readyz", "")
		return err == nil && status == http.StatusOK
	})
	connectDevice(t, pods[1].url, "phone", phone, book.tool())
	select {
	case <-book.held:
	case <-time.After(waitLimit):
		t.Fatalf("the device ran %v", book.all())
	}
	pods[1].signal(syscall.SIGKILL)
	connectDevice(t, pods[2].url, "phone", phone, book.tool())
	for n, id := range ids {
		var state string
		eventually(t, waitLimit, "the call has ended", func() bool {
			_, raw := request(t, http.MethodGet, pods[2].url+"/api/calls/"+id+"?wait_ms=5000", "")
			var rec struct{ State, Status string }
			_ = json.Unmarshal(raw, &rec)
			state = rec.State
			return rec.Status == "completed" || rec.Status == "failed"
		})
		if (state == "succeeded") == (n == stuckAt) {
			t.Errorf("call %d ended %s", n, state)
		}
	}
	if ran := book.all(); !slices.IsSorted(ran) || len(slices.Compact(slices.Clone(ran))) != calls ||
		len(ran) != calls {
		t.Errorf("the device ran %v", ran)
	}
}
