package python_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

// token is the bearer token of every pod.
const token = "python-client-token-0123456789"

// pod is a running `farhand serve`, which can be stopped and started again at its address.
type pod struct {
	addr     string
	settings []string
	cmd      *exec.Cmd
	done     chan struct{}
}

// startPods starts n pods on one Redis.
func startPods(t *testing.T, n int, settings ...string) []*pod {
	t.Helper()
	redis := redistest.Start(t)
	settings = append([]string{
		"FARHAND_TOKEN=" + token, "FARHAND_LOG_LEVEL=warn", "FARHAND_DATA_DIR=off", "FARHAND_REDIS_URL=" + redis.URL(),
		"FARHAND_REDIS_TIMEOUT=20s", "FARHAND_LIMIT_IDENTITY=0",
	}, settings...)
	pods := make([]*pod, n)
	for i := range pods {
		pods[i] = &pod{addr: testkit.FreeAddr(t), settings: settings}
		pods[i].start(t)
		t.Cleanup(func() { pods[i].stop(syscall.SIGKILL) })
	}
	return pods
}

// start starts the pod and waits until it is ready.
func (p *pod) start(t *testing.T) {
	t.Helper()
	p.cmd, p.done = exec.Command(built.gateway, "serve"), make(chan struct{})
	p.cmd.Env = append(append(environment(), "FARHAND_ADDR="+p.addr), p.settings...)
	output := &testOutput{t: t, name: "pod " + p.addr}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(p.cmd, p.done)
	testkit.Eventually(t, "the pod is ready", func() bool {
		resp, err := http.Get("http://" + p.addr + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// stop sends a signal and waits for the end of the process.
func (p *pod) stop(signal syscall.Signal) {
	_ = p.cmd.Process.Signal(signal)
	<-p.done
}

// balancer forwards connections to its pods in turns, but not to those that do not accept them.
type balancer struct {
	url    string
	listen net.Listener
	serve  sync.WaitGroup

	mu    sync.Mutex
	pods  []*pod
	next  int
	conns map[net.Conn]bool
}

func startBalancer(t *testing.T, pods ...*pod) *balancer {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{url: "http://" + listen.Addr().String(), listen: listen, pods: pods, conns: map[net.Conn]bool{}}
	b.serve.Go(func() {
		for {
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			b.serve.Go(func() { b.forward(conn) })
		}
	})
	t.Cleanup(func() {
		listen.Close()
		b.cut()
		b.serve.Wait()
	})
	return b
}

// move sends all later connections to a pod, and breaks those that are open.
func (b *balancer) move(p *pod) {
	b.mu.Lock()
	b.pods = []*pod{p}
	b.mu.Unlock()
	b.cut()
}

// cut breaks the open connections.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for conn := range b.conns {
		conn.Close()
	}
}

func (b *balancer) forward(conn net.Conn) {
	defer conn.Close()
	up := b.dial()
	if up == nil {
		return
	}
	defer up.Close()
	b.mu.Lock()
	b.conns[conn], b.conns[up] = true, true
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.conns, conn)
		delete(b.conns, up)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(up, conn)
		up.Close()
		conn.Close()
	}()
	_, _ = io.Copy(conn, up)
	conn.Close()
	up.Close()
	<-done
}

// dial connects to the next pod that accepts. Nil: none does.
func (b *balancer) dial() net.Conn {
	b.mu.Lock()
	pods, first := b.pods, b.next
	b.next++
	b.mu.Unlock()
	for i := range pods {
		if up, err := net.DialTimeout("tcp", pods[(first+i)%len(pods)].addr, time.Second); err == nil {
			return up
		}
	}
	return nil
}

// startDevice connects a device in Go, and waits until its tools can be called. connected gets a value with each
// connection that has registered the tools.
func startDevice(t *testing.T, url, name string, options ...client.Option) (connected <-chan struct{}) {
	t.Helper()
	up := make(chan struct{}, 1024)
	device, err := client.New(url, append([]client.Option{
		client.WithToken(token), client.WithSession(name), client.WithDevice(name, "the phone", "test"),
		client.WithBackoff(20*time.Millisecond, 200*time.Millisecond),
		client.WithState(func(s client.State) {
			if s.Phase == client.PhaseConnected {
				up <- struct{}{}
			}
		}),
	}, options...)...)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- device.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	testkit.Receive(t, "the device is registered", device.Ready())
	return up
}

// tool is a tool of a test's device.
func tool(name, description, parameters string, h client.Handler) client.Option {
	return client.WithTool(client.Tool{
		Name: name, Description: description, Parameters: json.RawMessage(parameters),
	}, h)
}

// clientEnv is the environment of a program that calls through a URL.
func clientEnv(url string) []string { return []string{"FARHAND_URL=" + url, "FARHAND_TOKEN=" + token} }
