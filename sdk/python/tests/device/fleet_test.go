package device_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// gateway is the program farhand, built once.
var gateway = sync.OnceValues(func() (string, error) {
	dir, err := packed()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "farhand")
	if out, err := exec.Command("go", "build", "-o", path, "../../../../cmd/farhand").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// startGateway runs a pod of a fleet, and waits until it is ready.
func startGateway(t *testing.T, addr, redis string) *program {
	t.Helper()
	path, err := gateway()
	must(t, err)
	p := start(t, t.TempDir(), append(os.Environ(), "FARHAND_ADDR="+addr, "FARHAND_REDIS_URL="+redis,
		"FARHAND_REDIS_TIMEOUT=20s", "FARHAND_LOG_LEVEL=error", "FARHAND_LIMIT_IDENTITY=0"), path, "serve")
	testkit.Eventually(t, "a pod", func() bool {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// balancer forwards each connection to the first pod that takes it, another one each time.
type balancer struct {
	addrs []string
	next  atomic.Int64
	all   sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func startBalancer(t *testing.T, addrs ...string) (b *balancer, url string) {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b = &balancer{addrs: addrs, conns: map[net.Conn]bool{}}
	b.all.Go(func() {
		for conn, err := listen.Accept(); err == nil; conn, err = listen.Accept() {
			b.all.Go(func() { b.forward(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listen.Close()
		b.cut()
		b.all.Wait()
	})
	return b, "http://" + listen.Addr().String()
}

func (b *balancer) forward(from net.Conn) {
	defer from.Close()
	for range b.addrs {
		to, err := net.Dial("tcp", b.addrs[int(b.next.Add(1))%len(b.addrs)])
		if err != nil {
			continue
		}
		b.mu.Lock()
		b.conns[from], b.conns[to] = true, true
		b.mu.Unlock()
		b.all.Go(func() {
			_, _ = io.Copy(to, from)
			_ = to.Close()
		})
		_, _ = io.Copy(from, to)
		return
	}
}

// cut breaks all connections.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		_ = conn.Close()
	}
	clear(b.conns)
}

// outcomes are what callers got, by the number that they sent.
type outcomes struct {
	mu        sync.Mutex
	succeeded map[int]bool
	codes     map[string]int
	unclear   int // without an answer: the pod was killed under the caller
}

// caller calls the tool with ever new numbers until the channel is closed.
func (o *outcomes) caller(url string, next *atomic.Int64, over <-chan struct{}) {
	client := &http.Client{Timeout: testkit.Limit, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		select {
		case <-over:
			return
		default:
		}
		n := int(next.Add(1))
		var answer struct{ Output, Code string }
		resp, err := client.Post(url+"/api/tools/work/call", "application/json",
			strings.NewReader(fmt.Sprintf(`{"args":{"n":%d},"target":{"device_id":"worker"}}`, n)))
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(&answer)
			_ = resp.Body.Close()
		}
		o.mu.Lock()
		switch {
		case err != nil:
			o.unclear++
		case answer.Output == fmt.Sprint(n):
			o.succeeded[n] = true
		default:
			o.codes[answer.Code+" "+answer.Output]++
		}
		o.mu.Unlock()
		if err != nil || answer.Code != "" {
			time.Sleep(20 * time.Millisecond) // so that callers do not fill the time without a device with errors
		}
	}
}

func (o *outcomes) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.succeeded)
}

// TestFleet: while pods are killed and drained in turns, connections break, and the device itself is killed, no call
// runs twice, and each call that succeeded has run.
func TestFleet(t *testing.T) {
	redis := redistest.Start(t).URL()
	addrs := []string{testkit.FreeAddr(t), testkit.FreeAddr(t)}
	pods := []*program{startGateway(t, addrs[0], redis), startGateway(t, addrs[1], redis)}
	b, url := startBalancer(t, addrs...)
	dir := t.TempDir()
	script, err := filepath.Abs("fleet.py")
	must(t, err)
	effects := filepath.Join(dir, "effects")
	device := startPython(t, dir, script, url, filepath.Join(dir, "device.jsonl"), effects)

	got := &outcomes{succeeded: map[int]bool{}, codes: map[string]int{}}
	var next atomic.Int64
	var callers sync.WaitGroup
	over := make(chan struct{})
	for range 8 {
		callers.Go(func() { got.caller(url, &next, over) })
	}
	t.Cleanup(callers.Wait)
	t.Cleanup(sync.OnceFunc(func() { close(over) }))
	for round := range 8 {
		before := got.count()
		testkit.Eventually(t, "calls", func() bool { return got.count() > before+20 })
		pod := round / 4 % 2
		switch round % 4 {
		case 0:
			b.cut()
		case 1, 2:
			pods[pod].end(map[int]os.Signal{1: syscall.SIGTERM, 2: os.Kill}[round%4])
			pods[pod] = startGateway(t, addrs[pod], redis)
		case 3:
			device.end(os.Kill)
			device = startPython(t, dir, script, url, filepath.Join(dir, "device.jsonl"), effects)
		}
	}
	before := got.count()
	testkit.Eventually(t, "the last calls", func() bool { return got.count() > before+20 })
	got.mu.Lock()
	defer got.mu.Unlock()
	t.Logf("%d calls succeeded, %d are unclear, others: %v", len(got.succeeded), got.unclear, got.codes)
	text, err := os.ReadFile(effects)
	must(t, err)
	ran, ids := map[int]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		var id string
		var n int
		_, err := fmt.Sscan(line, &id, &n)
		must(t, err)
		if ran[n] || ids[id] {
			t.Errorf("the call %s with the number %d ran twice", id, n)
		}
		ran[n], ids[id] = true, true
	}
	for n := range got.succeeded {
		if !ran[n] {
			t.Errorf("the call with the number %d succeeded, and did not run", n)
		}
	}
}
