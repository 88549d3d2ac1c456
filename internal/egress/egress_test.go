package egress_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/farhand/farhand/internal/egress"
	"github.com/farhand/farhand/internal/publicnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network answers every look-up with the same addresses, writes down what is dialled, and connects to one server.
type network struct {
	addrs  []netip.Addr
	server string

	mu     sync.Mutex
	dialed []netip.AddrPort
	asked  int
}

func (n *network) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if len(n.addrs) == 0 {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return n.addrs, nil
}

func (n *network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialed = append(n.dialed, netip.MustParseAddrPort(address))
	n.mu.Unlock()
	if n.server == "" {
		return nil, errors.New("nobody there")
	}
	return new(net.Dialer).DialContext(ctx, network, n.server)
}

var public = netip.MustParseAddr("93.184.216.34")

func newProxy(t testing.TB, n *network, cfg egress.Config) *egress.Proxy {
	t.Helper()
	cfg.Resolver, cfg.Dial = n, n.Dial
	p, err := egress.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// client uses a proxy.
func client(t testing.TB, p *egress.Proxy) *http.Client {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: p.Addr(),
		User: url.UserPassword(egress.User, p.Password())})}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

func get(t testing.TB, c *http.Client, address string) (int, string) {
	t.Helper()
	resp, err := c.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// raw sends lines to a proxy and returns the status line of the answer, and the rest.
func raw(t testing.TB, p *egress.Proxy, lines string) (string, *bufio.Reader, net.Conn) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	auth := base64.StdEncoding.EncodeToString([]byte(egress.User + ":" + p.Password()))
	io.WriteString(conn, strings.ReplaceAll(lines, "AUTH", "Proxy-Authorization: Basic "+auth))
	r := bufio.NewReader(conn)
	status, _ := r.ReadString('\n')
	return strings.TrimSpace(status), r, conn
}

// Plain requests are forwarded and tunnels opened, for whoever knows the password.
func TestForwarding(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(egress.FailedHeader, "1")
		fmt.Fprintf(w, "%s %s %q", r.Host, r.URL.Path, r.Header["Proxy-Authorization"])
	}))
	defer site.Close()
	n := &network{addrs: []netip.Addr{public}, server: site.Listener.Addr().String()}
	p := newProxy(t, n, egress.Config{})
	resp, err := client(t, p).Get("http://site.test/page")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "site.test /page []" || resp.Header.Get(egress.FailedHeader) != "" {
		t.Errorf("%s, %v", body, resp.Header)
	}
	status, r, conn := raw(t, p, "CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\nAUTH\r\n\r\n")
	if !strings.HasPrefix(status, "HTTP/1.1 200") {
		t.Fatal(status)
	}
	r.ReadString('\n')
	io.WriteString(conn, "GET /tunnel HTTP/1.0\r\nHost: x\r\n\r\n")
	if rest, err := io.ReadAll(r); err != nil || !strings.HasSuffix(string(rest), "x /tunnel []") {
		t.Errorf("%s, %v", rest, err)
	}
	if n.dialed[0] != netip.AddrPortFrom(public, 80) || n.dialed[len(n.dialed)-1] != netip.AddrPortFrom(public, 443) {
		t.Errorf("dialled %v", n.dialed)
	}
	if lines := p.Refused(); len(lines) > 0 {
		t.Errorf("refused: %v", lines)
	}
}

// Without the password there is no way through, and none to its own page.
func TestPassword(t *testing.T) {
	n := &network{addrs: []netip.Addr{public}}
	p := newProxy(t, n, egress.Config{})
	for _, line := range []string{"", "Proxy-Authorization: Basic eDp5\r\n", "Proxy-Authorization: Basic\r\n",
		"Authorization: x\r\n"} {
		for _, request := range []string{"CONNECT site.test:443", "GET http://site.test/", "GET " + egress.HelloURL} {
			status, _, _ := raw(t, p, request+" HTTP/1.1\r\nHost: x\r\n"+line+"\r\n")
			if !strings.HasPrefix(status, "HTTP/1.1 407") {
				t.Errorf("%s, %s: %s", request, line, status)
			}
		}
	}
	if len(n.dialed) > 0 || n.asked > 0 || p.Greeted() {
		t.Errorf("dialled %v, asked %d", n.dialed, n.asked)
	}
	if status, _ := get(t, client(t, p), egress.HelloURL); status != http.StatusOK || !p.Greeted() {
		t.Errorf("%d, greeted %v", status, p.Greeted())
	}
}

