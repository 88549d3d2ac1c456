package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/ws/client"
)

// waitLimit bounds every wait of these tests.
const waitLimit = testkit.Limit

// fleetToken is the bearer token of every pod the tests start.
const fleetToken = "fleet-test-token-0123456789"

// farhandBinary is the program under test, built once with the race detector by TestMain.
var farhandBinary string

func TestMain(m *testing.M) {
	if runHerd() || runAttackers() {
		return
	}
	dir, err := os.MkdirTemp("", "farhand-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	farhandBinary = filepath.Join(dir, "farhand")
	build := exec.Command("go", "build", "-race", "-ldflags=-w", "-o", farhandBinary, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

// noData keeps tests from the state folder of the user. A later variable replaces it.
const noData = "FARHAND_DATA_DIR=off"

// process is a started program whose output is kept for when a test fails.
type process struct {
	cmd  *exec.Cmd
	out  *lockedBuffer
	done chan struct{}
	err  error // of Wait, valid once done is closed
}

func start(t testing.TB, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &lockedBuffer{}, done: make(chan struct{})}
	for _, kv := range os.Environ() { // what the developer has exported is not part of the test
		if !strings.HasPrefix(kv, envPrefix) && !strings.HasPrefix(kv, "OTEL_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, noData), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	// A test that is killed takes its processes along.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if text := p.out.String(); strings.Contains(text, "WARNING: DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("%s:\n%s", name, text)
		} else if t.Failed() {
			t.Logf("%s printed:\n%s", name, text)
		}
	})
	return p
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// exit waits for the process to end and returns its exit code.
func (p *process) exit(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(waitLimit):
		t.Fatal("the process does not end")
		return -1
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pod is a running `farhand serve`.
type pod struct {
	*process
	url string
	id  string
}

// startPod starts a pod and waits until it is ready. Settings are added to the environment as they are.
func startPod(t testing.TB, settings ...string) *pod {
	t.Helper()
	return startPodAt(t, testkit.FreeAddr(t), settings...)
}

func startPodAt(t testing.TB, addr string, settings ...string) *pod {
	t.Helper()
	return startProgram(t, farhandBinary, addr, settings...)
}

// startProgram starts a pod of a given build.
func startProgram(t testing.TB, program, addr string, settings ...string) *pod {
	t.Helper()
	env := append([]string{"FARHAND_ADDR=" + addr, "FARHAND_TOKEN=" + fleetToken, "FARHAND_LOG_LEVEL=warn"},
		settings...)
	p := &pod{process: start(t, env, program, "serve"), url: "http://" + addr}
	eventually(t, waitLimit, "the pod is ready", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the pod ended: %v\n%s", p.err, p.out)
		default:
		}
		resp, err := http.Get(p.url + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		p.id = resp.Header.Get("X-Farhand-Pod")
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// The time that Redis has: of pods whose Redis never fails in their test, however long the machine stalls, and of those
// whose Redis does.
const (
	redisMayStall = "FARHAND_REDIS_TIMEOUT=20s"
	redisFails    = "FARHAND_REDIS_TIMEOUT=800ms" // the default
)

// startFleet starts n pods on one Redis.
func startFleet(t testing.TB, n int, redisURL string, settings ...string) []*pod {
	t.Helper()
	pods := make([]*pod, n)
	for i := range pods {
		pods[i] = startPod(t, append([]string{"FARHAND_REDIS_URL=" + redisURL, redisMayStall}, settings...)...)
	}
	return pods
}

// startBalancer starts nginx with the configuration of deploy/proxies, without TLS, its upstreams replaced by the pods.
func startBalancer(t testing.TB, pods []*pod) string {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx" // not on the PATH of ordinary users
	}
	text, err := os.ReadFile("../../deploy/proxies/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	conf, addr, dir := string(text), testkit.FreeAddr(t), t.TempDir()
	for i, p := range pods {
		name := fmt.Sprintf("farhand-%d:8080", i+1)
		if !strings.Contains(conf, name) {
			t.Fatalf("deploy/proxies/nginx.conf has no upstream %s", name)
		}
		conf = strings.ReplaceAll(conf, name, strings.TrimPrefix(p.url, "http://"))
	}
	conf = regexp.MustCompile(`(?m)^ *ssl_.*\n`).ReplaceAllString(conf, "")
	conf = strings.Replace(conf, "listen 8443 ssl;", "listen "+addr+";", 1)
	// Beside the addresses only what a process of an ordinary user needs is added: places to write to. Workers of root
	// are another user's by default, who cannot write long bodies there.
	conf = fmt.Sprintf("daemon off; user root; pid %s/pid; error_log stderr;\n", dir) + strings.Replace(conf, "http {",
		fmt.Sprintf("http { client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; "+
			"uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;", dir), 1)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, nginx, "-p", dir, "-c", path)
	t.Cleanup(func() { // killed, it would leave its workers behind
		p.signal(syscall.SIGTERM)
		p.exit(t)
	})
	url := "http://" + addr
	eventually(t, waitLimit, "the balancer answers", func() bool {
		resp, err := http.Get(url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return url
}

// connectDevice connects a device through url, waits until its tools are registered, and disconnects it when the
// test ends or the returned function is called.
func connectDevice(t testing.TB, url, session string, options ...client.Option) (disconnect func()) {
	t.Helper()
	options = append([]client.Option{client.WithToken(fleetToken), client.WithSession(session)}, options...)
	c, err := client.New("ws"+strings.TrimPrefix(url, "http")+"/ws/chat", options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx)
	}()
	disconnect = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(disconnect)
	select {
	case <-c.Ready():
	case <-time.After(waitLimit):
		t.Fatalf("device %s did not register", session)
	}
	return disconnect
}

// echoTool answers with its own arguments.
func echoTool() client.Option {
	return client.WithTool(client.Tool{Name: "echo", Description: "returns its arguments"},
		func(_ context.Context, call client.Call) (any, error) { return string(call.Args), nil })
}

// silentTool never answers before its caller has given up.
func silentTool() client.Option {
	return client.WithTool(client.Tool{Name: "silent", Description: "says nothing"},
		func(ctx context.Context, _ client.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
}

// answer is what the gateway said to a call, whether it worked or not.
type answer struct {
	status     int
	Code       string `json:"code"`
	Success    bool   `json:"success"`
	Output     string `json:"output"`
	SessionID  string `json:"session_id"`
	Dispatched string `json:"dispatched"`
	Detail     string `json:"detail"`
	CallID     string `json:"call_id"`
}

func callTool(t testing.TB, url, path, body string) answer {
	t.Helper()
	status, raw := request(t, http.MethodPost, url+path, body)
	a := answer{status: status}
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Errorf("POST %s: %d %s", path, status, raw)
	}
	return a
}

func request(t testing.TB, method, url, body string) (int, []byte) {
	t.Helper()
	status, raw, err := tryRequest(t, method, url, body)
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	return status, raw
}

// tryRequest is request for a test that can do without an answer. The status is 0 if there is none.
func tryRequest(t testing.TB, method, url, body string) (int, []byte, error) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+fleetToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, raw, err
}

// toolsOf returns which sessions a pod lists, with how many tools each.
func toolsOf(t testing.TB, url string) map[string]int {
	t.Helper()
	found := make(map[string]int)
	cursor := ""
	for {
		status, raw := request(t, http.MethodGet, url+"/api/tools?limit=1000"+cursor, "")
		var page struct {
			Tools []struct {
				SessionID string `json:"session_id"`
			}
			Next string `json:"next_cursor"`
		}
		if err := json.Unmarshal(raw, &page); status != http.StatusOK || err != nil {
			t.Fatalf("GET /api/tools: %d %s", status, raw)
		}
		for _, tool := range page.Tools {
			if tool.SessionID != "" { // else it is the gateway's own
				found[tool.SessionID]++
			}
		}
		if page.Next == "" {
			return found
		}
		cursor = "&cursor=" + page.Next
	}
}

func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", limit, what)
		case <-tick.C:
		}
	}
	return time.Since(began)
}
