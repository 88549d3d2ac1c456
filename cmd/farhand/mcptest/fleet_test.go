package mcptest

import (
	"bytes"
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

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
)

// rootToken may do everything, in every pod of these tests.
const rootToken = "mcp-test-token-0123456789"

// fleet is three pods on one Redis, and a balancer in front of them.
type fleet struct {
	redis string
	pods  []*pod
	url   string // of the balancer
	suite string // of the same one, which adds a caller's key for programs that cannot send one
	log   string // file with a line for each request that the balancer passed on
}

type pod struct {
	*process
	addr, url, profiles string
}

// process is a started program whose output is kept for when a test fails.
type process struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start starts a program. It is killed when the test ends, or with this one.
func start(t testing.TB, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), out: &output{}, done: make(chan struct{})}
	for _, kv := range os.Environ() { // what the developer has exported is not part of the test
		if !strings.HasPrefix(kv, "FARHAND_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if text := p.out.String(); strings.Contains(text, "WARNING: DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("%s:\n%s", name, text)
		} else if t.Failed() {
			t.Logf("%s printed:\n%.20000s", name, text)
		}
	})
	return p
}

// end sends a signal that ends the process, and waits until it has ended.
func (p *process) end(s syscall.Signal) {
	_ = p.cmd.Process.Signal(s)
	<-p.done
}

// startFleet starts the pods and the balancer. Settings are those of every pod.
func startFleet(t testing.TB, settings ...string) *fleet {
	t.Helper()
	f := &fleet{redis: redistest.Single(t)}
	for range 3 {
		f.pods = append(f.pods, f.startPod(t, testkit.FreeAddr(t), settings...))
	}
	for _, p := range f.pods {
		p.awaitReady(t)
	}
	f.startBalancer(t)
	return f
}

// startPod starts a pod and does not wait until it is ready.
func (f *fleet) startPod(t testing.TB, addr string, settings ...string) *pod {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	profiles := testkit.FreeAddr(t)
	env := append([]string{podVariable + "=1", "FARHAND_ADDR=" + addr, "FARHAND_TOKEN=" + rootToken,
		"FARHAND_REDIS_URL=" + f.redis, "FARHAND_METRICS_ADDR=" + profiles, "FARHAND_PPROF=true"}, settings...)
	return &pod{process: start(t, env, program), addr: addr, url: "http://" + addr, profiles: "http://" + profiles}
}

func (p *pod) awaitReady(t testing.TB) {
	t.Helper()
	eventually(t, "the pod is ready", func() bool {
		select {
		case <-p.done:
			t.Fatalf("the pod ended:\n%s", p.out)
		default:
		}
		return answers(p.url + "/readyz")
	})
}

func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// startBalancer starts nginx with the configuration of deploy/nginx.conf, its upstreams replaced by the pods. Beside it
// runs a second server of the same upstreams, which adds a key. Both write down which pod got each request.
func (f *fleet) startBalancer(t testing.TB) {
	t.Helper()
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		nginx = "/usr/sbin/nginx" // not on the PATH of ordinary users
	}
	text, err := os.ReadFile("../../../deploy/proxies/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	conf, addr, suite, dir := string(text), testkit.FreeAddr(t), testkit.FreeAddr(t), t.TempDir()
	f.log, f.url, f.suite = filepath.Join(dir, "access"), "http://"+addr, "http://"+suite
	for i, p := range f.pods {
		name := fmt.Sprintf("farhand-%d:8080", i+1)
		conf = strings.ReplaceAll(replace(t, conf, name, p.addr), name, p.addr) // each pod is a backup too
	}
	conf = regexp.MustCompile(`(?m)^ *ssl_.*\n`).ReplaceAllString(conf, "")
	conf = replace(t, conf, "listen 8443 ssl;", "listen "+addr+";")
	// By turns, and not to the pod with the fewest streams: that would keep clients apart that listen and that call.
	conf = replace(t, conf, "least_conn;", "")
	conf = replace(t, conf, "worker_processes auto;", "worker_processes 1;")
	conf = replace(t, conf, "access_log off;", "log_format pods '$http_x_test $upstream_addr $request_method $uri "+
		"$status'; access_log "+f.log+" pods;")
	conf = replace(t, conf, "http {", fmt.Sprintf("http { client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; "+
		"fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;", dir))
	server := strings.Index(conf, "    server {\n        listen")
	withToken := replace(t, conf[server:], addr, suite)
	withToken = replace(t, withToken, "proxy_http_version 1.1;",
		"proxy_http_version 1.1; proxy_set_header Authorization \"Bearer "+
			f.createKey(t, "default", "caller")+"\";")
	conf = fmt.Sprintf("daemon off; user root; pid %s/pid; error_log stderr;\n", dir) + conf[:server] +
		strings.TrimSuffix(strings.TrimSpace(conf[server:]), "}") + withToken
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, nginx, "-p", dir, "-c", path)
	t.Cleanup(func() { p.end(syscall.SIGTERM) }) // killed, it would leave its workers behind
	eventually(t, "the balancer answers", func() bool { return answers(f.url + "/readyz") })
}

// replace replaces what must be there.
func replace(t testing.TB, text, old, with string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("deploy/proxies/nginx.conf has no %q", old)
	}
	return strings.Replace(text, old, with, 1)
}

// passedOn returns how many requests with a mark in the header X-Test the balancer gave to each pod.
func (f *fleet) passedOn(t testing.TB, mark string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(f.log)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == mark {
			counts[words[1]]++
		}
	}
	return counts
}

// request sends a request with a token and returns the body of its answer, which must have the status; zero: any.
func request(t testing.TB, method, url, token, body string, status int) []byte {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || status != 0 && resp.StatusCode != status {
		t.Errorf("%s %s: %d %v %s", method, url, resp.StatusCode, err, raw)
	}
	return raw
}

// createKey returns a new API key of a tenant.
func (f *fleet) createKey(t testing.TB, tenant string, roles ...string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"name": "test", "tenant": tenant, "roles": roles})
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ Key string }
	raw := request(t, http.MethodPost, f.pods[0].url+"/api/keys", rootToken, string(body), http.StatusCreated)
	if err := json.Unmarshal(raw, &made); err != nil || made.Key == "" {
		t.Fatalf("a key: %v", err)
	}
	return made.Key
}
