package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/redisstore/redistest"
)

// mutedProxy passes bytes between two addresses. Muted, the connections it has stay open and carry nothing; it takes
// new ones only when it is told to.
type mutedProxy struct {
	listener net.Listener
	to       string
	muted    atomic.Int64 // connections up to this number carry nothing
	refusing atomic.Bool
	count    atomic.Int64
	done     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newMutedProxy(t *testing.T, to string) *mutedProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &mutedProxy{listener: l, to: to}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.done.Wait()
	})
	return p
}

func (p *mutedProxy) addr() string { return p.listener.Addr().String() }

// mute makes the connections there are carry nothing from now on.
func (p *mutedProxy) mute() { p.muted.Store(p.count.Load()) }

// cut closes the connections there are.
func (p *mutedProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *mutedProxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if p.refusing.Load() {
			in.Close()
			continue
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		n := p.count.Add(1)
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		p.done.Go(func() { p.copy(n, out, in) })
		p.done.Go(func() { p.copy(n, in, out) })
	}
}

func (p *mutedProxy) copy(n int64, to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		if size > 0 && n > p.muted.Load() {
			if _, err := to.Write(buffer[:size]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestADeafPodIsNoticed (row 18): a pod's connections to Redis stay open and carry nothing, so Redis counts it as a
// receiver of what it never hears. Callers are told `lost` long before their deadline, the pod says that it is not
// ready, and by itself it is back.
func TestADeafPodIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := newMutedProxy(t, server.Addr())
	asked := startPod(t, "FARHAND_REDIS_URL="+server.URL(), "FARHAND_LOG_LEVEL=error")
	deaf := startPod(t, "FARHAND_REDIS_URL=redis://"+proxy.addr(), "FARHAND_LOG_LEVEL=error")
	device := startRawDevice(t, "phone", []string{deaf.url}, echoWork)
	eventually(t, waitLimit, "the device is listed", func() bool { return len(toolsOf(t, asked.url)) == 1 })
	proxy.refusing.Store(true)
	proxy.mute()
	call := callInBackground(t, asked.url, "/api/sessions/phone/tools/work/call", `{"args":{},"timeout_ms":60000}`)
	eventually(t, 2*waitLimit, "the deaf pod is not ready", func() bool {
		resp, err := http.Get(deaf.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	if a := call.wait(t); a.Code != "lost" || a.Dispatched != "unknown" || call.took > 30*time.Second {
		t.Errorf("told after %v: %+v", call.took, a)
	}
	if n := len(device.executions()); n != 0 {
		t.Errorf("the device ran %d calls", n)
	}
	proxy.refusing.Store(false)
	eventually(t, 3*waitLimit, "calls reach the device again", func() bool {
		return callTool(t, asked.url, "/api/sessions/phone/tools/work/call", `{"args":{}}`).Success
	})
}

// TestAFrozenClusterMember (row 24): one master of three is frozen, without a replica. Whatever callers are told about
// the calls of that time is true, nobody waits for his whole deadline, and all is well when the member is back.
func TestAFrozenClusterMember(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	pods := startFleet(t, 2, cluster.URL, redisFails, "FARHAND_LOG_LEVEL=error")
	var devices []*rawDevice
	for i := range 6 {
		devices = append(devices, startRawDevice(t, fmt.Sprintf("device-%d", i), []string{pods[i%2].url}, echoWork))
	}
	eventually(t, waitLimit, "all devices are listed",
		func() bool { return len(toolsOf(t, pods[0].url)) == len(devices) })
	path := func(i int) string { return fmt.Sprintf("/api/sessions/device-%d/tools/work/call", i%len(devices)) }
	var calls []*pendingCall
	cluster.Masters[1].Pause()
	for i := range 48 {
		extra := ""
		if i%2 == 1 {
			extra = fmt.Sprintf(`,"idempotency_key":"k%d"`, i)
		}
		calls = append(calls, callInBackground(t, pods[i/2%2].url, path(i),
			fmt.Sprintf(`{"args":{"n":%d},"timeout_ms":60000%s}`, i, extra)))
		waitFor(t.Context(), 50*time.Millisecond) // into the time in which the cluster knows that it is down
	}
	told := make(map[string]int)
	for _, c := range calls {
		a := c.wait(t)
		told[a.Code]++
		if c.took > 30*time.Second {
			t.Errorf("told after %v: %+v", c.took, a)
		}
	}
	t.Logf("48 calls while a member was frozen: %v", told)
	cluster.Masters[1].Resume()
	for i := range devices {
		for _, p := range pods {
			eventually(t, 2*waitLimit, "every call succeeds again",
				func() bool { return callTool(t, p.url, path(i), `{"args":{}}`).Success })
		}
	}
	executed := make(map[string]int)
	for _, d := range devices {
		d.stop()
		for id, n := range d.executions() {
			executed[id] += n
		}
	}
	for i, c := range calls {
		n := executed[c.CallID]
		switch {
		case n > 1, c.Dispatched == "no" && n > 0, c.Dispatched == "yes" && n == 0, c.Success &&
			c.Output != fmt.Sprintf(`{"n":%d}`, i):
			t.Errorf("ran %d times: %+v", n, c.answer)
		case !c.Success && c.Code != "store_unavailable" && c.Code != "lost" && c.Code != "not_connected":
			t.Errorf("%+v", c.answer)
		}
	}
}

// TestRedisMayTakeItsTime: a pod waits for Redis as long as its setting says.
func TestRedisMayTakeItsTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	pod := startFleet(t, 1, server.URL(), redisMayStall)[0]
	server.Pause()
	listing := make(chan error, 1)
	go func() {
		status, body, err := tryRequest(t, http.MethodGet, pod.url+"/api/tools", "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, body)
		}
		listing <- err
	}()
	waitFor(t.Context(), 2*time.Second) // more than twice the default
	server.Resume()
	if err := <-listing; err != nil {
		t.Error(err)
	}
}

// TestRedisDropsASlowPod (row 28): a pod stands still while large calls for it pass through Redis, until Redis drops
// its subscription for the bytes it keeps waiting. Back, the pod listens again, and nothing that was said not to have
// been dispatched has run.
func TestRedisDropsASlowPod(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--client-output-buffer-limit", "pubsub 1mb 1mb 1")
	pods := startFleet(t, 2, server.URL(), redisFails, "FARHAND_LOG_LEVEL=error", "FARHAND_POD_LEASE=60s")
	device := startRawDevice(t, "phone", []string{pods[1].url}, echoWork)
	eventually(t, waitLimit, "the device is listed", func() bool { return len(toolsOf(t, pods[0].url)) == 1 })
	subscribers := func() int {
		list, err := server.Command("CLIENT", "LIST", "TYPE", "pubsub")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(list, "id=")
	}
	if n := subscribers(); n != 2 {
		t.Fatalf("%d subscribers", n)
	}
	pods[1].signal(syscall.SIGSTOP)
	large := strings.Repeat("x", 512<<10)
	var calls []*pendingCall
	eventually(t, 2*waitLimit, "Redis drops the slow pod", func() bool {
		if len(calls) < 60 {
			body := fmt.Sprintf(`{"args":{"n":%d,"x":%q},"timeout_ms":60000}`, len(calls), large)
			calls = append(calls, callInBackground(t, pods[0].url, "/api/sessions/phone/tools/work/call", body))
			waitFor(t.Context(), 50*time.Millisecond)
		}
		return subscribers() == 1
	})
	pods[1].signal(syscall.SIGCONT)
	eventually(t, 2*waitLimit, "the pod listens again", func() bool {
		return callTool(t, pods[0].url, "/api/sessions/phone/tools/work/call", `{"args":{}}`).Success
	})
	told := make(map[string]int)
	for _, c := range calls {
		c.wait(t)
		told[c.Code+" "+c.Dispatched]++
	}
	t.Logf("%d calls: %v", len(calls), told)
	device.stop()
	executed := device.executions()
	for _, c := range calls {
		if n := executed[c.CallID]; n > 1 || n > 0 && c.Dispatched == "no" || n == 0 &&
			(c.Success || c.Dispatched == "yes") {
			t.Errorf("ran %d times: %s %s", n, c.Code, c.Dispatched)
		}
	}
}
