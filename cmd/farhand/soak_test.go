package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/redisstore/redistest"
)

var soakTime = flag.Duration("soak", 10*time.Second, "how long TestSoak runs; five minutes show more")

// TestSoak runs two gateways in this process under load, with devices coming and going, and then looks at what is
// left: as many goroutines as before, and no more memory than after the first tenth.
func TestSoak(t *testing.T) {
	url := redistest.Single(t)
	var urls []string
	for range 2 {
		urls = append(urls, startGateway(t, "FARHAND_REDIS_URL="+url, "FARHAND_SESSION_TTL=5s", "FARHAND_RETENTION=5s",
			"FARHAND_ACTIVITY_CAP=1000"))
	}
	soak(t, urls, *soakTime/10)
	goroutines, heap := settled()
	soak(t, urls, *soakTime)
	goroutinesAfter, heapAfter := settled()
	t.Logf("goroutines %d, then %d; heap %d KiB, then %d KiB", goroutines, goroutinesAfter, heap>>10, heapAfter>>10)
	if goroutinesAfter > goroutines+10 {
		t.Errorf("goroutines grew from %d to %d", goroutines, goroutinesAfter)
	}
	if heapAfter > heap*3/2+(8<<20) {
		t.Errorf("the heap grew from %d to %d KiB", heap>>10, heapAfter>>10)
	}
}

// startGateway starts a gateway in this process, where its goroutines and memory can be counted, and returns its URL.
func startGateway(t *testing.T, settings ...string) string {
	t.Helper()
	cfg, err := farhand.LoadConfig(append([]string{"FARHAND_ADDR=127.0.0.1:0", "FARHAND_TOKEN=" + fleetToken},
		settings...))
	if err != nil {
		t.Fatal(err)
	}
	g, addr, err := openGateway(context.Background(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Run(context.Background()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		defer running.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return "http://" + addr
}

// settled returns what is there once what is on its way out has gone.
func settled() (goroutines int, heap uint64) {
	http.DefaultClient.CloseIdleConnections()
	var m runtime.MemStats
	goroutines = 1 << 30
	// What is on its way out is given time: the figure must only not stay.
	for range 40 {
		waitFor(context.Background(), 50*time.Millisecond)
		goroutines = min(goroutines, runtime.NumGoroutine())
	}
	runtime.GC()
	runtime.GC() // what lies in pools outlives the first
	runtime.ReadMemStats(&m)
	return goroutines, m.HeapAlloc
}

// soak keeps devices, calls of all kinds and disconnects going for a while.
func soak(t *testing.T, urls []string, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var all sync.WaitGroup
	var calls atomic.Int64
	for i := range 10 {
		all.Go(func() {
			for ctx.Err() == nil {
				disconnect := connectDevice(t, urls[rand.IntN(2)], fmt.Sprintf("soak-%d", i), echoTool(), silentTool())
				waitFor(ctx, rand.N(time.Second))
				disconnect()
			}
		})
	}
	bodies := []string{
		`{"args":{"n":1}}`, `{"args":{"n":1},"mode":"async"}`, `{"args":{"n":1},"idempotency_key":"k%d"}`,
		`{"args":{},"timeout_ms":1}`,
	}
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				n := calls.Add(1)
				tool, body := "echo", bodies[n%int64(len(bodies))]
				if strings.Contains(body, "%d") {
					body = fmt.Sprintf(body, n%50)
				}
				if n%20 == 0 {
					tool, body = "silent", `{"timeout_ms":200}`
				}
				request(t, http.MethodPost, fmt.Sprintf("%s/api/sessions/soak-%d/tools/%s/call", urls[n%2], n%10, tool),
					body)
			}
		})
	}
	all.Wait()
	t.Logf("%d calls in %v", calls.Load(), d)
}