// What is refused is not dialled, and told; what cannot be reached is told in other words.
func TestRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		addrs []string
		cfg   egress.Config
		url   string
		want  string
	}{
		"private":    {[]string{"10.0.0.1"}, egress.Config{}, "http://a.test/", "a.test resolves to a private"},
		"loopback":   {nil, egress.Config{}, "http://127.0.0.1/", "127.0.0.1 is an address of"},
		"localhost":  {[]string{"93.184.216.34"}, egress.Config{}, "http://localhost./", "name for this machine"},
		"metadata":   {[]string{"169.254.169.254"}, egress.Config{AllowPrivate: true}, "http://a.test/", "refused: "},
		"mapped":     {[]string{"::ffff:127.0.0.1"}, egress.Config{}, "http://a.test/", "refused: "},
		"port":       {[]string{"93.184.216.34"}, egress.Config{}, "http://a.test:22/", "port 22 is not open"},
		"no address": {[]string{}, egress.Config{}, "http://a.test/", "no such host"},
		"not there":  {[]string{"93.184.216.34"}, egress.Config{}, "http://a.test/", "could not be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			n := &network{}
			for _, text := range tt.addrs {
				n.addrs = append(n.addrs, netip.MustParseAddr(text))
			}
			p := newProxy(t, n, tt.cfg)
			status, body := get(t, client(t, p), tt.url)
			said := strings.Join(p.Refused(), "\n")
			refused := !strings.HasPrefix(name, "no")
			if !strings.Contains(said, tt.want) || !strings.Contains(body, tt.want) ||
				(status == http.StatusForbidden) != refused || refused && len(n.dialed) > 0 {
				t.Errorf("%d, %s, %s, dialled %v", status, said, body, n.dialed)
			}
			if again := p.Refused(); len(again) > 0 {
				t.Errorf("told again: %v", again)
			}
		})
	}
}

// An address of this machine is its own, also if it is public.
func TestOwnAddresses(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	n := &network{}
	for _, a := range own {
		n.addrs = append(n.addrs, netip.MustParsePrefix(a.String()).Addr())
	}
	status, _ := get(t, client(t, newProxy(t, n, egress.Config{})), "http://me.test/")
	if status != http.StatusForbidden {
		t.Errorf("%d, dialled %v", status, n.dialed)
	}
}

// A name with good and bad addresses leads to the good ones only, and to few of them.
func TestSeveralAddresses(t *testing.T) {
	n := &network{addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), public, netip.MustParseAddr("10.0.0.1"),
		netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("9.9.9.9")}}
	get(t, client(t, newProxy(t, n, egress.Config{})), "http://many.test/")
	if len(n.dialed) != 3 {
		t.Errorf("dialled %v", n.dialed)
	}
	for _, a := range n.dialed {
		if publicnet.KindOf(a.Addr()) != publicnet.Public {
			t.Errorf("dialled %v", a)
		}
	}
}

// A browser moves as many bytes as it may, is not silent for too long, and connections do not live on.
func TestBounds(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(make([]byte, 64<<10))
	}))
	defer site.Close()
	n := &network{addrs: []netip.Addr{public}, server: site.Listener.Addr().String()}
	p := newProxy(t, n, egress.Config{MaxBytes: 100 << 10})
	c := client(t, p)
	if status, body := get(t, c, "http://a.test/"); status != http.StatusOK || len(body) != 64<<10 {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	if resp, err := c.Get("http://a.test/"); err == nil {
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && len(body) == 64<<10 {
			t.Error("more bytes than there may be")
		}
	}
	status, body := get(t, c, "http://a.test/")
	if status == http.StatusOK || !strings.Contains(body, "traffic limit") {
		t.Errorf("%d, %.100s", status, body)
	}

	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	n = &network{addrs: []netip.Addr{public}, server: silent.Addr().String()}
	for _, cfg := range []egress.Config{{Idle: 20 * time.Millisecond}, {Lifetime: 20 * time.Millisecond}} {
		status, r, _ := raw(t, newProxy(t, n, cfg), "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nAUTH\r\n\r\n")
		if !strings.HasPrefix(status, "HTTP/1.1 200") {
			t.Fatal(status)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// The end of a proxy is the end of its tunnels.
func TestClose(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	p := newProxy(t, &network{addrs: []netip.Addr{public}, server: silent.Addr().String()}, egress.Config{})
	_, r, _ := raw(t, p, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nAUTH\r\n\r\n")
	p.Close()
	if _, err := io.ReadAll(r); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
	p.Close()
}

func TestCheckURL(t *testing.T) {
	for text, good := range map[string]bool{
		"http://example.com/": true, "https://example.com:443/x?y#z": true, "HTTPS://EXAMPLE.com": true,
		"https://exämple.com/": true, "http://93.184.216.34/": true, "http://[2606:4700::1111]/": true,
		"http://example.com:8080/": false, "ftp://example.com/": false, "file:///etc/passwd": false,
		"javascript:1": false, "data:,x": false, "": false, "example.com": false, "//example.com/": false,
		"http://": false, "http://:80/": false,
		"http://user@example.com/": false, "http://127.0.0.1/": false, "http://0x7f.1/": false, "http://0/": false,
		"http://017700000001/": false, "http://[::1]/": false, "http://[fe80::1%25eth0]/": false,
		"http://localhost/":    false,
		"http://x.localhost./": false, "http://127。0。0。1/": false, "http://example.com:99999/": false,
		"http://metadata.google.internal/": false, "http://a b/": false, "http://example.com\n/": false,
		"http://" + strings.Repeat("x", 9000): false,
	} {
		if err := (egress.Config{}).CheckURL(text); (err == nil) != good {
			t.Errorf("%.60q: %v", text, err)
		}
	}
	if err := (egress.Config{AllowPrivate: true, Ports: []int{8080}}).CheckURL("http://localhost:8080/"); err != nil {
		t.Error(err)
	}
	err := (egress.Config{}).CheckURL("http://user:hunter2@a b/")
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password is told: %v", err)
	}
}
