package farhand_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/farhand/farhand"
	"github.com/farhand/farhand/internal/testkit"
)

// secure is a gateway that serves HTTPS on a port of this machine.
type secure struct {
	*testing.T
	addr, dir, cert string
	close           func() // at the end of the test, at the latest
}

func startTLS(t *testing.T, cfg farhand.Config, opts ...farhand.Option) *secure {
	t.Helper()
	s := &secure{T: t, dir: t.TempDir()}
	s.cert, cfg.TLSKey = testkit.Certificate(t, s.dir, time.Now().AddDate(1, 0, 0))
	cfg.TLSCert = s.cert
	l, err := farhand.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	g, err := farhand.New(t.Context(), cfg, append([]farhand.Option{quiet, farhand.WithListener(l)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := g.Run(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	s.close = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		running.Wait()
	})
	t.Cleanup(s.close)
	return s
}

// client returns an HTTPS client that follows no redirect. With h2 it speaks HTTP/2 only, else HTTP/1.1 only.
func (s *secure) client(h2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: testkit.TrustOf(s.T, s.cert), Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!h2)
	transport.Protocols.SetHTTP2(h2)
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: limit,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
}

// read returns a response as text.
func (s *secure) read(client *http.Client, path string) string {
	s.Helper()
	resp, err := client.Get("https://" + s.addr + path)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Error(err)
	}
	return string(text)
}

// get fails the test unless a response has a text.
func (s *secure) get(path, want string) {
	s.Helper()
	if text := s.read(s.client(false), path); !strings.Contains(text, want) {
		s.Errorf("%s: %s", path, text)
	}
}

func (s *secure) device(session string) *websocket.Conn {
	s.Helper()
	dialer := websocket.Dialer{TLSClientConfig: testkit.TrustOf(s.T, s.cert)}
	conn, _, err := dialer.Dial("wss://"+s.addr+"/ws/chat?session_id="+session, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	if _, _, err := conn.ReadMessage(); err != nil {
		s.Fatal(err)
	}
	return conn
}

// TestHTTPS: calls over both versions of HTTP reach a device at wss://, and a stream of events and MCP work over each.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, farhand.Config{})
	device := s.device("d")
	write := func(text string) {
		if err := device.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Error(err)
		}
	}
	write(`{"type":"register_tools","tools":[{"name":"hi","description":"d","parameters":{"type":"object"}}]}`)
	registered := make(chan struct{})
	var answering sync.WaitGroup
	defer answering.Wait()
	defer device.Close()
	answering.Go(func() {
		for {
			var frame struct{ Type, ID string }
			if device.ReadJSON(&frame) != nil {
				return
			}
			switch frame.Type {
			case "tools_registered":
				close(registered)
			case "tool_call_request":
				write(fmt.Sprintf(`{"type":"tool_result","id":%q,"success":true,"output":"hello"}`, frame.ID))
			}
		}
	})
	<-registered
	for _, h2 := range []bool{false, true} {
		client := s.client(h2)
		events, err := client.Get("https://" + s.addr + "/api/events")
		if err != nil {
			t.Fatal(err)
		}
		if got := events.ProtoMajor == 2; got != h2 {
			t.Errorf("the stream came over %s", events.Proto)
		}
		for path, body := range map[string]string{
			"/api/tools/hi/call": `{"args":{}}`,
			"/mcp":               `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hi","arguments":{}}}`,
		} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.addr+path,
				strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), "hello") {
				t.Errorf("%s %s: %d %s, %v", resp.Proto, path, resp.StatusCode, text, err)
			}
		}
		for lines := bufio.NewScanner(events.Body); ; {
			if !lines.Scan() {
				t.Fatalf("the stream ended: %v", lines.Err())
			}
			if strings.Contains(lines.Text(), `"tool":"hi"`) || strings.Contains(lines.Text(), `"name":"hi"`) {
				break
			}
		}
		events.Body.Close()
	}
}

