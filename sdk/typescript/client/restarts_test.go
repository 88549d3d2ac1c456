package client_test

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// outcome is what testdata/restarts.mjs prints of a call.
type outcome struct {
	Nonce      string `json:"nonce"`
	Style      string `json:"style"`
	OK         bool   `json:"ok"`
	Output     string `json:"output"`
	Code       string `json:"code"`
	Dispatched string `json:"dispatched"`
	Message    string `json:"message"`
}

// TestRestarts restarts two pods in turns, drained and killed, while a program calls through both: no call runs twice,
// each result is of its call, and each error says the truth about its call.
func TestRestarts(t *testing.T) {
	t.Parallel()
	settings := []string{
		"FARHAND_REDIS_URL=" + redistest.Single(t), "FARHAND_POD_LEASE=3s", "FARHAND_SESSION_TTL=6s",
		"FARHAND_DRAIN_TIMEOUT=5s", "FARHAND_LOG_LEVEL=error",
	}
	pods := []*pod{startPod(t, settings...), startPod(t, settings...)}
	road := newRoad(t, pods...)
	var mu sync.Mutex
	ran := make(map[string]int)
	leave := connect(t, road.url(), "worker", client.WithParallelism(64), client.WithTool(
		client.Tool{Name: "work", Description: "Works for a while."},
		func(ctx context.Context, call client.Call) (any, error) {
			var args struct {
				Nonce string
				MS    int
			}
			if err := call.Bind(&args); err != nil {
				return nil, err
			}
			mu.Lock()
			ran[args.Nonce]++
			mu.Unlock()
			call.Progress(1, 2, "half")
			select {
			case <-time.After(time.Duration(args.MS) * time.Millisecond):
				return args.Nonce, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))

	text, err := os.ReadFile("testdata/restarts.mjs")
	must(t, err)
	p := startNode(t, []string{"FARHAND_TOKEN=" + token}, string(text), pods[0].url, pods[1].url)
	var all []outcome
	read := func(n int) { // until that many further calls have succeeded
		for n > 0 {
			line, more := receive(t, "a call", p.lines)
			if !more {
				t.Fatalf("the program ended after %d calls", len(all))
			}
			var one outcome
			must(t, json.Unmarshal([]byte(line), &one))
			if all = append(all, one); one.OK {
				n--
			}
		}
	}
	const between = 20
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL} {
		for i := range pods {
			read(between)
			pods[i] = pods[i].restart(t, how)
		}
	}
	read(between)
	must(t, p.cmd.Process.Signal(syscall.SIGTERM)) // it ends its calls, and itself
	for {
		line, more := receive(t, "the end of the program", p.lines)
		if !more {
			break
		}
		var one outcome
		must(t, json.Unmarshal([]byte(line), &one))
		all = append(all, one)
	}
	testkit.Receive(t, "the end of the program", p.ended)
	if !p.cmd.ProcessState.Success() {
		t.Errorf("the program failed: %v", p.cmd.ProcessState)
	}
	leave()
	judge(t, all, ran)
}

// judge compares what the program heard with what ran.
func judge(t *testing.T, all []outcome, ran map[string]int) {
	t.Helper()
	succeeded, failed := make(map[string]int), make(map[string]int)
	for _, one := range all {
		runs := ran[one.Nonce]
		switch {
		case runs > 1:
			t.Errorf("it ran %d times: %+v", runs, one)
		case one.OK && (runs != 1 || one.Output != one.Nonce):
			t.Errorf("it ran %d times: %+v", runs, one)
		case one.OK:
			succeeded[one.Style]++
			continue
		case one.Dispatched == "no" && runs != 0, one.Dispatched == "yes" && runs != 1, one.Dispatched == "":
			t.Errorf("it ran %d times, and the error does not say so: %+v", runs, one)
		}
		failed[one.Style+" "+one.Code+" "+one.Dispatched]++
	}
	t.Logf("%d calls; succeeded: %v; failed: %v", len(all), succeeded, failed)
	for _, style := range []string{"call", "start", "once"} {
		if succeeded[style] == 0 {
			t.Errorf("no call of the style %s succeeded", style)
		}
	}
	if failed["abort cancelled yes"] == 0 {
		t.Error("no call was cancelled on its device")
	}
}
