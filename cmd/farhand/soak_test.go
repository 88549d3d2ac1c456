package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
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
	before := settled(math.MaxInt)
	soak(t, urls, *soakTime)
	settled(before.goroutines+spare).compare(t, before, before.heap*3/2+(8<<20))
}

// startGateway starts a gateway in this process, where its goroutines and memory can be counted, and returns its URL.
func startGateway(t *testing.T, settings ...string) string {
	t.Helper()
	cfg, err := farhand.LoadConfig(append([]string{"FARHAND_ADDR=127.0.0.1:0", "FARHAND_TOKEN=" + fleetToken},
		settings...))
	if err != nil {
		t.Fatal(err)
	}
	g, addr, err := new(application).openGateway(context.Background(), cfg, slog.New(slog.DiscardHandler))
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

// spare is how many goroutines may be there that were not before.
const spare = 10

// census is what is there at one time.
type census struct {
	goroutines int
	stacks     map[string]int // how many goroutines have each stack
	heap       uint64
}

// settled returns what is there once what is on its way out has gone: after two seconds, or later if there are more
// goroutines than most. The figure must only not stay.
func settled(most int) census {
	http.DefaultClient.CloseIdleConnections()
	c := countGoroutines()
	for began := time.Now(); time.Since(began) < 2*time.Second ||
		c.goroutines > most && time.Since(began) < waitLimit; {
		waitFor(context.Background(), 50*time.Millisecond)
		if now := countGoroutines(); now.goroutines < c.goroutines {
			c = now
		}
	}
	runtime.GC()
	runtime.GC() // what lies in pools outlives the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c.heap = m.HeapAlloc
	return c
}

// countGoroutines counts all but the idle ones of the pool that handles frames. The pool keeps as many as ever ran at a
// time, up to a limit, and how many that were depends on how busy the machine is.
func countGoroutines() census {
	const idleStack = "github.com/farhand/farhand/ws.(*stackPool).get."
	var records []runtime.StackRecord
	n, ok := runtime.GoroutineProfile(nil)
	for !ok {
		records = make([]runtime.StackRecord, n+100)
		n, ok = runtime.GoroutineProfile(records)
	}
	c := census{stacks: make(map[string]int)}
	for _, r := range records[:n] {
		var calls []string // the innermost first, without the runtime's own
		for frames, more := runtime.CallersFrames(r.Stack()), true; more; {
			var f runtime.Frame
			if f, more = frames.Next(); !strings.HasPrefix(f.Function, "runtime.") {
				calls = append(calls, f.Function)
			}
		}
		if len(calls) == 0 || strings.HasPrefix(calls[0], idleStack) {
			continue
		}
		c.goroutines++
		c.stacks[strings.Join(calls, " < ")]++
	}
	return c
}

// compare checks that there are not more goroutines than before, and no larger a heap than allowed.
func (c census) compare(t *testing.T, before census, heap uint64) {
	t.Helper()
	t.Logf("goroutines %d, then %d; heap %d KiB, then %d KiB", before.goroutines, c.goroutines, before.heap>>10,
		c.heap>>10)
	if c.goroutines > before.goroutines+spare {
		t.Errorf("goroutines grew from %d to %d", before.goroutines, c.goroutines)
		for stack, n := range c.stacks {
			if was := before.stacks[stack]; n > was {
				t.Logf("%d, then %d: %s", was, n, stack)
			}
		}
	}
	if c.heap > heap {
		t.Errorf("the heap grew from %d to %d KiB", before.heap>>10, c.heap>>10)
	}
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