// TestPlainHTTPLeadsToHTTPS: reading requests are redirected, unless they carry a credential. Health checks are
// answered. All others get an error that says what to do, however long their body is.
func TestPlainHTTPLeadsToHTTPS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, farhand.Config{})
	secret, upgrade := http.Header{"Authorization": {"Bearer x"}}, http.Header{"Upgrade": {"websocket"}}
	client := s.client(false)
	for _, tt := range []struct {
		method, path string
		header       http.Header
		status       int
		body         string
	}{
		{"GET", "/console/?tab=fleet%20x#y", nil, 308, ""},
		{"HEAD", "/api/tools", nil, 308, ""},
		{"GET", "//evil.example/", nil, 308, ""},
		{"GET", "/healthz", nil, 200, `"status":"ok"`},
		{"GET", "/readyz", secret, 200, `"status":"ready"`},
		{"HEAD", "/health", nil, 200, ""},
		{"GET", "/api/tools", secret, 400, "https://"},
		{"GET", "/ws/chat", upgrade, 400, "wss://"},
		{"POST", "/healthz", nil, 400, "https://"},
		{"POST", "/api/tools/hi/call", nil, 400, `"code":"invalid_request"`},
	} {
		var body io.Reader
		if tt.method == "POST" {
			body = strings.NewReader(strings.Repeat("x", 200<<10))
		}
		r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+s.addr+tt.path, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = tt.header.Clone()
		resp, err := client.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.path, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(text), tt.body) {
			t.Errorf("%s %s: %d %s, %v", tt.method, tt.path, resp.StatusCode, text, err)
		}
		r.URL.Fragment, r.URL.Scheme = "", "https"
		if to := resp.Header.Get("Location"); tt.status == 308 && to != r.URL.String() {
			t.Errorf("%s %s leads to %s", tt.method, tt.path, to)
		}
		if kind := resp.Header.Get("Content-Type"); tt.status == 400 && kind != "application/problem+json" {
			t.Errorf("%s %s: %s", tt.method, tt.path, kind)
		}
	}
}

// TestClientsThatEndTheirHandshakeNever: connections that say nothing, part of a handshake, part of a plain request,
// or what is neither, are closed in time. They hold nothing that others need, and their number is bounded.
func TestClientsThatEndTheirHandshakeNever(t *testing.T) {
	t.Parallel()
	s := startTLS(t, farhand.Config{})
	var stalled []net.Conn
	for i := range 400 {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		begun := []string{"", "\x16\x03\x01\x02\x00\x01", "GET / HTTP/1.1\r\nHost: x\r\nA: ", "G"}[i%4]
		if _, err := io.WriteString(conn, begun); err != nil {
			t.Fatal(err)
		}
		stalled = append(stalled, conn)
	}
	if resp, err := s.client(false).Get("https://" + s.addr + "/healthz"); err != nil {
		t.Errorf("while others stall: %v", err)
	} else {
		resp.Body.Close()
	}
	for _, begun := range []string{"\x80hello", "\x00", "GET / HTTP/9\r\n\r\n", "NONSENSE\r\n\r\n",
		"GET / HTTP/1.1\r\nA: " + strings.Repeat("a", 17<<10)} {
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, begun)
		stalled = append(stalled, conn)
	}
	for i, conn := range stalled {
		_ = conn.SetReadDeadline(time.Now().Add(limit))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d was not closed", i)
		}
		conn.Close()
	}
}

// TestCertificateChangesUnderTraffic: callers and a device notice nothing when the files change. New connections get
// the new certificate.
func TestCertificateChangesUnderTraffic(t *testing.T) {
	t.Parallel()
	s := startTLS(t, farhand.Config{})
	s.get("/readyz", `{"status":"ready"}`)
	device := s.device("d")
	old := s.client(true)
	var calls atomic.Int64
	stop := make(chan struct{})
	var calling sync.WaitGroup
	for range 4 {
		calling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := old.Get("https://" + s.addr + "/api/sessions")
				if err != nil {
					t.Errorf("call %d: %v", calls.Load(), err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				calls.Add(1)
			}
		})
	}
	testkit.Certificate(t, s.dir, time.Now().AddDate(1, 0, 0))
	testkit.Eventually(t, "a new connection gets the new certificate", func() bool {
		conn, err := tls.Dial("tcp", s.addr, testkit.TrustOf(t, s.cert))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	before := calls.Load()
	testkit.Eventually(t, "calls go on", func() bool { return calls.Load() > before+20 || t.Failed() })
	close(stop)
	calling.Wait()
	if err := device.WriteMessage(websocket.TextMessage, []byte(`{"type":"get_registered_tools"}`)); err != nil {
		t.Error(err)
	}
	s.get("/metrics", "farhand_tls_certificate_refused 0")
	trusted := s.client(false)
	if err := os.WriteFile(s.dir+"/key.pem", []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the pod warns", func() bool {
		return strings.Contains(s.read(trusted, "/readyz"), "certificate_refused")
	})
	s.get("/metrics", "farhand_tls_certificate_refused 1")
	if _, text, err := device.ReadMessage(); err != nil {
		t.Errorf("the device got %s, %v", text, err)
	}
}

