package soak_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
)

// fleet is what is tested: pods of this test, or a fleet that runs elsewhere.
type fleet struct {
	url     string   // devices connect to it
	entries []string // callers use any of these
	token   string   // of devices and callers; an admin's
	http    *http.Client
	devices []string // their environment, beside this process's: KEY=value

	faults    int  // least number of faults
	storeDies bool // one of them
	// breakNext breaks one thing, and returns when it works again. i counts from 0. what is "killed" or "drained".
	breakNext func(t *testing.T, i int) (what, of string)
	// knows reports whether a pod of the fleet that runs has an id.
	knows func(pod string) bool
	stop  func(t *testing.T) // ends the fleet: what hangs would be noticed
	// logged returns the lines of the pods' logs that have a text, after stop.
	logged func(text string) []string
}

// ownFleet is a fleet of two pods on a Redis. Callers use the pods' own addresses, devices a balancer.
func ownFleet(t *testing.T, program, redis string, settings ...string) (f *fleet, pods [2]*pod) {
	t.Helper()
	f = &fleet{
		token: "soak-token-0123456789", faults: 2,
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: testkit.Limit},
	}
	t.Cleanup(func() { f.http.CloseIdleConnections() })
	for i := range pods {
		pods[i] = &pod{
			program: program, name: string(rune('a' + i)), addr: testkit.FreeAddr(t),
			env: append([]string{
				"FARHAND_REDIS_URL=" + redis, "FARHAND_TOKEN=" + f.token, "FARHAND_POD_LEASE=3s",
				"FARHAND_DRAIN_TIMEOUT=20s", "FARHAND_RETENTION=1h", "FARHAND_LOG_LEVEL=" + *logLevel,
			}, settings...),
		}
		pods[i].start(t)
		t.Cleanup(pods[i].end)
		f.entries = append(f.entries, pods[i].url())
	}
	f.url = startBalancer(t, pods[0].addr, pods[1].addr).url
	f.breakNext = func(t *testing.T, i int) (what, of string) {
		t.Helper()
		p := pods[i%2] // the other one has all devices afterwards, and is next
		if what = "killed"; (i+i/2)%2 == 0 {
			p.end()
		} else {
			what = "drained"
			p.drain(t)
		}
		p.start(t)
		return what, "pod " + p.name
	}
	f.knows = func(id string) bool { return id == pods[0].id() || id == pods[1].id() }
	f.stop = func(t *testing.T) {
		t.Helper()
		for _, p := range pods {
			p.drain(t)
		}
	}
	f.logged = func(text string) []string { return logged(pods[:], text) }
	return f, pods
}

// logged returns the lines of the logs of all starts of pods that have a text. The pods must have ended.
func logged(pods []*pod, text string) (lines []string) {
	for _, p := range pods {
		for i, out := range p.outs {
			for line := range strings.Lines(out.String()) {
				if strings.Contains(line, text) {
					lines = append(lines, fmt.Sprintf("%s%d: %s", p.name, i+1, strings.TrimSpace(line)))
				}
			}
		}
	}
	return lines
}

// breakDown breaks the fleet until ctx ends. Between two faults all devices are connected. It writes the faults down,
// and returns how often each happened.
func (f *fleet) breakDown(
	ctx context.Context, t *testing.T, book *ledger, devices []*device, random *rand.Rand,
) map[string]int {
	t.Helper()
	faults := map[string]int{}
	for i := 0; i < f.faults || ctx.Err() == nil; i++ {
		pause(time.Duration(200+random.IntN(1500)) * time.Millisecond)
		from := time.Now()
		what, of := f.breakNext(t, i)
		faults[what]++
		book.suffer(fault{what + " " + of, from, time.Now()})
		f.await(t, devices)
	}
	return faults
}

// pause lets calls begin before the next fault.
func pause(d time.Duration) { <-time.After(d) }

