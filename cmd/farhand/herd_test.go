package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

const (
	herdSize  = 10_000
	herdLimit = 4 * time.Minute // the promise is 30 s; the figure is logged, and a busy test machine gets more
)

// TestHerd: a pod with 10,000 devices is killed, and all of them come back at once. They are back within 30 s, calls to
// other devices keep flowing meanwhile, and Redis is never asked by more connections than the pods may have. It runs
// the program without the race detector: what is tested is how much it bears.
func TestHerd(t *testing.T) {
	plain := plainProgram(t)
	server := redistest.Start(t)
	settings := []string{"FARHAND_REDIS_URL=" + server.URL(), "FARHAND_LOG_LEVEL=error"}
	var pods []*pod
	for range 3 {
		pods = append(pods, startProgram(t, plain, testkit.FreeAddr(t), settings...))
	}
	herd := newHerd(t, herdSize, pods[0].url)
	took := eventually(t, time.Minute, "the herd is connected",
		func() bool { return herd.registered.Load() == herdSize })
	t.Logf("%d devices connected and registered in %v", herdSize, took.Round(time.Millisecond))
	others := callOthers(t, pods[1:])
	waitFor(t.Context(), time.Second)
	herd.move(pods[1].url, pods[2].url)
	pods[0].signal(syscall.SIGKILL)
	most := 0
	took = eventually(t, herdLimit, "the whole herd is back", func() bool {
		most = max(most, redisClients(t, server))
		return herd.registered.Load() == 2*herdSize
	})
	t.Logf("%d devices were back %v after their pod was killed; at most %d connections to Redis", herdSize,
		took.Round(time.Millisecond), most)
	// Nothing these calls need was killed, and the herd takes no connection to Redis from them.
	others.check()
	if most > 3*(64+16+32+8) {
		t.Errorf("%d connections to Redis", most)
	}
}

// others are 20 devices of their own, which four callers call all the time.
type others struct {
	*testing.T
	before machine
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu     sync.Mutex
	took   []time.Duration
	failed map[string]int // by code
}

func callOthers(t *testing.T, pods []*pod) *others {
	t.Helper()
	for i := range 20 {
		startRawDevice(t, fmt.Sprintf("other-%d", i), []string{pods[i%len(pods)].url}, echoWork)
	}
	eventually(t, waitLimit, "the others can be called", func() bool {
		_, raw := request(t, http.MethodGet, pods[0].url+"/api/tools?name=work&view=grouped", "")
		return strings.Contains(string(raw), `"sessions":20`)
	})
	ctx, cancel := context.WithCancel(t.Context())
	o := &others{T: t, before: lookAtMachine(t), cancel: cancel, failed: make(map[string]int)}
	for i := range 4 {
		o.calls.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				a := callTool(t, pods[i%len(pods)].url,
					fmt.Sprintf("/api/sessions/other-%d/tools/work/call", rand.IntN(20)), `{"args":{}}`)
				o.mu.Lock()
				o.took = append(o.took, time.Since(began))
				if !a.Success {
					o.failed[a.Code]++
				}
				o.mu.Unlock()
				waitFor(ctx, 20*time.Millisecond)
			}
		})
	}
	return o
}

// check ends the calls, logs their times, and wants none to have failed.
func (o *others) check() {
	o.Helper()
	o.cancel()
	o.calls.Wait()
	slices.Sort(o.took)
	n := len(o.took)
	o.Logf("%d calls to the others meanwhile: p50 %v, p99 %v, failed %v", n, o.took[n/2].Round(time.Millisecond),
		o.took[n*99/100].Round(time.Millisecond), o.failed)
	late, left := o.failed["store_unavailable"], lookAtMachine(o.T).leftSince(o.before)
	delete(o.failed, "store_unavailable")
	if len(o.failed) > 0 || tooManyLate(late, n, left) {
		o.Errorf("of %d calls to the others %d were late for the store, others failed: %v; %.0f %% of the machine left",
			n, late, o.failed, 100*left)
	}
}

func redisClients(t *testing.T, s *redistest.Server) int {
	info, err := s.Command("INFO", "clients")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "connected_clients:")
	line, _, _ := strings.Cut(rest, "\r")
	n, _ := strconv.Atoi(strings.TrimSpace(line))
	return n
}

// herd is many devices that answer each call at once, in a process of their own: what they take is not the test's.
type herd struct {
	registered atomic.Int64 // how often a device was told that its tools are registered
	ran        sync.Map     // by call: how often it ran, an *atomic.Int64
	answered   atomic.Int64 // calls
	commands   io.WriteCloser
	ended      chan struct{}
}

// newHerd starts n devices, which connect to these pods.
func newHerd(t *testing.T, n int, urls ...string) *herd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), herdVariable+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	h := &herd{ended: make(chan struct{})}
	events, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if h.commands, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(h.ended)
		for lines := bufio.NewScanner(events); lines.Scan(); {
			if lines.Text() == "" {
				h.registered.Add(1)
				continue
			}
			times, _ := h.ran.LoadOrStore(lines.Text(), new(atomic.Int64))
			times.(*atomic.Int64).Add(1)
			h.answered.Add(1)
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(h.stop)
	h.move(urls...)
	return h
}

// move sends those who connect from now on to these pods.
func (h *herd) move(urls ...string) {
	_, _ = fmt.Fprintln(h.commands, strings.Join(urls, " "))
}

func (h *herd) stop() {
	_ = h.commands.Close()
	<-h.ended
}
