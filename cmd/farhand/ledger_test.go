package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/farhand/farhand/redisstore/redistest"
)

var (
	ledgerTime = flag.Duration("ledger", time.Minute, "how long TestLedger keeps the load and the faults up")
	ledgerSeed = flag.Uint64("seed", 0, "seed of the faults of TestLedger; 0 draws one")
)

const (
	ledgerDevices = 16
	ledgerCallers = 24
	ledgerPods    = 3
)

// ledger is what the callers wrote down.
type ledger struct {
	mu      sync.Mutex
	entries []ledgerEntry
}

type ledgerEntry struct {
	answer
	broken bool // the connection to the asked pod broke: the caller knows nothing
	cut    bool // and not because nobody listened there
	limit  time.Duration
	took   time.Duration
	when   time.Time
}

// TestLedger: devices write down every call they run, callers every answer they get, while pods are killed, drained
// and restarted, and Redis is restarted, cut off and slowed down. Afterwards the books must agree.
func TestLedger(t *testing.T) {
	t.Parallel()
	seed := *ledgerSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: go test ./cmd/farhand -run TestLedger -args -seed %d", seed, seed)
	f := startFaultFleet(t, ledgerPods)
	var devices []*rawDevice
	for i := range ledgerDevices {
		devices = append(devices, startRawDevice(t, fmt.Sprintf("device-%d", i), f.urls(), func(args json.RawMessage) string {
			time.Sleep(rand.N(150 * time.Millisecond)) // the work
			return string(args)
		}))
	}
	f.allListed(t, ledgerDevices, patience)

	ctx, cancel := context.WithTimeout(context.Background(), *ledgerTime)
	defer cancel()
	var book ledger
	var callers sync.WaitGroup
	for range ledgerCallers {
		callers.Go(func() {
			for ctx.Err() == nil {
				book.call(f.urls()[rand.IntN(ledgerPods)])
			}
		})
	}
	f.tamper(ctx, t, rand.New(rand.NewPCG(seed, 1)))
	callers.Wait()
	f.heal(t)
	f.allListed(t, ledgerDevices, patience)
	for _, p := range f.pods {
		if a := callTool(t, p.url, "/api/sessions/device-0/tools/work/call", `{"args":{"after":true}}`); a.status != http.StatusOK {
			t.Errorf("after it all: %+v", a)
		}
	}
	executed := make(map[string]int)
	for _, d := range devices {
		d.stop()
		maps.Copy(executed, d.executions())
	}
	book.audit(t, executed)
	f.stop(t)
}

