package soak_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farhand/farhand/internal/testkit"
	"github.com/farhand/farhand/redisstore/redistest"
	"github.com/farhand/farhand/ws/client"
)

var proxiesChosen = flag.String("proxies", "",
	"proxies to test, separated by commas, with what sh .ci/deps proxies installs: nginx,caddy,haproxy,envoy")

// proxy is a load balancer with its settings of deploy/proxies.
type proxy struct {
	name, settings string
	// command returns what starts it. dir is for what it writes, adapted its settings for this machine.
	command func(dir, adapted string) *exec.Cmd
	// adapt changes what only a test needs: a port for plain HTTP, folders. Addresses are already replaced.
	adapt func(t *testing.T, text, dir, port string) string
	ca    string // its authority in dir
}

var proxies = []proxy{
	{
		name: "nginx", settings: "nginx.conf", ca: "cert.pem",
		command: func(dir, adapted string) *exec.Cmd {
			return exec.Command(installed("nginx"), "-p", dir, "-c", adapted)
		},
		adapt: func(_ *testing.T, text, dir, _ string) string {
			return fmt.Sprintf("daemon off; user root; pid %s/pid; error_log stderr;\n", dir) +
				strings.Replace(text, "http {", fmt.Sprintf("http { client_body_temp_path %[1]s/a; "+
					"proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; "+
					"scgi_temp_path %[1]s/e;", dir), 1)
		},
	},
	{
		name: "caddy", settings: "Caddyfile", ca: "caddy/pki/authorities/local/root.crt",
		command: func(dir, adapted string) *exec.Cmd {
			cmd := exec.Command(installed("caddy"), "run", "--adapter", "caddyfile", "--config", adapted)
			cmd.Env = append(cmd.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "HOME="+dir)
			return cmd
		},
		adapt: func(t *testing.T, text, _, port string) string {
			_, plain, _ := net.SplitHostPort(testkit.FreeAddr(t))
			return strings.Replace(text, "{\n", fmt.Sprintf("{\n\tadmin off\n\thttp_port %s\n\thttps_port %s\n",
				plain, port), 1)
		},
	},
	{
		name: "haproxy", settings: "haproxy.cfg", ca: "cert.pem",
		command: func(_, adapted string) *exec.Cmd { return exec.Command(installed("haproxy"), "-db", "-f", adapted) },
	},
	{
		name: "envoy", settings: "envoy.yaml", ca: "cert.pem",
		command: func(_, adapted string) *exec.Cmd {
			return exec.Command("../../.cache/bin/envoy", "-c", adapted, "--concurrency", "1",
				"--disable-hot-restart", "-l", "error")
		},
		adapt: func(_ *testing.T, text, _, _ string) string {
			return regexp.MustCompile(`address: ([0-9.]+):([0-9]+), port_value: 8080`).
				ReplaceAllString(text, "address: $1, port_value: $2")
		},
	},
}

// installed finds a program, also where ordinary users do not look.
func installed(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return filepath.Join("/usr/sbin", name)
}

// TestProxies lets callers and devices use two pods through each proxy, with TLS, while the pods restart in turns. No
// call is lost, streams are not buffered, and pods know the addresses of clients.
func TestProxies(t *testing.T) {
	if *proxiesChosen == "" {
		t.Log("no proxy is chosen (-proxies), so there is nothing to do")
		return
	}
	names := strings.Split(*proxiesChosen, ",")
	program := buildFarhand(t)
	for _, p := range proxies {
		if !slices.Contains(names, p.name) {
			continue
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == p.name })
		t.Run(p.name, func(t *testing.T) {
			f, pods := ownFleet(t, program, redistest.Single(t), "FARHAND_TRUSTED_PROXIES=127.0.0.1",
				"FARHAND_LOG_LEVEL=warn")
			trust := p.start(t, f, pods)
			f.claimAddress(t, trust)
			f.checkStream(t, trust)
			f.breakNext = func(t *testing.T, i int) (what, of string) {
				t.Helper()
				pods[i%2].drain(t)
				pods[i%2].start(t)
				return "drained", "pod " + pods[i%2].name
			}
			checkAnswers(t, soak(t, f, []string{"go"}))
			said := pods[0].said.String() + pods[1].said.String()
			if !strings.Contains(said, `"source":"`+clientAddr+`"`) || strings.Contains(said, forgedAddr) {
				t.Errorf("pods do not know the addresses of clients: %.2000s", said)
			}
		})
	}
	if len(names) > 0 {
		t.Fatalf("-proxies names %q, which have no settings", names)
	}
}