// TestStoppingOverTLS: a gateway that stops loses no request. Each is answered until no connection is accepted.
func TestStoppingOverTLS(t *testing.T) {
	t.Parallel()
	s := startTLS(t, farhand.Config{})
	var calling sync.WaitGroup
	var calls atomic.Int64
	for n := range 8 {
		client := s.client(n%2 == 0)
		calling.Go(func() {
			for {
				resp, err := client.Get("https://" + s.addr + "/api/sessions")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					calls.Add(1)
				}
				if refused := (*net.OpError)(nil); errors.As(err, &refused) && refused.Op == "dial" {
					return
				}
				if err != nil {
					t.Errorf("after %d calls: %v", calls.Load(), err)
					return
				}
			}
		})
	}
	testkit.Eventually(t, "calls", func() bool { return calls.Load() > 100 })
	s.close()
	calling.Wait()
}

// TestOtherTLSClients: curl and Node trust the certificate as an authority of their own, follow the redirect, and
// reject it otherwise. TLS 1.1 is refused.
func TestOtherTLSClients(t *testing.T) {
	t.Parallel()
	s := startTLS(t, farhand.Config{})
	node := `fetch(process.argv[1]).then(r => r.json()).then(a => console.log(a.status), e => console.log(e.cause.code))`
	url := "https://" + s.addr + "/healthz"
	for _, tt := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"curl", "-sS", "--http2", "--cacert", s.cert, "-w", "%{http_version}", url}, `"status":"ok"`},
		{nil, []string{"curl", "-sSL", "--cacert", s.cert, "-o", "/dev/null", "-w", "%{url_effective} %{response_code}",
			"http://" + s.addr + "/openapi.json"}, "https://" + s.addr + "/openapi.json 200"},
		{nil, []string{"curl", "-sS", url}, "SSL certificate problem"},
		{nil, []string{"curl", "-sS", "--cacert", s.cert, "--tls-max", "1.1", url}, "curl: (35)"},
		{[]string{"NODE_EXTRA_CA_CERTS=" + s.cert}, []string{"node", "-e", node, url}, "ok"},
		{nil, []string{"node", "-e", node, url}, "SELF_SIGNED"},
	} {
		cmd := exec.CommandContext(t.Context(), tt.args[0], tt.args[1:]...)
		cmd.Env = append(os.Environ(), tt.env...)
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: %s (%v)", tt.args, out, err)
		}
	}
}

// TestDoctorChecksTheCertificate: what clients would reject is found before they do.
func TestDoctorChecksTheCertificate(t *testing.T) {
	t.Parallel()
	finding := func(cfg farhand.Config) farhand.Finding {
		for _, f := range farhand.Diagnose(t.Context(), cfg, nil, self) {
			if f.Part == "certificate" {
				return f
			}
		}
		return farhand.Finding{}
	}
	cfg := farhand.DefaultConfig()
	cfg.BrowserProgram, cfg.DockerHost = "/nonexistent", "unix:///nonexistent"
	if f := finding(cfg); !f.OK || f.Needed {
		t.Errorf("none: %+v", f)
	}
	cfg.TLSCert, cfg.TLSKey = testkit.Certificate(t, t.TempDir(), time.Now().AddDate(1, 0, 0))
	if f := finding(cfg); !f.OK || !f.Needed || !strings.Contains(f.Text, "for localhost, 127.0.0.1") {
		t.Errorf("a good one: %+v", f)
	}
	if err := os.Chmod(cfg.TLSKey, 0o644); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(cfg.Insecurities()); !strings.Contains(text, "FARHAND_TLS_KEY") {
		t.Errorf("a key that all can read: %s", text)
	}
	cfg.TLSCert, cfg.TLSKey = testkit.Certificate(t, t.TempDir(), time.Now().Add(-time.Hour))
	if f := finding(cfg); f.OK || !strings.Contains(f.Text, "expired on") {
		t.Errorf("an expired one: %+v", f)
	}
	if text, _ := json.Marshal(cfg.Insecurities()); !strings.Contains(string(text), "expired on") {
		t.Errorf("an expired one: %s", text)
	}
}