// call makes one call and writes down how it went.
func (b *ledger) call(url string) {
	e := ledgerEntry{limit: time.Duration(500+rand.IntN(2500)) * time.Millisecond, when: time.Now()}
	nonce, extra := rand.Uint64(), ""
	if rand.IntN(3) == 0 { // durable calls must agree as well
		extra = fmt.Sprintf(`,"idempotency_key":"k%x"`, nonce)
	}
	body := fmt.Sprintf(`{"args":{"nonce":"%x"},"timeout_ms":%d%s}`, nonce, e.limit.Milliseconds(), extra)
	req, err := http.NewRequest(http.MethodPost, fmt.Sprintf("%s/api/sessions/device-%d/tools/work/call", url, rand.IntN(ledgerDevices)), strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	e.took = time.Since(e.when)
	if err != nil {
		e.broken, e.cut = true, !errors.Is(err, syscall.ECONNREFUSED)
		if !e.cut {
			pause := time.NewTimer(20 * time.Millisecond)
			<-pause.C
		}
	} else {
		defer resp.Body.Close()
		e.status = resp.StatusCode
		if err := json.NewDecoder(resp.Body).Decode(&e.answer); err != nil {
			e.broken = true
		}
		e.took = time.Since(e.when)
		if e.Success && !strings.Contains(body, e.Output) {
			e.Code = "WRONG ANSWER"
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries = append(b.entries, e)
}

// audit compares the callers' book with the devices'.
func (b *ledger) audit(t *testing.T, executed map[string]int) {
	t.Helper()
	counts := make(map[string]int)
	var slowest time.Duration
	seen := make(map[string]bool)
	for _, e := range b.entries {
		name := e.Code
		switch {
		case e.broken:
			name = "connection to the pod broke"
		case e.Success:
			name = "succeeded"
		}
		if !e.broken && !e.Success {
			name += ", dispatched " + e.Dispatched
		}
		counts[name]++
		slowest = max(slowest, e.took-e.limit)
		if e.broken {
			continue
		}
		switch n := executed[e.CallID]; {
		case e.CallID == "":
			t.Errorf("no call id: %+v", e)
		case seen[e.CallID]:
			t.Errorf("two outcomes of one call: %+v", e)
		case e.Code == "WRONG ANSWER":
			t.Errorf("the answer of another call: %+v", e)
		case e.Success && n != 1:
			t.Errorf("succeeded, but run %d times: %+v", n, e)
		case e.Dispatched == "no" && n != 0:
			t.Errorf("dispatched no, but run %d times: %+v", n, e)
		case !e.Success && e.Dispatched == "":
			t.Errorf("a failure that does not say whether it reached the device: %+v", e)
		}
		seen[e.CallID] = true
	}
	for id, n := range executed {
		if n > 1 {
			t.Errorf("call %s was run %d times", id, n)
		}
	}
	if slowest > time.Second {
		t.Errorf("a caller waited %v beyond its deadline", slowest)
	}
	if counts["succeeded"] < len(b.entries)/10 {
		t.Errorf("only %d of %d calls succeeded: that was no load", counts["succeeded"], len(b.entries))
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%7d  %s", counts[name], name)
	}
	t.Logf("%7d  calls, %d executions, the latest answer %v after its deadline", len(b.entries), len(executed), slowest.Round(time.Millisecond))
}

// faultFleet is a fleet whose pods and Redis can be tampered with.
type faultFleet struct {
	redis    *redistest.Server
	proxy    *toxiproxy.Proxy
	settings []string

	mu   sync.Mutex
	pods []*pod
}

// startFaultFleet starts n pods on a real Redis behind a proxy that can cut and slow its connections.
func startFaultFleet(t testing.TB, n int, settings ...string) *faultFleet {
	t.Helper()
	f := &faultFleet{redis: redistest.Start(t)}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	f.proxy = toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", f.redis.Addr())
	if err := f.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.proxy.Stop)
	f.settings = append([]string{
		"FARHAND_REDIS_URL=redis://" + f.proxy.Listen, "FARHAND_POD_LEASE=3s", "FARHAND_SESSION_TTL=6s",
		"FARHAND_DRAIN_TIMEOUT=5s", "FARHAND_LOG_LEVEL=error",
	}, settings...)
	for range n {
		f.pods = append(f.pods, startPod(t, f.settings...))
	}
	return f
}

func (f *faultFleet) urls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	urls := make([]string, len(f.pods))
	for i, p := range f.pods {
		urls[i] = p.url
	}
	return urls
}

// restart replaces a pod that has ended by a new process at the same address.
func (f *faultFleet) restart(t testing.TB, i int) {
	t.Helper()
	p := startPodAt(t, strings.TrimPrefix(f.pods[i].url, "http://"), f.settings...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[i] = p
}

// allListed waits until every pod lists that many sessions, and each is callable.
func (f *faultFleet) allListed(t testing.TB, sessions int, limit time.Duration) {
	t.Helper()
	for _, p := range f.pods {
		eventually(t, limit, fmt.Sprintf("%d sessions are listed", sessions), func() bool {
			return len(toolsOf(t, p.url)) == sessions
		})
	}
}

// tamper breaks things, one after the other, until ctx ends.
func (f *faultFleet) tamper(ctx context.Context, t *testing.T, random *rand.Rand) {
	faults := []struct {
		name string
		do   func()
	}{
		{"kill -9", func() {
			i := random.IntN(len(f.pods))
			f.pods[i].signal(syscall.SIGKILL)
			f.pods[i].exit(t)
			f.restart(t, i)
		}},
		{"drain", func() {
			i := random.IntN(len(f.pods))
			f.pods[i].signal(syscall.SIGTERM)
			if code := f.pods[i].exit(t); code != 0 {
				t.Errorf("a drained pod exited with %d", code)
			}
			f.restart(t, i)
		}},
		{"redis restart", func() { f.redis.Kill(); f.redis.Restart() }},
		{"redis cut", func() {
			f.proxy.Stop()
			waitFor(ctx, 300*time.Millisecond+time.Duration(random.Int64N(int64(time.Second))))
			if err := f.proxy.Start(); err != nil {
				t.Errorf("proxy: %v", err)
			}
		}},
		{"redis slow", func() {
			toxic := strings.NewReader(`{"name":"slow","type":"latency","attributes":{"latency":80,"jitter":60}}`)
			if _, err := f.proxy.Toxics.AddToxicJson(toxic); err != nil {
				t.Errorf("toxic: %v", err)
				return
			}
			waitFor(ctx, time.Second)
			_ = f.proxy.Toxics.RemoveToxic(context.Background(), "slow")
		}},
		{"redis flushed", func() { _, _ = f.redis.Command("FLUSHALL") }},
	}
	for ctx.Err() == nil {
		fault := faults[random.IntN(len(faults))]
		t.Log(fault.name)
		fault.do()
		waitFor(ctx, 500*time.Millisecond+time.Duration(random.Int64N(int64(1500*time.Millisecond))))
	}
}

// heal checks that nothing is left of the faults: all pods ready, no key without an end.
func (f *faultFleet) heal(t *testing.T) {
	t.Helper()
	for _, p := range f.pods {
		eventually(t, patience, "the pod is ready again", func() bool {
			resp, err := http.Get(p.url + "/readyz")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	rdb := redis.NewClient(&redis.Options{Addr: f.redis.Addr()})
	defer rdb.Close()
	for key, ttl := range scanKeys(t, rdb) {
		if ttl < 0 {
			t.Errorf("%s has no TTL", key)
		}
	}
}

// stop ends all pods as an operator would, and looks whether they leave a connection behind.
func (f *faultFleet) stop(t *testing.T) {
	t.Helper()
	for _, p := range f.pods {
		p.signal(syscall.SIGTERM)
		if code := p.exit(t); code != 0 {
			t.Errorf("a pod exited with %d", code)
		}
	}
	eventually(t, patience, "nobody but this test is connected to Redis", func() bool { return redisClients(t, f.redis) == 1 })
}

func waitFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