// start starts the proxy in front of the pods, and makes devices and callers of the fleet use it.
func (p proxy) start(t *testing.T, f *fleet, pods [2]*pod) *tls.Config {
	t.Helper()
	raw, err := os.ReadFile("../../deploy/proxies/" + p.settings)
	if err != nil {
		t.Fatal(err)
	}
	dir, text := t.TempDir(), string(raw)
	cert, key := testkit.Certificate(t, dir, time.Now().Add(time.Hour))
	bundle(t, filepath.Join(dir, "haproxy.pem"), cert, key)
	_, port, _ := net.SplitHostPort(testkit.FreeAddr(t))
	for i, addr := range []string{pods[0].addr, pods[1].addr, pods[0].addr} { // the settings have three
		name := fmt.Sprintf("farhand-%d", i+1)
		if !strings.Contains(text, name) {
			t.Fatalf("%s has no %s", p.settings, name)
		}
		text = regexp.MustCompile(" "+name+":8080").ReplaceAllString(text, " "+addr)
		text = strings.ReplaceAll(text, "address: "+name, "address: "+addr)
	}
	text = strings.ReplaceAll(strings.ReplaceAll(text, "/etc/farhand/tls", dir), "8443", port)
	if p.adapt != nil {
		text = p.adapt(t, text, dir, port)
	}
	adapted := filepath.Join(dir, p.settings)
	if err := os.WriteFile(adapted, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runProxy(t, p.command(dir, adapted))
	ca := filepath.Join(dir, p.ca)
	testkit.Eventually(t, p.name+" has its certificate", func() bool { _, err := os.Stat(ca); return err == nil })
	trust := testkit.TrustOf(t, ca)
	f.useTLS("https://localhost:"+port, trust, ca)
	testkit.Eventually(t, p.name+" answers", func() bool { return f.get("/readyz", new(any)) == nil })
	return trust
}

// useTLS makes devices and callers use a balancer.
func (f *fleet) useTLS(url string, trust *tls.Config, ca string) {
	f.http.CloseIdleConnections()
	f.http.Transport = &http.Transport{MaxIdleConnsPerHost: 64, TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: true}
	f.url, f.entries, f.devices = url, []string{url}, []string{"SSL_CERT_FILE=" + ca}
}

// bundle writes certificate and key into one file.
func bundle(t *testing.T, path string, parts ...string) {
	t.Helper()
	var all []byte
	for _, part := range parts {
		text, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// runProxy starts a proxy, and ends it with the test.
func runProxy(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // killed, nginx would leave its workers behind
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s wrote: %.5000s", cmd.Path, out.String())
		}
	})
}

const (
	clientAddr = "127.0.0.7" // also this machine
	forgedAddr = "203.0.113.9"
)

// claimAddress sends a request with a wrong token from an address of its own, and claims another one. Pods log the
// source of such requests.
func (f *fleet) claimAddress(t *testing.T, trust *tls.Config) {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(clientAddr)}}
	transport := &http.Transport{TLSClientConfig: trust, DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodGet, f.url+"/api/tools", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer wrong-token-0123456789")
	r.Header.Set("X-Forwarded-For", forgedAddr)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong token: %s", resp.Status)
	}
}

// checkStream calls a device, and reads the call's end from a stream that stays open.
func (f *fleet) checkStream(t *testing.T, trust *tls.Config) {
	t.Helper()
	d, err := client.New("wss"+strings.TrimPrefix(f.url, "https")+"/ws/chat", client.WithToken(f.token),
		client.WithSession("probe"), client.WithTLS(trust),
		client.WithTool(client.Tool{Name: "probe", Description: "says ok"},
			func(context.Context, client.Call) (any, error) { return "ok", nil }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Limit)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	testkit.Receive(t, "the device's registration", d.Ready())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/api/events?type=call.finished", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	stream, err := f.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	var call struct {
		CallID string `json:"call_id"`
		Output string
	}
	resp, err := f.post("/api/tools/probe/call", `{"args":{}}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&call); err != nil || call.Output != "ok" {
		t.Fatalf("a call: %s %+v %v", resp.Status, call, err)
	}
	for lines := bufio.NewScanner(stream.Body); ; {
		if !lines.Scan() {
			t.Fatalf("the stream ended before the call's event came: %v", lines.Err())
		}
		if strings.Contains(lines.Text(), call.CallID) {
			return
		}
	}
}

func (f *fleet) post(path, body string) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, f.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+f.token)
	r.Header.Set("Content-Type", "application/json")
	return f.http.Do(r)
}

// checkAnswers checks that every request got an answer of the gateway: pods that drain lose none.
func checkAnswers(t *testing.T, book *ledger) {
	t.Helper()
	for text, r := range book.requests {
		if slices.ContainsFunc(r.heard, func(h heard) bool { return h.status == 0 }) {
			t.Errorf("the proxy lost a request: %s", book.history(text))
		}
	}
}