// await waits until the store lists all devices as connected to pods that run.
func (f *fleet) await(t *testing.T, devices []*device) {
	t.Helper()
	testkit.Eventually(t, "all devices are connected", func() bool {
		var list struct {
			Sessions []struct {
				SessionID string `json:"session_id"`
				Pod       string
				Connected bool
				Tools     []string
			}
		}
		if f.get("/api/sessions?connected=true", &list) != nil {
			return false
		}
		connected := 0
		for _, s := range list.Sessions {
			isOurs := slices.ContainsFunc(devices, func(d *device) bool { return d.session == s.SessionID })
			if isOurs && s.Connected && len(s.Tools) > 0 && f.knows(s.Pod) {
				connected++
			}
		}
		return connected == len(devices)
	})
}

// get reads JSON.
func (f *fleet) get(path string, v any) error {
	r, err := http.NewRequest(http.MethodGet, f.entries[0]+path, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	resp, err := f.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

// pod is a process of `farhand serve` that is started again on its address, each time as another pod.
type pod struct {
	program, name, addr string
	env                 []string

	starts atomic.Int32
	cmd    *exec.Cmd
	out    *bytes.Buffer // until done
	said   bytes.Buffer  // what it printed before this start
	done   chan struct{}
	outs   []*bytes.Buffer // of all starts, the last one included
}

func (p *pod) url() string { return "http://" + p.addr }
func (p *pod) id() string  { return fmt.Sprintf("%s%d", p.name, p.starts.Load()) }

// start starts the pod, and waits until it is ready.
func (p *pod) start(t *testing.T) {
	t.Helper()
	p.starts.Add(1)
	p.cmd, p.out, p.done = exec.Command(p.program, "serve"), &bytes.Buffer{}, make(chan struct{})
	p.outs = append(p.outs, p.out)
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "FARHAND_") {
			p.cmd.Env = append(p.cmd.Env, variable)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, p.env...), "FARHAND_ADDR="+p.addr, "FARHAND_POD_ID="+p.id())
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // a test that is killed takes its pods along
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func(cmd *exec.Cmd, out *bytes.Buffer, done chan struct{}) {
		defer close(done)
		_ = cmd.Wait()
		_, _ = p.said.Write(out.Bytes())
		if text := out.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("pod %s: %s", p.name, text)
		}
	}(p.cmd, p.out, p.done)
	testkit.Eventually(t, "the pod is ready", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the pod ended: %s", p.out)
		default:
		}
		resp, err := http.Get(p.url() + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// end kills the pod.
func (p *pod) end() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// drain stops the pod as an orchestrator does.
func (p *pod) drain(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "the end of a drained pod", p.done)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("a drained pod exited with %d: %s", code, p.out)
	}
}

// balancer passes connections on to pods in turns, and leaves out those that refuse them.
type balancer struct {
	url      string
	listener net.Listener
	addrs    []string
	turn     atomic.Uint32
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func startBalancer(t *testing.T, addrs ...string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{url: "http://" + l.Addr().String(), listener: l, addrs: addrs, conns: map[net.Conn]bool{}}
	b.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.running.Go(func() { b.serve(conn) })
		}
	})
	t.Cleanup(b.close)
	return b
}

func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	first := int(b.turn.Add(1))
	for i := range b.addrs {
		pod, err := net.DialTimeout("tcp", b.addrs[(first+i)%len(b.addrs)], time.Second)
		if err != nil {
			continue
		}
		defer pod.Close()
		if b.keep(client, pod) {
			defer b.forget(client, pod)
			relay(client, pod)
		}
		return
	}
}

// relay copies in both directions until one side ends.
func relay(client, pod net.Conn) {
	var copying sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, pod}, {pod, client}} {
		copying.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		})
	}
	copying.Wait()
}

// keep notes connections that close ends. It reports false if the balancer is closed.
func (b *balancer) keep(conns ...net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		b.conns[conn] = true
	}
	return !b.closed
}

func (b *balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		delete(b.conns, conn)
	}
}

func (b *balancer) close() {
	_ = b.listener.Close()
	b.mu.Lock()
	b.closed = true
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}
